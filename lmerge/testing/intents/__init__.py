"""Scenarios: what is to be tested, as a tester states it, with all that is omitted left open.

``scenario`` begins one. Its streams have the methods of ``lmerge.temporal``, and ``ANY`` or an omitted argument is a
placeholder: the transformer (``lmerge.testing.transforming``) makes concrete trees of it. A scenario names operators
and the nature of data, and nothing of a language in which a query is written (seed 001, 3 and 4).

Called by testers and ``lmerge test``. Imports the expressions of the temporal engine, for the surface that builds them.
"""
