"""Reads and writes recorded sessions, the public JSON-lines format (docs/session-format.md).

One object per line. ``replay`` runs a session through a merge, ``serve --record`` writes one, ``publish`` reads element
lines, and other programs produce input for all of them. The format is strict, so a mistake is reported on its line.

    {"op":"attach","input":"a","properties":["insert-only","ordered"],"join_at":null,"role":"active"}
    {"op":"insert","input":"a","payload":"A","vs":6,"ve":7}
    {"op":"adjust","input":"a","payload":"A","vs":6,"vold":7,"ve":12}
    {"op":"stable","input":"a","vc":11}
    {"op":"admit","input":"a"}
    {"op":"excuse","input":"a"}
    {"op":"detach","input":"a"}

``admit``: an input that is right only from its ``join_at`` on counts from here, although the merge has not reached that
time (``Merge.admit``). A server whose first input joins late begins in this way. ``excuse``: the lead of others is not
measured by the input until it has a new stable point (``Merge.excuse``).

A payload is a string (its UTF-8 bytes) or ``{"b64": "..."}``. A time is a 64-bit integer, ``"inf"`` or ``"-inf"``.
Lines of a stream, such as the output, have no ``input``. Blank lines are skipped. Unknown keys are an error.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lmerge.core.batch import Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.core.inputs import InputRole
from lmerge.core.properties import Properties, parse_properties
from lmerge.errors import MalformedLine, UsageError


@dataclass(frozen=True, slots=True)
class AttachLine:
    """An input attaches."""

    input: str
    properties: Properties
    join_at: int | None
    role: InputRole


@dataclass(frozen=True, slots=True)
class AdmitLine:
    """A joining input counts from now on."""

    input: str


@dataclass(frozen=True, slots=True)
class ExcuseLine:
    """The lead of others is not measured by an input for now."""

    input: str


@dataclass(frozen=True, slots=True)
class DetachLine:
    """An input leaves."""

    input: str


@dataclass(frozen=True, slots=True)
class ElementLine:
    """An element, as a row; ``input`` is None in the lines of a stream."""

    input: str | None
    row: Row


Line: TypeAlias = AttachLine | AdmitLine | ExcuseLine | DetachLine | ElementLine

_KEYS: Final = {
    "attach": ({"op", "input"}, {"properties", "join_at", "role"}),
    "admit": ({"op", "input"}, set[str]()),
    "excuse": ({"op", "input"}, set[str]()),
    "detach": ({"op", "input"}, set[str]()),
    "insert": ({"op", "payload", "vs", "ve"}, {"input"}),
    "adjust": ({"op", "payload", "vs", "vold", "ve"}, {"input"}),
    "stable": ({"op", "vc"}, {"input"}),
}
_BARE: Final[dict[str, type[AdmitLine] | type[ExcuseLine] | type[DetachLine]]] = {
    "admit": AdmitLine,
    "excuse": ExcuseLine,
    "detach": DetachLine,
}
_INFINITIES: Final = {"inf": INF, "-inf": NEG_INF}


def parse_line(text: str | bytes, line: int) -> Line | None:
    """Return the parsed line, None if it is blank. Raises MalformedLine with the line number and the problem."""
    if not text.strip():
        return None
    try:
        item = _decode(text if isinstance(text, str) else text.decode())
    except UnicodeDecodeError as problem:
        raise MalformedLine(line, f"not UTF-8: {problem.reason} at byte {problem.start}") from None
    except RecursionError:
        raise MalformedLine(line, "not a session line: nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise MalformedLine(line, f"not JSON: {problem.msg} at column {problem.colno}") from None
    except ValueError as problem:
        raise MalformedLine(line, str(problem)) from None
    try:
        return _line_of(item)
    except UsageError as problem:
        raise MalformedLine(line, str(problem)) from None


def format_row(row: Row, input_name: str | None = None) -> str:
    """Return an element as a line, without the line end."""
    kind, vs, ve, vold, payload = row
    name = "" if input_name is None else f',"input":{_quoted(input_name)}'
    if kind == INSERT:
        return f'{{"op":"insert"{name},"payload":{_payload_text(payload)},"vs":{_time_text(vs)},"ve":{_time_text(ve)}}}'
    if kind == ADJUST:
        times = f'"vs":{_time_text(vs)},"vold":{_time_text(vold)},"ve":{_time_text(ve)}'
        return f'{{"op":"adjust"{name},"payload":{_payload_text(payload)},{times}}}'
    return f'{{"op":"stable"{name},"vc":{_time_text(vs)}}}'


def format_attach(
    input_name: str, properties: Iterable[str] = (), join_at: int | None = None, role: str = InputRole.ACTIVE
) -> str:
    """Return an attach line."""
    names = json.dumps(sorted(properties), separators=(",", ":"))
    at = "null" if join_at is None else _time_text(join_at)
    return f'{{"op":"attach","input":{_quoted(input_name)},"properties":{names},"join_at":{at},"role":{_quoted(role)}}}'


def format_admit(input_name: str) -> str:
    """Return an admit line."""
    return f'{{"op":"admit","input":{_quoted(input_name)}}}'


def format_excuse(input_name: str) -> str:
    """Return an excuse line."""
    return f'{{"op":"excuse","input":{_quoted(input_name)}}}'


def format_detach(input_name: str) -> str:
    """Return a detach line."""
    return f'{{"op":"detach","input":{_quoted(input_name)}}}'


def format_detached(input_name: str, reason: str) -> str:
    """Return the line that ``replay`` prints about an input that broke its promise."""
    return f'{{"op":"detached","input":{_quoted(input_name)},"reason":{_quoted(reason)}}}'


def format_event(vs: int, payload: bytes, ve: int) -> str:
    """Return a row of a TDB, as ``lmerge tdb`` prints it."""
    return f'{{"payload":{_payload_text(payload)},"vs":{_time_text(vs)},"ve":{_time_text(ve)}}}'


def _line_of(item: Any) -> Line:
    if not isinstance(item, dict):
        raise UsageError(f"a line must be a JSON object, not {_type_name(item)}")
    op = item.get("op")
    if not isinstance(op, str) or op not in _KEYS:
        raise UsageError(f'"op" must be one of {", ".join(_KEYS)}, not {json.dumps(op)}')
    needed, optional = _KEYS[op]
    missing, unknown = sorted(needed - item.keys()), sorted(item.keys() - needed - optional)
    if missing:
        raise UsageError(f'{op} needs "{missing[0]}"')
    if unknown:
        raise UsageError(f'{op} has an unknown key "{unknown[0]}"')
    name = _name_of(op, item) if "input" in item else None
    if op == "attach":
        assert name is not None
        return _attach_of(name, item)
    if op in _BARE:
        assert name is not None
        return _BARE[op](name)
    if op == "stable":
        return ElementLine(name, (STABLE, _time_of("vc", item), 0, 0, b""))
    payload, vs, ve = _payload_of(item["payload"]), _time_of("vs", item), _time_of("ve", item)
    if op == "insert":
        return ElementLine(name, (INSERT, vs, ve, 0, payload))
    return ElementLine(name, (ADJUST, vs, ve, _time_of("vold", item), payload))


def _attach_of(name: str, item: dict[str, Any]) -> AttachLine:
    properties = item.get("properties")
    properties = [] if properties is None else properties
    if not isinstance(properties, list) or not all(isinstance(text, str) for text in properties):
        raise UsageError('"properties" must be a list of strings')
    role = item.get("role")
    if role is not None and role not in tuple(InputRole):
        raise UsageError(f'"role" must be {" or ".join(InputRole)}, not {json.dumps(role)}')
    join_at = None if item.get("join_at") is None else _time_of("join_at", item)
    role = InputRole.ACTIVE if role is None else InputRole(role)
    return AttachLine(name, parse_properties(properties), join_at, role)


def _name_of(op: str, item: dict[str, Any]) -> str:
    name = item["input"]
    if not isinstance(name, str) or not name:
        raise UsageError(f'"input" of {op} must be a name, not {json.dumps(name)}')
    _encoded(name, "input")
    return name


def _time_of(key: str, item: dict[str, Any]) -> int:
    value = item[key]
    if type(value) is int:  # not isinstance: a boolean is no time
        if NEG_INF <= value <= INF:
            return value
        raise UsageError(f'"{key}" is out of the 64-bit range: {value}')
    if isinstance(value, str) and value in _INFINITIES:
        return _INFINITIES[value]
    raise UsageError(f'"{key}" must be a whole number, "inf" or "-inf", not {json.dumps(value)}')


def _payload_of(value: Any) -> bytes:
    if isinstance(value, str):
        return _encoded(value, "payload")
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return b64decode(value["b64"], validate=True)
        except (Base64Error, ValueError) as problem:
            raise UsageError(f'"payload" is not base64: {problem}') from None
    raise UsageError(f'"payload" must be a string or {{"b64": "..."}}, not {_type_name(value)}')


def _encoded(text: str, key: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f'"{key}" holds half of a surrogate pair, which has no UTF-8; use {{"b64": "..."}}') from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    item = dict(pairs)
    if len(item) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f'the key "{next(key for key in keys if keys.count(key) > 1)}" is there twice')
    return item


_decode: Final = json.JSONDecoder(object_pairs_hook=_no_repeats).decode  # made once: json.loads makes one per call


def _payload_text(payload: bytes) -> str:
    try:
        return _quoted(payload.decode("utf-8"))
    except UnicodeDecodeError:
        return f'{{"b64":"{b64encode(payload).decode()}"}}'


def _time_text(t: int) -> str:
    if t == INF:
        return '"inf"'
    if t == NEG_INF:
        return '"-inf"'
    return str(t)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
