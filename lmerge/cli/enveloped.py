"""The output of ``lmerge subscribe --envelope``: deliveries as JSON lines, or as columns for people.

One line for each change, then one with the token of the stable point:
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
    """Values of ``--envelope``."""

    ELEMENTS = "elements"
    FINAL = "final"
    UPSERT = "upsert"
    RETRACT = "retract"


def delivered(subscriber: Subscriber, envelope: EnvelopeName) -> Iterator[Delivery[Any]]:
    """Return the stream of a subscriber in the envelope that the user chose."""
    if envelope is EnvelopeName.FINAL:
        return subscriber.final()
    return subscriber.upserts() if envelope is EnvelopeName.UPSERT else subscriber.retracts()


def lines_of(delivery: Delivery[Any]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary for each line of a delivery."""
    for gap in delivery.gaps:
        yield {"op": "gap", "start": time_of(gap.start), "end": time_of(gap.end)}
    for change in delivery.changes:
        yield change_of(change)
    if delivery.token is not None:
        yield {"op": "token", "token": delivery.token}


def change_of(change: Any) -> dict[str, Any]:
    """Return the line of a change of any envelope."""
    from lmerge.client import Delete, FinalEvent, Upsert

    if isinstance(change, FinalEvent):
        line: dict[str, Any] = {"op": "final", "vs": time_of(change.vs), "ve": time_of(change.ve)}
    elif isinstance(change, Upsert):
        vs, payload, ordinal = change.key
        line = {"op": "upsert", "vs": time_of(vs), "ve": time_of(change.ve), "ordinal": ordinal}
        return line | {"final": change.is_final} | content(payload, change.row)
    elif isinstance(change, Delete):
        return {"op": "delete", "vs": time_of(change.key.vs), "ordinal": change.key.ordinal} | content(
            change.key.payload, None
        )
    else:
        line = {"op": change.op, "vs": time_of(change.vs), "ve": time_of(change.ve)}
    return line | content(change.payload, change.row)


def content(payload: bytes, row: dict[str, Any] | None) -> dict[str, Any]:
    """Return the row if there is one, otherwise the payload in the form of recorded sessions."""
    if row is not None:
        return {"row": row}
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload": {"b64": base64.b64encode(payload).decode()}}


def time_of(t: int) -> int | str:
    """Return a time in the form of JSON lines."""
    text = show_time(t)
    return text if text.endswith("inf") else t


def as_json(lines: Iterable[dict[str, Any]]) -> str:
    """Return lines for programs. Dates and decimals become text, bytes become base64."""
    return "".join(f"{json.dumps(line, default=plain, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)


def as_columns(lines: Iterable[dict[str, Any]]) -> str:
    """Return lines for people: op, vs, ve, content."""
    return "".join(f"{_in_columns(line)}\n" for line in lines)


def plain(value: object) -> str:
    """Return the JSON form of a value that JSON does not have."""
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
