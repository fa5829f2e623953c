"""Deterministic simulation of the whole system: one seed is one run, in virtual time. See docs/simulation.md.

Called as ``python -m lmerge.testing.sim``, and by tests. Imports the service and the client, which run in it unchanged.
"""
