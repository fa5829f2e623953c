"""Operates merged queries: what is described in a file is kept running. Run by `lmerge plan`, `up` and `controller`.

It may import `lmerge.client`, the names and terminal of `lmerge`, and nothing of the service. Nothing imports it: the
command line finds its commands by their entry points, and the data path never waits for it.
"""
