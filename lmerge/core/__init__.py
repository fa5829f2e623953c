"""The merge itself: elements, tables, algorithms, policies, engines. Pure: no I/O, no clock.

Called by the wire, the service, the client and Spark. Imports the standard library, sortedcontainers, ``errors`` and
``text_enum``.
"""
