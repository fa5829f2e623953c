"""Checks: a tree on a system, judged operator by operator; and what else must hold of it.

Called by ``lmerge test``, the pytest plugin and testers. Imports systems, judging and the transformer.
"""
