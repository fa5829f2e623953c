"""Plans: what a query computes, as a value that can be printed, written as JSON, compared and run."""
