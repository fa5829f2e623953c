"""The commands of administrators, and monitoring: cutover, reset, status, metrics, HTTP.

Called by ``service.server``. It reads the state of a merge from its hub, and changes a merge through steps of the hub.
Imports ``merge`` and ``security``.
"""
