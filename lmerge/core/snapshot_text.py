"""Builds the JSON text of a snapshot, with sorted keys, from fragments that engines write.

An engine writes each field as text, so the native core need not build Python values of a whole index first. This
module also dumps and loads the parts of the Python engine's state that are plain data.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from lmerge.core.delivered import Delivered
from lmerge.core.inputs import Input
from lmerge.core.tdb import Tdb


def json_text(value: Any) -> bytes:
    """Return ``value`` as JSON text of a snapshot."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def json_object(fields: Mapping[str, bytes]) -> bytes:
    """Return a JSON object whose values are JSON texts already."""
    return b"{" + b",".join(json_text(name) + b":" + fields[name] for name in sorted(fields)) + b"}"


def json_array(items: Iterable[bytes]) -> bytes:
    """Return a JSON array of values that are JSON texts already."""
    return b"[" + b",".join(items) + b"]"


def dump_input_state(inp: Input, max_stable: int) -> dict[str, Any]:
    """Return the state of an input under R0-R2 beyond its counters; ``delivered`` only where it is kept.

    ``passed_over`` is always empty. It is written because earlier versions require it.
    """
    order, marks = sorted(inp.tie_order, key=inp.tie_order.__getitem__), sorted(inp.tie_marks.items())
    kept = {} if inp.delivered is None else {"delivered": inp.delivered.dump(min(inp.stable, max_stable))}
    return kept | {
        "at_last_vs": _dump_counter(inp.at_last_vs),
        "passed_over": [],
        "waiting": [[*row[:4], b64encode(row[4]).decode()] for row in inp.waiting],
        **({"tie_order": order} if order else {}),
        **({"tie_marks": [list(mark) for mark in marks]} if marks else {}),
    }


def load_input_state(inp: Input, fields: Mapping[str, Any]) -> None:
    """Load what ``dump_input_state`` returned."""
    inp.at_last_vs = _load_counter(fields["at_last_vs"])
    inp.waiting = [(kind, vs, ve, vold, b64decode(payload)) for kind, vs, ve, vold, payload in fields["waiting"]]
    inp.tie_order = {place: at for at, place in enumerate(fields.get("tie_order", []))}
    inp.tie_marks = dict(fields.get("tie_marks", []))
    inp.delivered = Delivered.load(fields["delivered"]) if "delivered" in fields else None


def dump_live(live: Tdb) -> list[list[Any]]:
    """Return the live events of the output as plain data."""
    return [[event.vs, b64encode(event.payload).decode(), event.ve] for event in live.live_events()]


def load_live(events: list[list[Any]], stable_point: int) -> Tdb:
    """Return the live output TDB that ``dump_live`` wrote."""
    live = Tdb("output", keep_frozen=False, stable_point=stable_point)
    for vs, payload, ve in events:
        live.enter(vs, b64decode(payload), ve)
    return live


def _dump_counter(elements: Counter[tuple[bytes, int]]) -> list[list[Any]]:
    return sorted([b64encode(payload).decode(), ve, count] for (payload, ve), count in elements.items() if count)


def _load_counter(rows: list[list[Any]]) -> Counter[tuple[bytes, int]]:
    return Counter({(b64decode(payload), ve): count for payload, ve, count in rows})
