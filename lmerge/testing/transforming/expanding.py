"""Open sub-trees: the words of a cell become operators whose own parts are open still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from lmerge.errors import UsageError
from lmerge.temporal.plan.grouped import module
from lmerge.testing.intents.fluent import ALTERATIONS, IntentGroups, IntentStream, IntentWindows, OpenChoice
from lmerge.testing.intents.placeholders import ANY
from lmerge.testing.transforming.choices import MODULES, MOVING_ENDS, OPERATORS, OWN_LIFETIMES, STAMPING, WINDOWED
from lmerge.testing.transforming.modules import COUNTED_ROWS, STARTED_SO_FAR

Cell = Mapping[str, str]
"""The word that each factor has in a row of a covering array."""

FIRST_TIMES: Final = (None, None, None, 0, 3)
"""``since`` of a grid that is drawn."""
DIVIDED: Final = 5
"""How many hops a window is long whose parts are computed once and merged."""
PANED: Final = 0.4
"""How often what is put above a sub-tree are windows that share panes."""

_EXTRA = tuple(operator for operator in OPERATORS if operator not in (*WINDOWED, "group_apply", "cleanse"))
_IN_GROUPS = ("where", *ALTERATIONS, "edges", "coalesce")


def expanded(random: Random, streams: Sequence[IntentStream], cell: Cell, operators: int) -> IntentStream:
    """Return a sub-tree over streams. ``cell``: by ``operator``, ``place``, ``window``, ``form``, ``output``, ``clip``.

    What is not in the cell is drawn. An operator without windows gets them below or above it, so that every word is in
    the tree. ``operators``: up to how many it has; more are drawn and put above.
    """
    level = dict(cell)
    for name, choices in (("operator", OPERATORS), ("place", ("below", "above"))):
        level.setdefault(name, random.choice(choices))
    has_own = level["operator"] in WINDOWED and _fits(level)
    stream = streams[0]
    made = 1
    if not has_own and level["place"] == "below":
        stream, made = _with_windows(random, stream, level), 2
    stream = _operator(random, level["operator"], stream, streams[1:], level if has_own else _own_levels(level))
    if not has_own and level["place"] == "above":
        stream, made = _with_windows(random, stream, level), 2
    for _ in range(operators - made):
        if random.random() < PANED:
            stream = _in_panes(random, stream)
        else:
            stream = _operator(random, random.choice(_EXTRA), stream, streams[1:], {})
    return stream


def _in_panes(random: Random, stream: IntentStream) -> IntentStream:
    """Return windows that share panes, over whatever a sub-tree emits: its events may start behind its watermark."""
    hop = random.choice((1, 2, 5))
    grouped = stream.group_by() if random.random() < 0.5 else stream.group_by(ANY)
    return grouped.hopping(DIVIDED * hop, hop).apply(module(COUNTED_ROWS), form=random.choice(("final", "settled")))


def _fits(level: Cell) -> bool:
    """Return whether a windowed operator has the output and clipping of the cell itself."""
    operator, output, clip = level["operator"], level.get("output", "align"), level.get("clip", "none")
    return operator == "apply" or (output not in OWN_LIFETIMES and (operator == "aggregate" or clip == "none"))


def _own_levels(level: Cell) -> dict[str, str]:
    """Return the words for a windowed operator that cannot have all of the cell's."""
    return {name: value for name, value in level.items() if name in ("window", "form")}


def _with_windows(random: Random, stream: IntentStream, level: Cell) -> IntentStream:
    """Return something computed in the windows of the cell."""
    needs_module = level.get("output") in OWN_LIFETIMES
    kind = "apply" if needs_module or random.random() < 0.2 else "aggregate"
    return _operator(random, kind, stream, (), level)


def _operator(
    random: Random, operator: str, stream: IntentStream, others: Sequence[IntentStream], level: Cell
) -> IntentStream:
    other = random.choice([stream, *others])
    if operator == "where":
        return stream.where()
    if operator == "select":
        return stream.select()
    if operator in ALTERATIONS:
        return stream.lifetime(operator)
    if operator == "edges":
        return stream.edges(lasts=random.choice((None, ANY)))
    if operator == "coalesce":
        return stream.coalesce()
    if operator == "cleanse":
        return stream.cleanse()
    if operator == "union":
        return stream.union(stream.where() if random.random() < 0.5 else stream.shift())
    how, _, kind = operator.partition(" ")
    if kind == "join":
        side = others[0] if others else other.where()
        condition = {"where": ANY} if random.random() < 0.3 else {}
        return stream.join(side, how=how).on(stream.scenario.expr == stream.scenario.expr, **condition)
    if kind == "as_of":
        side = others[0] if others else other.where()
        return stream.as_of(side, how=how, within=random.choice((None, ANY)))
    if operator == "group_apply":
        return stream.group_by(ANY).apply(lambda group: _in_group(random, group, level))
    if operator not in WINDOWED:
        raise UsageError(f"there is no operator {operator!r:.64}; there are {', '.join(OPERATORS)}")
    return _windowed(random, operator, stream, level)


def _in_group(random: Random, group: IntentStream, level: Cell) -> IntentStream:
    """Return the sub-tree of a group: one operator, with the cell's windows where they fit."""
    if random.random() < 0.5:
        return _operator(random, random.choice(_IN_GROUPS), group, (), {})
    levels = {name: value for name, value in level.items() if name in ("window", "form")}
    return _windowed(random, random.choice(("aggregate", "top")), group, levels)


def _windowed(random: Random, operator: str, stream: IntentStream, level: Cell) -> IntentStream:
    form: OpenChoice = level.get("form", ANY)
    output: OpenChoice = level.get("output", ANY)
    clip: OpenChoice = level.get("clip", ANY)
    kind = level.get("window")
    if operator == "apply":
        output = level.get("output", "align")
        chosen = random.choice(STAMPING if output in OWN_LIFETIMES else MODULES)
        if output == "time-bound":
            chosen = STARTED_SO_FAR
        if chosen not in STAMPING and kind == "hopping" and random.random() < 0.5:
            chosen = COUNTED_ROWS  # its windows share panes
        return over(stream.group_by(), kind, random).apply(module(chosen), clip=clip, form=form, output=output)
    if output in OWN_LIFETIMES:
        raise UsageError(f"{operator} gives its results no lifetimes, so output={output} does not go with it")
    if kind in MOVING_ENDS:
        output = "align"
    grouped = stream.group_by() if random.random() < 0.25 else stream.group_by(ANY)
    windows = over(grouped, kind, random)
    if operator == "top":
        return windows.top(form=form, output=output)
    return windows.agg(clip=clip, form=form, output=output)


def over(grouped: IntentGroups, kind: str | None, random: Random) -> IntentWindows:
    """Return windows of a kind of ``choices.WINDOWS`` with sizes that are open; None leaves the kind open."""
    if kind is None:
        return grouped.windows()
    if kind == "tumbling":
        return grouped.tumbling(offset=random.randint(-2, 2), since=random.choice(FIRST_TIMES))
    if kind == "hopping":
        since, hop = random.choice(FIRST_TIMES), random.choice((0, 1, 2))
        return grouped.hopping(DIVIDED * hop, hop, since=since) if hop else grouped.hopping(since=since)
    if kind == "snapshot":
        return grouped.snapshot()
    if kind == "sessions":
        return grouped.sessions()
    return grouped.count_windows(by=kind.removeprefix("count-"))
