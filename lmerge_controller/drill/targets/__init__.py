"""What a drill can be aimed at: a sandbox of its own, servers that run, processes of ``lmerge up``, a cluster.

Called by the runner. A target provides servers and the faults of servers. Imports the client and the drill's journal.
"""
