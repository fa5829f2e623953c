"""Merges that are drawn from a seed, and checked after each step: by an oracle, and on both engines.

Called by ``testing.checking``, ``testing.systems``, tests and scripts. Imports ``core`` and ``testing.streams``.
"""
