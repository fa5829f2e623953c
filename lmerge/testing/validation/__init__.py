"""Recorded streams, judged: is each a legal stream, does it keep its promises, what table does it mean.

The rules are SQL over a table of elements, run by DuckDB (6.3 of "An Extensible Test Framework for the Microsoft
StreamInsight Query Processor"). They share no code with the core, which judges the same in another way.

Called by ``lmerge verify`` and by users' tests. Imports the core's formats and errors, pyarrow and DuckDB (the extra
``testing``).
"""
