"""Evidence of a difference: a report that a person finds the cause from, a smaller case, and files that repeat it.

Called by ``lmerge test``, the pytest plugin and testers. Imports checks and judging.
"""
