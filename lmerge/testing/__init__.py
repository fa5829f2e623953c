"""Tools for tests of lmerge and of users' replicas: generators, the oracle, the listing, checks, a simulation.

Called by tests and benchmarks. Imports the core; only ``sim`` imports the service and the client, and only
``module_checks`` the temporal algebra.
"""
