"""Snapshots: writes a whole merge as bytes, and restores it.

A snapshot is JSON with sorted keys, payloads in base64. It is readable, has the same bytes for equal merges, and the
same bytes from every engine, so a snapshot of one engine can be restored on another. Derived state (calendars, due
times) is not stored where it follows from the entries. The engine and the number of shards change no output and are
not stored either.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any, Final

from lmerge.core import properties as props
from lmerge.core.elements import INF, NEG_INF, Event
from lmerge.core.emitted import EmittedOutput
from lmerge.core.engines.python_engine import ALGORITHMS
from lmerge.core.fence import IncarnationFence
from lmerge.core.inputs import NEVER, Input, InputRole
from lmerge.core.merge import Counts, Merge
from lmerge.core.merge_config import AUTO, MergeConfig
from lmerge.core.properties import Case
from lmerge.core.snapshot_text import json_array, json_object, json_text
from lmerge.errors import UsageError

VERSION: Final = 1

_NUMBERS: Final = (
    "incarnation",
    "slot",
    "stable",
    "last_vs",
    "tie_count",
    "inserts",
    "adjusts",
    "stables",
    "late",
    "won",
)
_PLAIN_FIELDS: Final = ("name", "join_at", "role", "joined", *_NUMBERS)


def snapshot_of(merge: Merge) -> bytes:
    """Return the snapshot of ``merge``."""
    return _document(merge, merge._engine.state())


def packed_snapshot_of(merge: Merge) -> tuple[bytes, bytes]:
    """Return a snapshot in two parts: one without the nodes of the index, and these as ``node_block`` describes.

    Writing and restoring it takes a fraction of the time. Equal merges may give other bytes. The second part is empty
    where the engine or the algorithm has no such form; the first one is then a whole snapshot.
    """
    block = merge._engine.node_block()
    return _document(merge, merge._engine.state(with_nodes=block is None)), block or b""


def _document(merge: Merge, state: dict[str, bytes]) -> bytes:
    engine = merge._engine
    plain = {
        "version": VERSION,
        "settings": {
            "algorithm": merge.fixed or AUTO,
            "policy": str(merge.policy),
            "closing": str(merge.closing),
            "allow_downgrade": merge.allow_downgrade,
            "track_live": merge.track_live,
        },
        "refused": merge.refused,
        "late": merge.late,
        "received": list(merge.received),
        "emitted": list(merge.emitted),
        "started": merge._started,
        "incarnations": merge._fence.newest,
    }
    running = {"name": merge.algorithm, "reason": merge.algorithm_reason}
    inputs = [json_object(_texts(_plain_input(inp)) | engine.input_state(inp)) for inp in merge._inputs.values()]
    return json_object(
        {
            **_texts(plain),
            "inputs": json_array(inputs),
            "algorithm": json_object(_texts(running) | state),
            "live": engine.live_state(),
            **({"said": json_text(merge._emitted_before.dump())} if merge._emitted_before else {}),
        }
    )


def restored(data: bytes, engine: str = "auto", shards: int = 1) -> Merge:
    """Return the merge of a snapshot, on this engine. Raises UsageError if ``data`` is no snapshot."""
    try:
        document = json.loads(data)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"cannot restore: the snapshot is damaged ({problem!r})") from problem
    return merge_of(document, engine, shards)


def restored_packed(data: bytes, block: bytes, engine: str = "auto") -> Merge:
    """Return the merge of ``packed_snapshot_of``, on this engine. Raises UsageError if the parts are no snapshot."""
    try:
        document = json.loads(data)
        if block:
            document["algorithm"]["block"] = block
    except (TypeError, ValueError, LookupError) as problem:
        raise UsageError(f"cannot restore: the snapshot is damaged ({problem!r})") from problem
    return merge_of(document, engine, 1)


def merge_of(document: Any, engine: str, shards: int) -> Merge:
    """Return the merge of a parsed snapshot. Raises UsageError if the snapshot is damaged."""
    try:
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise UsageError(f"cannot restore: this is not a snapshot of version {VERSION}")
        settings = document["settings"]
        merge = Merge(
            MergeConfig(
                settings["algorithm"],
                settings["policy"],
                settings["closing"],
                allow_downgrade=settings["allow_downgrade"],
                track_live=settings["track_live"],
                engine=engine,
                shards=shards,
            )
        )
        merge.refused, merge.late = document["refused"], document["late"]
        merge.received, merge.emitted = Counts(*document["received"]), Counts(*document["emitted"])
        merge._started = document["started"]
        merge._fence = IncarnationFence(dict(document["incarnations"]))
        inputs = {fields["name"]: fields for fields in document["inputs"]}
        merge._inputs.update({name: _load_input(fields) for name, fields in inputs.items()})
        state = dict(document["algorithm"])
        _check_slots(merge, state.get("slots", 0))
        name, merge.algorithm_reason = state.pop("name"), state.pop("reason")
        if name == Case.R2.algorithm and "ends" not in state and "copies" not in state:
            state["ends"] = _ends_of_earlier(document)
        if shards > 1 and ALGORITHMS[name].case < Case.R3:
            raise UsageError(f"cannot restore with {shards} shards: {name} runs, which keeps no index to share out")
        merge._engine.load(name, state, document["live"], inputs)
        merge._emitted_before = load_emitted(document.get("said", []))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise UsageError(f"cannot restore: the snapshot is damaged ({problem!r})") from problem
    return merge


def load_emitted(rows: list[list[Any]]) -> EmittedOutput:
    """Return what ``EmittedOutput.dump`` wrote."""
    return EmittedOutput(Event(vs, b64decode(payload), ve) for vs, payload, ve in rows)


def _ends_of_earlier(document: dict[str, Any]) -> list[int]:
    """Return the ends of the events that R2 has output at MaxVs, for a snapshot of a version that did not write them.

    They come from the live events, in order of time. Where those are not tracked, they come from an input that has
    delivered the payload.
    """
    state = document["algorithm"]
    ends: dict[str, int] = {}
    for fields in document["inputs"]:
        if fields["last_vs"] == state["max_vs"]:
            ends |= {payload: ve for payload, ve, _ in fields["at_last_vs"] if ve > state["max_vs"]}
    ends |= {payload: ve for vs, payload, ve in document["live"] or () if vs == state["max_vs"]}
    return [ends.get(payload, INF) for payload, _ in state["hash"]]


def _check_slots(merge: Merge, width: int) -> None:
    """Check the slots of the inputs. Raises ValueError if they are impossible.

    A slot is the first free one, so it is less than the number of names. The check is needed because a large slot
    would allocate much memory.
    """
    slots = [inp.slot for inp in merge._inputs.values()]
    names = len(merge._fence.newest)
    if len(set(slots)) < len(slots) or not all(0 <= slot < names for slot in slots) or not 0 <= width <= names:
        raise ValueError("the slots of its inputs cannot be")


def _texts(fields: dict[str, Any]) -> dict[str, bytes]:
    return {name: json_text(value) for name, value in fields.items()}


def _plain_input(inp: Input) -> dict[str, Any]:
    fields = {name: getattr(inp, name) for name in _PLAIN_FIELDS} | {"slot": inp.place}
    # In snapshots, -inf as a number means an input without inserts.
    fields["last_vs"] = {NEVER: NEG_INF, NEG_INF: "-inf"}.get(inp.last_vs, inp.last_vs)
    excused = {"excused": True} if inp.excused else {}
    return fields | excused | {"promised": sorted(inp.promised), "demanded": sorted(inp.demanded)}


def _load_input(fields: dict[str, Any]) -> Input:
    plain = {name: fields[name] for name in _PLAIN_FIELDS}
    if fields["last_vs"] == "-inf":
        plain["last_vs"] = NEG_INF
    elif fields["last_vs"] == NEG_INF and not (fields["at_last_vs"] or fields["waiting"]):
        plain["last_vs"] = NEVER
    for name in ("join_at", *_NUMBERS):
        if not isinstance(plain[name], int) and not (name == "join_at" and plain[name] is None):
            raise ValueError(f"the {name} of input {plain['name']!r} is {plain[name]!r}")
    plain["waiting_bytes"] = sum(len(b64decode(row[4])) for row in fields.get("waiting", ()))
    plain["role"] = InputRole(plain["role"])
    plain["excused"] = fields.get("excused", False)
    if not isinstance(plain["excused"], bool):
        raise ValueError(f"whether input {plain['name']!r} is excused is {plain['excused']!r}")
    return Input(promised=props.parse_properties(fields["promised"]), demanded=frozenset(fields["demanded"]), **plain)
