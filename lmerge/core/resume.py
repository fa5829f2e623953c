"""Resumes a merge where another one ended: the new merge has emitted exactly this output, and has no inputs.

No state of inputs is needed. A replica that attaches again delivers its live events (V.B). So the live output, the
stable point and the fence of incarnations are enough. The emitted events are in the index as the output's own entries.
A replica that repeats an event changes nothing, and one that has another end adjusts it as before.

* R3 and R4: the live events are the output's entries of the nodes; no input has an entry.
* R0-R2: MaxVs and the elements emitted there follow from the live events; below the stable point nothing is emitted
  (see ``insert_only``). R1 needs the events at MaxVs in the order in which they were emitted: ``emitted_events``
  returns them in that order. R2 counts copies if a payload comes twice there, else it uses the key, until an input
  attaches that promises none.
* Final-only shows events before its stable point reaches them, and its index forgets them then. A resumed merge begins
  at that stable point with an empty index, and would emit them again: ``emitted.EmittedOutput`` drops these repeats.

The state is built as a snapshot and loaded as one, so both engines support it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import b2a_base64
from collections import Counter
from collections.abc import Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final

from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INSERT, NEG_INF, STABLE, Event, show_time
from lmerge.core.engines import selection
from lmerge.core.engines.python_engine import ALGORITHMS
from lmerge.core.merge import Merge
from lmerge.core.merge_config import DEFAULTS, MergeConfig
from lmerge.core.policy import Show
from lmerge.core.properties import R3_MINUS, Case
from lmerge.core.snapshot import merge_of
from lmerge.errors import UsageError

KEEPS_ORDER: Final = Case.R1.algorithm  # the algorithm that needs the order of the emitted events


class OutputReplay:
    """Rebuilds the live output of a merge from the output that it has emitted. ``running``: its algorithm."""

    def __init__(self, running: str, engine: str = selection.AUTO) -> None:
        self._tdb = selection.live_tdb("output", engine)
        self._keeps_order = running == KEEPS_ORDER
        self._slot: list[Row] = []  # the elements emitted at MaxVs, in order

    @property
    def stable_point(self) -> int:
        return self._tdb.stable_point

    def add(self, batch: AnyBatch) -> None:
        """Add the next output batch of the merge. Raises InputViolation if it breaks a rule of streams."""
        self._tdb.apply_batch(batch)
        if self._keeps_order:
            for row in batch.rows():
                if row[0] == INSERT:
                    if self._slot and row[1] > self._slot[0][1]:
                        self._slot = []
                    self._slot.append(row)

    def live_events(self) -> AnyBatch:
        """Return what ``emitted_events`` of the merge would return."""
        builder = BatchBuilder()
        slot = self._slot if self._slot and self._slot[0][1] >= self.stable_point else []
        for vs, payload, ve in self._tdb.live_events():
            if not slot or vs != slot[0][1]:
                builder.insert(payload, vs, ve)
        builder.rows += slot
        if self.stable_point > NEG_INF:
            builder.stable(self.stable_point)
        return builder.build()


def emitted_events(merge: Merge) -> AnyBatch:
    """Return ``Merge.live_events`` for ``resumed``: under R1 those at MaxVs in the order in which they were emitted."""
    live = merge.live_events()
    if merge.algorithm != KEEPS_ORDER:
        return live
    state = {name: json.loads(text) for name, text in merge._engine.state().items()}
    max_vs = state["max_vs"]
    if max_vs < merge.stable_point or not state["slot"]:
        return live
    builder = BatchBuilder()
    builder.rows = [row for row in live.rows() if row[0] == INSERT and row[1] != max_vs]
    for payload, ve in state["slot"]:
        builder.insert(b64decode(payload), max_vs, ve)
    builder.rows += [row for row in live.rows() if row[0] == STABLE]
    return builder.build()


def resumed(
    live: AnyBatch,
    stable_point: int,
    running: str,
    config: MergeConfig = DEFAULTS,
    *,
    incarnations: Mapping[str, int] | None = None,
    right_from: int = NEG_INF,
) -> Merge:
    """Return a merge that has emitted exactly this output and has no inputs. Used after a restart.

    ``live``: its live events at ``stable_point``, from ``emitted_events`` or ``OutputReplay``.
    ``running``: the algorithm that ran. ``config``: of the merge that continues. ``incarnations``: the fence.
    ``right_from``: the largest join_at of an input that was admitted before it. Raises UsageError if such a merge
    cannot have emitted this output, or if the configuration does not allow it to continue.
    """
    fresh = Merge(config)
    running = _algorithm_of(fresh, running)
    inserts = [row for row in live.rows() if row[0] == INSERT]
    events = sorted((vs, payload, ve) for _, vs, ve, _, payload in inserts if ve > vs)
    _check_events(events, stable_point, running)
    is_final = fresh.policy.show is Show.FINAL
    indexed = ALGORITHMS[running].case >= Case.R3
    tracks_apart = fresh.track_live and (is_final or not indexed)
    plain = [[vs, _text(payload), ve] for vs, payload, ve in events] if tracks_apart or is_final else []
    document = {
        "version": 1,
        "settings": {
            "algorithm": config.algorithm,
            "policy": str(fresh.policy),
            "closing": str(fresh.closing),
            "allow_downgrade": config.allow_downgrade,
            "track_live": config.track_live,
        },
        "refused": 0,
        "late": 0,
        "received": [0, 0, 0],
        "emitted": [len(inserts), 0, int(stable_point > NEG_INF)],
        "started": bool(inserts) or stable_point > NEG_INF,
        "incarnations": dict(incarnations or {}),
        "inputs": [],
        "algorithm": {
            "name": running,
            "reason": f"{running} ran when the merge ended",
            "max_stable": stable_point,
            "announced": stable_point,
            **({"right_from": right_from} if right_from > stable_point else {}),
            **_state(running, [] if is_final else events, inserts, stable_point),
        },
        "live": ([] if is_final else plain) if tracks_apart else None,
        **({"said": plain} if is_final and plain else {}),
    }
    return merge_of(document, config.engine, config.shards)


def _algorithm_of(fresh: Merge, running: str) -> str:
    """Return ``running``, or a more general algorithm if the settings need one. Raises UsageError if they need less."""
    if running not in ALGORITHMS or running == R3_MINUS:
        raise UsageError(f"cannot resume a merge that ran {running!r}")
    if fresh.fixed is not None and ALGORITHMS[fresh.algorithm].case < ALGORITHMS[running].case:
        raise UsageError(
            f"cannot resume: the merge ran {running}, and the algorithm is fixed to {fresh.fixed}, which is less "
            "general"
        )
    return max(running, fresh.algorithm)  # r0 < r1 < ... as text too


def _check_events(events: list[tuple[int, bytes, int]], stable_point: int, running: str) -> None:
    first = min(events, key=itemgetter(2), default=None)
    if first is not None and first[2] < stable_point:
        raise UsageError(
            f"cannot resume at {show_time(stable_point)}: {Event(*first)} is not live there, it is fully frozen"
        )
    if running == Case.R3.algorithm:
        for one, other in pairwise(events):
            if one[:2] == other[:2]:
                raise UsageError(f"cannot resume {running}: {Event(*one)} and {Event(*other)} have the same key")


def _state(running: str, events: list[tuple[int, bytes, int]], inserts: list[Row], stable_point: int) -> dict[str, Any]:
    """Return the snapshot fields of the running algorithm."""
    if running == Case.R3.algorithm:
        return {"slots": 0, "nodes": [[vs, _text(payload), ve] for vs, payload, ve in events]}
    if running == Case.R4.algorithm:
        same = groupby(events, key=itemgetter(0, 1))
        return {"slots": 0, "nodes": [[vs, _text(payload), [e[2] for e in of]] for (vs, payload), of in same]}
    max_vs = max((row[1] for row in inserts), default=NEG_INF)
    slot = [(_text(payload), ve) for _, vs, ve, _, payload in inserts if vs == max_vs]
    if running == Case.R0.algorithm:
        return {"max_vs": max_vs, "last": slot[-1] if slot else None}
    if running == KEEPS_ORDER:
        if max_vs < stable_point:  # nothing more is emitted there, and the order in which it was emitted is not known
            return {"max_vs": stable_point, "slot": []}
        return {"max_vs": max_vs, "slot": slot}
    ends = dict(sorted(slot))
    if len(ends) < len(slot):
        return {"max_vs": max_vs, "hash": [], "copies": [[*element, n] for element, n in sorted(Counter(slot).items())]}
    return {"max_vs": max_vs, "hash": [[payload, 0] for payload in ends], "ends": list(ends.values())}


def _text(payload: bytes) -> str:
    """Return a payload as snapshots store it. A restart calls this a hundred thousand times."""
    return b2a_base64(payload, newline=False).decode()
