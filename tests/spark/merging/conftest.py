"""Small states for the tests of merges in Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_query import LocalQuery

from lmerge.spark.merging import pack_files, shard, state_files


@pytest.fixture(autouse=True)
def small_states(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make logs and parts so small that tests reach new bases, bases in parts, and files that are removed."""
    monkeypatch.setattr(shard, "LOG_BYTES_MIN", 4_000)
    monkeypatch.setattr(shard, "PART_BYTES", 900)
    monkeypatch.setattr(shard, "LOG_PER_BASE", 1)
    monkeypatch.setattr(state_files, "KEPT_BATCHES", 2)
    monkeypatch.setattr(pack_files, "INLINE_BYTES", 300)
    monkeypatch.setattr(LocalQuery, "root", tmp_path, raising=False)
    shard._held.clear()
