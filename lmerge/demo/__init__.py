"""The demo: real replicas, real servers, kills, and a verdict over real flights.

Called by ``lmerge demo``. Imports the client, the core and processes of the other commands, never the service.
"""
