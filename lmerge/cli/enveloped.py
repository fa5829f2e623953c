"""How ``lmerge subscribe --envelope`` prints deliveries: JSON lines, or columns for people.

One line a change, then one with the token of the stable point:
    {"op":"final","vs":1,"ve":9,"payload":"A"}          with a schema "row" instead of "payload"
    {"op":"upsert","vs":1,"ve":9,"ordinal":0,"final":false,"payload":"A"}   {"op":"delete","vs":1,"ordinal":0,...}
    {"op":"+","vs":1,"ve":9,"payload":"A"}              {"op":"-",...}
    {"op":"gap","start":10,"end":20}                    {"op":"token","token":"flights@12"}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from lmerge.core.elements import show_payload, show_time

if TYPE_CHECKING:
    from lmerge.client import Delivery, Subscriber


class EnvelopeName(str, Enum):
    """What ``--envelope`` takes."""

    ELEMENTS = "elements"
    FINAL = "final"
    UPSERT = "upsert"
    RETRACT = "retract"


def delivered(subscriber: Subscriber, envelope: EnvelopeName) -> Iterator[Delivery[Any]]:
    """The stream in the envelope that a user named."""
    if envelope is EnvelopeName.FINAL:
        return subscriber.final()
    return subscriber.upserts() if envelope is EnvelopeName.UPSERT else subscriber.retracts()


def lines_of(delivery: Delivery[Any]) -> Iterator[dict[str, Any]]:
    """What a delivery says, one dictionary a line."""
    for gap in delivery.gaps:
        yield {"op": "gap", "start": time_of(gap.start), "end": time_of(gap.end)}
    for change in delivery.changes:
        yield change_of(change)
    if delivery.token is not None:
        yield {"op": "token", "token": delivery.token}


def change_of(change: Any) -> dict[str, Any]:
    """A change of any envelope."""
    from lmerge.client import Delete, FinalEvent, Upsert

    if isinstance(change, FinalEvent):
        said: dict[str, Any] = {"op": "final", "vs": time_of(change.vs), "ve": time_of(change.ve)}
    elif isinstance(change, Upsert):
        vs, payload, ordinal = change.key
        said = {"op": "upsert", "vs": time_of(vs), "ve": time_of(change.ve), "ordinal": ordinal}
        return said | {"final": change.is_final} | content(payload, change.row)
    elif isinstance(change, Delete):
        return {"op": "delete", "vs": time_of(change.key.vs), "ordinal": change.key.ordinal} | content(
            change.key.payload, None)
    else:
        said = {"op": change.op, "vs": time_of(change.vs), "ve": time_of(change.ve)}
    return said | content(change.payload, change.row)


def content(payload: bytes, row: dict[str, Any] | None) -> dict[str, Any]:
    """The row where there is one, otherwise the payload as recorded sessions have it."""
    if row is not None:
        return {"row": row}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": {"b64": base64.b64encode(payload).decode()}}


def time_of(t: int) -> int | str:
    """A time as JSON lines have it."""
    words = show_time(t)
    return words if words.endswith("inf") else t


def as_json(said: Iterable[dict[str, Any]]) -> str:
    """Lines for programs. Dates and decimals become text, bytes base64."""
    return "".join(f"{json.dumps(line, default=plain, ensure_ascii=False, separators=(',', ':'))}\n" for line in said)


def as_columns(said: Iterable[dict[str, Any]]) -> str:
    """Lines for people: op, vs, ve, what."""
    return "".join(f"{_in_columns(line)}\n" for line in said)


def plain(value: object) -> str:
    """A value that JSON has no form for."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _in_columns(line: dict[str, Any]) -> str:
    if line["op"] == "token":
        return f"-- {line['token']}"
    if line["op"] == "gap":
        return f"-- events that ended from {line['start']} to {line['end']} may be missing"
    what = line["row"] if "row" in line else line["payload"]
    text = " ".join(f"{k}={v}" for k, v in what.items()) if isinstance(what, dict) else show_payload(what.encode())
    final = " final" if line.get("final") else ""
    return f"{line['op']:<7}{line['vs']!s:>20}{line.get('ve', '')!s:>20}  {text}{final}"
