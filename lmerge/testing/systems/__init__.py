"""Systems under test: what runs a query over the streams of a tree and returns what it emitted (seed 001, 3).

All stand behind one protocol (``system``): the engine in this process, a process that speaks the project's lines of
JSON, a Python callable, a real server, Spark, and a merge of several. Others register under ``lmerge.testing.systems``.

Called by checks and ``lmerge test``. Imports concrete trees, the generator and the temporal engine.
"""
