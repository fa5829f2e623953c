"""Operators of the algebra by rows: the definition of what each one emits for every batch.

Called by plans and by the graph that runs their operators. Imports the values and changes of the algebra, and the
calendar of the core.
"""
