"""The commands of ``lmerge``, one module each, loaded when it runs.

Called by the shell, and by ``python -m lmerge``. Imports the client, the service, Spark and the demo. Nothing else
imports it.
"""
