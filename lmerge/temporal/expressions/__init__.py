"""Scalar expressions over rows: ``(col.delay > 15) & col.origin.is_in(["JFK"])``.

Filters, projections, join predicates and the mappings of modules are made of them. Called by the operators of a plan,
which bind them to a schema. Imports the schema, the form of rows and the errors of plans.

``surface`` builds a tree (``tree``), ``binding`` gives it types by the rules of the families (``rules``) and makes a
Python function of it (``generating``), ``json_format`` writes it, ``printing`` shows it, ``functions`` has those that
users declare.
"""
