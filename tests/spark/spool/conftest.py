"""Fixtures of the tests of the spool."""

from __future__ import annotations

import pytest

from lmerge.spark.spool import retention


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the spool remove everything that it may."""
    monkeypatch.setattr(retention, "DROP_BATCHES_MIN", 1)
    monkeypatch.setattr(retention, "DEAD_ELEMENTS_MIN", 1)
    monkeypatch.setattr(retention, "DEAD_BATCHES_MIN", 1)
