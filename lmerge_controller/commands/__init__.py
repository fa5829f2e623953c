"""Thin commands of the controller. Called by the command line, by their entry points. Each imports what it runs."""
