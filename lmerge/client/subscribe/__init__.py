"""Reading one merged stream from one server or several, without loss or repetition over reconnections.

Users call it through ``lmerge.client``; ``views`` and ``sinks`` call it as well. Imports ``connection``, the wire and
the core.
"""
