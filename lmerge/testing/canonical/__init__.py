"""Operators as SQL over tables of events: what a stream's table must be, by a program that shares no code with lmerge.

A table of events has the columns ``vs`` and ``ve`` (BIGINT; the ends of the range are the infinities) and those of the
rows. Tables are multisets. Each module has one kind of operator, as functions that return a query, to be printed, read
and run by DuckDB. A plan is a sequence of such queries, each over the tables before it.

Called by tests of operators and plans, and by users who check their own. Imports nothing of lmerge.
"""
