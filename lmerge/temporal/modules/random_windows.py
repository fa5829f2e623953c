"""Random windows with events, by which modules are checked: few values and times, so that ties are common."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from lmerge.core.elements import INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.python_values import canonical_form
from lmerge.temporal.values import NAN, Values
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import Column, Schema

# Draws for each smaller case: with three events or fewer nearly all that there are.
DRAWS: Final = 16

_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "bool": (False, True),
    "int": (0, 1, 2, -3),
    "float": (0.0, 0.1, 0.2, -1.5, 1e16, NAN, math.inf),
    "string": ("A", "B", "C", ""),
    "bytes": (b"", b"a"),
    "timestamp": (0, 1_000_000),
    "date": (0, 1),
}


@dataclass(frozen=True)
class WindowCase:
    """A window with events that overlap it, and a seed for what else a check draws."""

    window: WindowDescriptor
    events: tuple[Lifetime, ...]
    seed: int

    def __str__(self) -> str:
        return f"in window {self.window} with {', '.join(map(str, self.events)) or 'no events'}"

    def without(self, place: int) -> Iterator[WindowCase]:
        """Yield the case with an event less, and with other draws beside it: a check may need other ones there."""
        events = self.events[:place] + self.events[place + 1 :]
        for seed in (self.seed, *range(DRAWS)):
            yield replace(self, events=events, seed=seed)


def random_case(random_: random.Random, rows: Sequence[Values], events_max: int) -> WindowCase:
    """Return a window with 1 to ``events_max`` events."""
    start = random_.randint(-3, 3)
    end = start + random_.randint(1, 8)
    events = []
    for _ in range(random_.randint(1, events_max)):
        vs = random_.randint(start - 4, end - 1)
        ve = INF if random_.random() < 0.1 else max(vs, start) + random_.randint(1, 6)
        events.append(Lifetime(random_.choice(rows), vs, ve))
    return WindowCase(WindowDescriptor(start, end), tuple(events), random_.randrange(2**32))


def rows_of(schema: Schema, random_: random.Random, count: int = 24) -> list[Values]:
    """Return rows with values of every column's type; of all that there are, ``count`` by chance."""
    pools = [values_of(column) for column in schema.columns]
    if math.prod(map(len, pools)) <= count:
        return list(itertools.product(*pools))
    return [tuple(random_.choice(pool) for pool in pools) for _ in range(count)]


def values_of(column: Column) -> list[Any]:
    """Return some values of a column, None if it can be missing."""
    missing = [None] if column.nullable else []
    if column.type == "decimal":
        return [Decimal(count).scaleb(-column.scale) for count in (0, 1, 10, -25)] + missing
    if column.type == "list":
        items = values_of(column.children[0])
        return [(), *((item,) for item in items), tuple(items[:2]), *missing]
    if column.type == "struct":
        return list(itertools.islice(itertools.product(*map(values_of, column.children)), 8)) + missing
    return [*_VALUES[column.type], *missing]


def canonical_rows(schema: Schema, rows: Iterable[Mapping[str, Any] | Sequence[Any]]) -> list[Values]:
    """Return rows of Python values, by name or in order, as rows of a plan. Raises ValueError."""
    forms = [canonical_form(column) for column in schema.columns]
    in_order = [[row.get(name) for name in schema.names] if isinstance(row, Mapping) else row for row in rows]
    return [tuple(form(value) for form, value in zip(forms, row, strict=True)) for row in in_order]
