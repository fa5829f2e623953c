"""The demo: real replicas, real servers, kills, and a verdict over real flights.

Called by ``lmerge demo``. It starts servers and replicas as processes of the other commands. Imports the client, the
core and ``lmerge_replicas``, never the service.
"""
