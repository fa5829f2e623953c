"""Where the events of a query come from: files, sockets, iterables and the output of other merges.

Called by ``lmerge.replica``. Imports ``lmerge.temporal`` and ``lmerge.client``.
"""
