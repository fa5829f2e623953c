"""Compares the inputs of one merge: digests of frozen events, the evidence, and which inputs differ in which interval.

Called by ``service.merge`` and ``service.admin``. Imports values of the core and the choice of the engine, and no merge
and no algorithm.
"""
