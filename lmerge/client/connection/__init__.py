"""Connections of clients: addresses, credentials, retries, and the meaning of a gRPC status.

Called by ``publish``, ``subscribe`` and the administrative calls. Imports the wire, nothing else of the client.
"""
