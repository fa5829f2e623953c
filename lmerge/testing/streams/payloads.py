"""Rows of any schema, from a seed: keys by their distribution, and values that are plain or at the ends of their types.

The first column that can be a key gets the keys, so that groups, joins and edges meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.values import NAN, Values
from lmerge.wire.schema import Column, Schema

KEY_TYPES: Final = ("int", "string", "bool", "timestamp", "date", "decimal")
FEW: Final = 3
SEVERAL: Final = 8
LONG_TEXT: Final = 64 * 1024
MISSING: Final = 0.15
"""How often a value that can be missing is."""
LONG_SHARE: Final = 0.02
"""How often an extreme text is long: a stream of long texts tests nothing but memory."""

_HOUR: Final = 3_600_000_000
_INTS: Final = (INF, NEG_INF, INF - 1, NEG_INF + 1, 2**53 + 1, 0)
_FLOATS: Final = (NAN, float("inf"), float("-inf"), 0.0, 5e-324, 1.7976931348623157e308)
_TEXTS: Final = ("", " ", "é", "\U0001f600", "\0", "x\n")


def key_place(schema: Schema) -> int | None:
    """Return the place of the column that has the keys, or None."""
    return next((at for at, column in enumerate(schema.columns) if column.type in KEY_TYPES), None)


def key_number(random: Random, keys: str, event: int) -> int:
    """Return the number of the key of an event. ``event``: its own number, for unique keys."""
    if keys == "unique":
        return event
    if keys == "few":
        return random.randrange(FEW)
    if keys == "uniform":
        return random.randrange(SEVERAL)
    weights = [1 / n for n in range(1, SEVERAL + 1)]
    point = random.random() * sum(weights)
    for number, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return number
    return SEVERAL - 1


def random_row(random: Random, schema: Schema, key: int, values: str) -> Values:
    """Return a row. ``key``: the number of its key; ``values``: a word of the facet."""
    place = key_place(schema)
    is_extreme = values == "extreme"
    return tuple(
        key_value(column, key) if at == place else random_value(random, column, is_extreme)
        for at, column in enumerate(schema.columns)
    )


def key_value(column: Column, number: int) -> Any:
    """Return the value of a key column by the key's number; those of a bool are two."""
    if column.type == "bool":
        return bool(number % 2)
    if column.type == "string":
        return "k" + str(number)
    if column.type == "decimal":
        return Decimal(number).scaleb(-column.scale) if column.scale else Decimal(number)
    return number * _HOUR if column.type == "timestamp" else number


def random_value(random: Random, column: Column, is_extreme: bool) -> Any:
    """Return a value of a column, in the form of ``lmerge.temporal.values``."""
    if column.nullable and random.random() < MISSING:
        return None
    if column.type == "list":
        return tuple(random_value(random, column.children[0], is_extreme) for _ in range(random.randrange(4)))
    if column.type == "struct":
        return tuple(random_value(random, child, is_extreme) for child in column.children)
    make = (_EXTREME if is_extreme else _PLAIN)[column.type]
    return make(random, column)


def _one_of(choices: tuple[Any, ...]) -> Callable[[Random, Column], Any]:
    return lambda random, column: choices[random.randrange(len(choices))]


def _rounded(random: Random, column: Column) -> float:
    return float(random.randrange(-8, 9)) / 2


def _exact(random: Random, column: Column) -> Decimal:
    return Decimal(random.randrange(-20, 21)).scaleb(-column.scale)


def _largest(random: Random, column: Column) -> Decimal:
    """Return a decimal near the ends: 18 digits before the point leave room for any scale."""
    number = (10**18, -(10**18), 1, 0)[random.randrange(4)]
    return Decimal(number).scaleb(-column.scale)


def _long_text(random: Random, column: Column) -> str:
    if random.random() < LONG_SHARE:
        return "é" * (LONG_TEXT // 2)
    return _TEXTS[random.randrange(len(_TEXTS))]


def _long_bytes(random: Random, column: Column) -> bytes:
    return b"\xff" * LONG_TEXT if random.random() < LONG_SHARE else (b"", b"\0", b"\xff\xfe")[random.randrange(3)]


def _extreme_float(random: Random, column: Column) -> float:
    if column.round_digits is not None:
        return _rounded(random, column)
    return _FLOATS[random.randrange(len(_FLOATS))]


_PLAIN: Final[Mapping[str, Callable[[Random, Column], Any]]] = {
    "bool": _one_of((False, True)),
    "int": _one_of((0, 1, 2, 3, 5, -1)),
    "float": _rounded,
    "string": _one_of(("x", "y", "é", "")),
    "bytes": _one_of((b"", b"a", b"\0b")),
    "timestamp": _one_of((0, _HOUR, 5 * _HOUR, 30 * _HOUR, -1)),
    "date": _one_of((0, 1, 30, -1)),
    "decimal": _exact,
}
_EXTREME: Final[Mapping[str, Callable[[Random, Column], Any]]] = {
    "bool": _one_of((False, True)),
    "int": _one_of(_INTS),
    "float": _extreme_float,
    "string": _long_text,
    "bytes": _long_bytes,
    "timestamp": _one_of((0, -62_135_596_800_000_000, 253_402_300_799_999_999, 1)),
    "date": _one_of((0, -719_162, 2_932_896, 1)),
    "decimal": _largest,
}
