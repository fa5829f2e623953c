"""What a spool removes, decided from the manifests alone."""

from __future__ import annotations

from dataclasses import replace

from lmerge.core.elements import INF
from lmerge.spark.spool.manifest import Manifest, SpoolPart
from lmerge.spark.spool.retention import Cut, cut_of


def test_large_batches_of_inserts_go_one_by_one_without_being_read() -> None:
    """A fold would read elements that are dead a batch later anyway."""
    manifests = [
        Manifest(
            n, (SpoolPart(n, 0, 0, "f", 1, 100_000, 0, 1, 10 * n + 12, INF, (10 * n + 5, 10 * n + 12)),), 10 * n, 10 * n
        )
        for n in range(4)
    ]
    assert cut_of(None, manifests[:3], 30) is None, "half of the first batch is dead, and soon all of it"
    assert cut_of(None, manifests, 30) is None, "the second batch ends where the stable point is not yet"
    later = [*manifests, replace(manifests[3], batch=4, stable=40, stable_point=40)]
    assert cut_of(None, later, 40) == Cut(0, folds=False)
