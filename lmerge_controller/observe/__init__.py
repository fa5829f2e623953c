"""Asks the servers of a merged query how they are, and calls them. Called by the loop and by `lmerge plan`.

It imports the client, and gRPC at its edge.

    status          an answer of a server to observed values; pure
    server_calls    the calls, in parallel, with time limits
"""
