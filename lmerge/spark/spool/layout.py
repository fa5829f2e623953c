"""Names the files of a spool. Called by the other modules of the package.

There is one folder for each query, beside its checkpoint::

    batches/<batch>/<partition>-<attempt>-<token>.part        element messages of one attempt
    said/<partition>/<batch>-<attempt>-<token>.delta|.whole   the keyed state: see ``published_state``
    manifests/<batch>.json                                    the parts that won, the stable, the stream's identity
    live/<batch>.snapshot                                     the live events after all batches up to this one
    life.json                                                 the incarnation of the newest publisher

Each attempt's files have unique names, so an abandoned task that still writes cannot damage a committed file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

BATCHES: Final = "batches"
MANIFESTS: Final = "manifests"
SNAPSHOTS: Final = "live"
LIFE: Final = "life.json"


def part_name(batch: int, partition: int, attempt: int) -> str:
    """Return a new name for the part of an attempt."""
    return f"{BATCHES}/{batch}/{partition}-{attempt}-{token()}.part"


def state_folder(partition: int) -> str:
    """Return the folder of the keyed state of a partition."""
    return f"said/{partition}"


def state_name(partition: int, batch: int, attempt: int, kind: str) -> str:
    """Return a new name for a file of the keyed state. ``kind``: ``delta`` or ``whole``."""
    return f"{state_folder(partition)}/{batch}-{attempt}-{token()}.{kind}"


def manifest_name(batch: int) -> str:
    """Return the name of the manifest of a batch."""
    return f"{MANIFESTS}/{batch}.json"


def snapshot_name(batch: int) -> str:
    """Return the name of the snapshot of the live events after a batch."""
    return f"{SNAPSHOTS}/{batch}.snapshot"


def batch_numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the numbers of the files in ``names`` that are a number and ``suffix``, in order."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def number_of(name: str) -> int | None:
    """Return the number at the start of a name, or None if the name starts with no digit."""
    digits = ""
    for letter in name:
        if not letter.isdigit():
            break
        digits += letter
    return int(digits) if digits else None


def token() -> str:
    """Return a random token for a file name. It keeps an abandoned attempt from overwriting its successor's file."""
    return os.urandom(6).hex()
