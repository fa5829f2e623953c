"""Canonical verification (seed 001, 6): what each operator really emitted, against SQL over what it really got.

Tables have the columns ``payload`` (a row as on the wire), ``vs`` and ``ve``. The SQL is about events and time
(``lmerge.testing.canonical``); values stay whole, and what is computed of them is a function of the database that calls
the engine's own evaluator, so that no types have to be reconciled (6.2). Each operator is judged on its own input, so a
difference is blamed on the operator that made it.

Called by ``lmerge test`` and testers. Imports the plans of the temporal engine, the canonical SQL, and DuckDB.
"""
