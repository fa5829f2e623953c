"""Connections of clients: addresses, credentials, retries, and the meaning of a gRPC status.

Called by the rest of the client, and by Spark. Imports the wire and the core, nothing else of the client.
"""
