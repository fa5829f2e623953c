"""Reading one merged stream from one server or several, without loss or repetition over reconnections.

Called by users through ``lmerge.client``, and by ``views`` and ``sinks``.
"""
