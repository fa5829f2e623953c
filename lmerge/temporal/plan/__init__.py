"""Plans: what a query computes, as a value that can be printed, written as JSON, compared and run.

Called by users through ``stream``, and by what runs queries. Imports the operators, windows, modules and expressions of
the algebra, which know no plan.
"""
