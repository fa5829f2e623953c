"""Declares the replicas of this package for ``lmerge replica``: entry points of pyproject.toml name these values.

Imports nothing large, because ``lmerge replica list`` loads all of them.
"""

from __future__ import annotations

from typing import Final

from lmerge.replica_programs import ReplicaProgram

_FLIGHTS: Final = "lmerge_replicas.flights.__main__"
_SPARK: Final = "lmerge_replicas.spark.__main__"
_TEMPORAL: Final = "lmerge_replicas.temporal.__main__"

AGGRESSIVE: Final = ReplicaProgram("publishes at once, revises", _FLIGHTS, ("aggressive",))
CONSERVATIVE: Final = ReplicaProgram("publishes only final events", _FLIGHTS, ("conservative",))
OPEN_ENDED: Final = ReplicaProgram("Ve = inf first, out of order", _FLIGHTS, ("open-ended",))
SPARK_APPEND: Final = ReplicaProgram("a query of PySpark, each flight once", _SPARK, ("append",), has_checkpoint=True)
SPARK_UPDATE: Final = ReplicaProgram("a query of PySpark, with revisions", _SPARK, ("update",), has_checkpoint=True)
TEMPORAL_REVISING: Final = ReplicaProgram("a temporal plan that publishes at once, revises", _TEMPORAL, ("revising",))
TEMPORAL_BY_AIRPORT: Final = ReplicaProgram("a temporal plan in three branches", _TEMPORAL, ("by-airport",))
TEMPORAL_FINAL: Final = ReplicaProgram("a temporal plan, each flight once, in order", _TEMPORAL, ("final",))
