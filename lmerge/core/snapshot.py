"""Snapshots: a whole merge as bytes, and back.

JSON with sorted keys, payloads in base64: readable, the same bytes for equal merges, and the same for every
implementation of the core. Derived things (calendars, due times) are not stored; they follow from the entries.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from lmerge.core import properties as props
from lmerge.core.inputs import Input
from lmerge.core.tdb import Tdb
from lmerge.errors import UsageError

if TYPE_CHECKING:
    from lmerge.core.merge import Merge

VERSION: Final = 1

_PLAIN_FIELDS: Final = (
    "name", "incarnation", "slot", "join_at", "role", "joined", "stable", "last_vs", "tie_count",
    "inserts", "adjusts", "stables", "late", "won",
)


def dump(merge: Merge) -> bytes:
    """The snapshot of ``merge``."""
    document = {
        "version": VERSION,
        "settings": {
            "algorithm": merge.fixed or "auto", "policy": str(merge.policy), "closing": str(merge.closing),
            "allow_downgrade": merge.allow_downgrade, "track_live": merge.track_live,
        },
        "refused": merge.refused,
        "late": merge.late,
        "received": list(merge.received),
        "emitted": list(merge.emitted),
        "started": merge._started,
        "incarnations": merge._incarnations,
        "inputs": [_dump_input(inp) for inp in merge._inputs.values()],
        "algorithm": {"name": merge.algorithm, "reason": merge.algorithm_reason, **merge._algorithm.state()},
        "live": None if merge._live is None else _dump_live(merge._live),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def load(data: bytes) -> Merge:
    """The merge of a snapshot. Raises UsageError if ``data`` is none."""
    from lmerge.core.merge import ALGORITHMS, Counts, Merge

    try:
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise UsageError(f"cannot restore: this is not a snapshot of version {VERSION}")
        settings = document["settings"]
        merge = Merge(
            settings["algorithm"], settings["policy"], settings["closing"],
            allow_downgrade=settings["allow_downgrade"], track_live=settings["track_live"],
        )
        merge.refused, merge.late = document["refused"], document["late"]
        merge.received, merge.emitted = Counts(*document["received"]), Counts(*document["emitted"])
        merge._started = document["started"]
        merge._incarnations = dict(document["incarnations"])
        for fields in document["inputs"]:
            merge._inputs[fields["name"]] = _load_input(fields)
        state = document["algorithm"]
        algorithm = ALGORITHMS[state["name"]](merge._inputs, merge.policy, merge.closing)
        algorithm.load(state)
        merge._algorithm, merge.algorithm_reason = algorithm, state["reason"]
        merge._live = None if document["live"] is None else _load_live(document["live"], algorithm.announced)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise UsageError(f"cannot restore: the snapshot is damaged ({problem!r})") from problem
    return merge


def _dump_input(inp: Input) -> dict[str, Any]:
    fields = {name: getattr(inp, name) for name in _PLAIN_FIELDS}
    fields["promised"] = sorted(inp.promised)
    fields["demanded"] = sorted(inp.demanded)
    fields["at_last_vs"] = _dump_counter(inp.at_last_vs)
    fields["passed_over"] = _dump_counter(inp.passed_over)
    fields["waiting"] = [[*row[:4], b64encode(row[4]).decode()] for row in inp.waiting]
    return fields


def _load_input(fields: dict[str, Any]) -> Input:
    plain = {name: fields[name] for name in _PLAIN_FIELDS}
    inp = Input(promised=props.parse_properties(fields["promised"]), demanded=frozenset(fields["demanded"]), **plain)
    inp.at_last_vs = _load_counter(fields["at_last_vs"])
    inp.passed_over = _load_counter(fields["passed_over"])
    inp.waiting = [(kind, vs, ve, vold, b64decode(payload)) for kind, vs, ve, vold, payload in fields["waiting"]]
    return inp


def _dump_counter(elements: Counter[tuple[bytes, int]]) -> list[list[Any]]:
    return sorted([b64encode(payload).decode(), ve, count] for (payload, ve), count in elements.items() if count)


def _load_counter(rows: list[list[Any]]) -> Counter[tuple[bytes, int]]:
    return Counter({(b64decode(payload), ve): count for payload, ve, count in rows})


def _dump_live(live: Tdb) -> list[list[Any]]:
    return [[event.vs, b64encode(event.payload).decode(), event.ve] for event in live.live_events()]


def _load_live(events: list[list[Any]], stable_point: int) -> Tdb:
    live = Tdb("output", keep_frozen=False, stable_point=stable_point)
    for vs, payload, ve in events:
        live.enter(vs, b64decode(payload), ve)
    return live
