"""How a client connects: addresses, credentials, retries, and what a gRPC status means.

Called by ``publish``, ``subscribe`` and the administrative calls. Imports the wire, nothing else of the client.
"""
