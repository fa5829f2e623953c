"""What windows compute: built-in aggregates, top-k, and the interface for users' modules (seed 000, III.A and IV).

Called by the plan when it builds an operator of windows. Imports the values, changes and windows of the algebra, and
the schema. Users import what they derive modules from: ``lmerge.temporal.modules.kinds`` and ``functions``.
"""
