"""The commands of ``lmerge``, one module each, loaded when it runs.

Called by the shell, and by ``python -m lmerge``. Imports the client, the service, the core and the demo. Nothing else
imports it. Replicas on Spark are found by entry points: see ``replica_programs``.
"""
