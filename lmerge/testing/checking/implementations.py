"""Both implementations of the engine give the same, step by step: the same changes, stable points and failures.

A query is run as it is, and under a strain that is drawn: limits that it reaches, promises of its sources that may be
broken, changes that are late by a rule of progress, rows at the ends of their types, on which arithmetic fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from random import Random
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.core.engines.selection import NATIVE, PYTHON
from lmerge.core.properties import INSERT_ONLY, KEY, ORDERED, STRICTLY_ORDERED
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Delta
from lmerge.temporal.entrance import LatePolicy, ProgressRule
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.settings import Item, SourceSettings
from lmerge.testing.checking.related import RelatedRun, every_node
from lmerge.testing.decided import Events
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.inputs import TreeInputs, forms_of, inputs_of, items_of, moved, times_of
from lmerge.testing.systems.system import SystemFailure
from lmerge.testing.transforming.choices import STAMPING
from lmerge.testing.transforming.concrete import SourceData
from lmerge.testing.transforming.modules import STARTED_BEFORE

SHOWN_MAX: Final = 8
LIMITS: Final[Mapping[str, int]] = {"pairs_max": 12, "windows_max": 2}
"""Limits of joins and windows that a step of a few events may reach."""

DRAWN: Final = 6
"""How many strains a query is run under."""
JOINED: Final = 0.6
"""How often a batch is joined to the one before it, of the same source: several things happen in one step."""
NEAR: Final = 4
"""How far from the ends of time a stream begins or ends that is moved there."""
LIMITED: Final = ("join", "aggregate", "top", "apply")
EARLY: Final[Mapping[str, Any]] = {
    "call": {"name": STARTED_BEFORE, "parameters": {}, "version": 1},
    "clip": "none",
    "stamp": "unchanged",
}
"""What becomes of a module that gives its results lifetimes, so that they may begin before their window."""
FAILING: Final = ("filter", "select")
"""What a row can fail in, and drop it."""

Outputs = Mapping[str, PlanNode]


@dataclass(frozen=True)
class Strain:
    """A query, its inputs and how its sources enter.

    ``forward``: a batch, from 1, before which the run learns that events that end before a time are not needed, and
    that time. ``stop``: the batch before which it stops, and goes on from its snapshot. ``compares_kept``: whether both
    implementations keep as many events. Behind the last start of a grid that is a time, one keeps those without an end.
    """

    outputs: Outputs
    inputs: TreeInputs
    settings: Mapping[str, SourceSettings] = field(default_factory=dict)
    has_stables: bool = True
    forward: tuple[int, int] | None = None
    stop: int | None = None
    compares_kept: bool = True


def in_other_implementation(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Run in both implementations: the same changes and stable points in every step. Raises SystemFailure."""
    _compare(related, Strain(related.tree.outputs, related.inputs))
    yield related.expected, related.expected


def strained(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Run in both implementations under strains that are drawn, where they apply: the same, up to the same failure.

    Raises SystemFailure.
    """
    drawn = 0
    for name in related.random.sample(sorted(STRAINS), len(STRAINS)):
        strain = STRAINS[name](replace(related, inputs=_coarser(related.random, related.inputs)))
        if strain is None:
            continue
        drawn += 1
        if drawn > DRAWN:
            break
        try:
            _compare(related, strain)
        except SystemFailure as problem:
            raise SystemFailure(f"under the strain {name!r}, {problem}") from None
    yield related.expected, related.expected


def _compare(related: RelatedRun, strain: Strain) -> None:
    """Raise SystemFailure if what one implementation emits, or fails with, is not what the other one does."""
    (name,) = strain.outputs
    forms = forms_of(related.tree.sources)
    runs = [QueryRun(dict(strain.outputs), strain.settings, implementation=one) for one in (PYTHON, NATIVE)]
    for number, batch in enumerate(strain.inputs.batches, 1):
        if strain.forward is not None and strain.forward[0] == number:
            for run in runs:
                run.fast_forward(name, strain.forward[1])
        if strain.stop == number:
            runs = [_restarted(run, strain, one) for run, one in zip(runs, (PYTHON, NATIVE), strict=True)]
        items = items_of(batch.elements, forms[batch.name])
        if not strain.has_stables:
            items = [item for item in items if item == INF or not isinstance(item, int)]
        python, native = (taken(run, batch.name, items, name) for run in runs)
        if python != native:
            raise SystemFailure(f"batch {number}: {_difference(python, native)}")
        if isinstance(python, str):
            return
        if not strain.compares_kept:
            continue
        kept = [[_kept(part.operator) for part in run.parts] for run in runs]
        for part, of_python, of_native in zip(runs[0].parts, *kept, strict=True):
            if of_python != of_native:
                keeps = f"in Python it keeps {of_python}, natively {of_native}"
                raise SystemFailure(f"operator {part.name!r} behind batch {number}: {keeps}")


def _coarser(random: Random, inputs: TreeInputs) -> TreeInputs:
    """Return inputs in which some batches are joined to the ones before them."""
    found: list[InputBatch] = []
    for batch in inputs.batches:
        if found and found[-1].name == batch.name and random.random() < JOINED:
            found[-1] = InputBatch(batch.name, [*found[-1].elements, *batch.elements])
        else:
            found.append(batch)
    return TreeInputs(found)


def _kept(operator: PlanOperator) -> tuple[int, dict[str, int]]:
    """Return how many events are kept, and how much else."""
    return operator.live(), operator.sizes()


def _restarted(run: QueryRun, strain: Strain, implementation: str) -> QueryRun:
    return QueryRun.load(run.dump(), dict(strain.outputs), strain.settings, implementation=implementation)


Taken = str | Sequence[tuple[Sequence[str], int | None]]
"""What a run did with a batch: its failure, or the changes and stable point of each step."""


def taken(run: QueryRun, source: str, items: Sequence[Item], name: str) -> Taken:
    """Let a run take a batch of a source, and return what it does at the result of that name."""
    try:
        return [_shown(step[name]) for step in run.take(source, items)]
    except LmergeError as failure:
        return f"{type(failure).__name__}: {failure}"


def _shown(delta: Delta) -> tuple[Sequence[str], int | None]:
    return [str(change) for change in delta.changes], delta.stable


def shown_text(did: Taken) -> str:
    """Return what a run did, for messages."""
    if isinstance(did, str):
        return f"it fails with {did!r}"
    emitted = list(_emitted(did))
    return f"it emits {', '.join(emitted[:SHOWN_MAX]) or 'nothing'}"


def _difference(python: Taken, native: Taken) -> str:
    """Return what differs: the failure of one of them, or the first element that they do not both emit."""
    if isinstance(python, str) or isinstance(native, str):
        return f"in Python {shown_text(python)}, natively {shown_text(native)}"
    pairs = enumerate(zip_longest(_emitted(python), _emitted(native), fillvalue="nothing more"), 1)
    for at, (ours, other) in pairs:
        if ours != other:
            return f"in Python it emits as element {at} {ours}, natively {other}"
    return "in Python it emits the same elements as natively, but in other steps"


def _emitted(did: Sequence[tuple[Sequence[str], int | None]]) -> Iterator[str]:
    for changes, stable in did:
        yield from changes
        if stable is not None:
            yield f"stable({show_time(stable)})"


# Strains.


def _late(related: RelatedRun) -> Strain:
    """Let a rule make the stable points, so that changes are late; they are dropped, moved or refused."""
    random = related.random
    rule = ProgressRule(random.randrange(6), random.choice((0, 0, 3)), random.choice((0, 0, 2)))
    settings = SourceSettings(rule, random.choice(list(LatePolicy)))
    return Strain(related.tree.outputs, related.inputs, dict.fromkeys(related.tree.sources, settings), False)


def _promised(related: RelatedRun) -> Strain:
    """Declare promises of the sources that may be broken."""
    every = (INSERT_ONLY, ORDERED, STRICTLY_ORDERED, KEY)
    promises = sorted(str(one) for one in every if related.random.random() < 0.4)
    return _edited(related, ("source",), {"promises": promises})


def _pointed(related: RelatedRun) -> Strain:
    """Declare that the events of the sources are points."""
    return _edited(related, ("source",), {"shape": "point"})


def _limited(related: RelatedRun) -> Strain | None:
    """Set limits of joins and windows that a step may reach."""
    if not _has(related, LIMITED):
        return None
    return _edited(related, LIMITED, LIMITS)


def _extreme(related: RelatedRun) -> Strain:
    """Give rows at the ends of their types, on which expressions and aggregates fail: one by one, or many in a step."""
    data = {name: SourceData({**one.facets, "values": "extreme"}, one.seed) for name, one in related.tree.data.items()}
    inputs = inputs_of(replace(related.tree, data=data))
    if related.random.random() < 0.5:
        inputs = TreeInputs([InputBatch(name, inputs.elements(name)) for name in data])
    return Strain(related.tree.outputs, _coarser(related.random, inputs))


def _dropping(related: RelatedRun) -> Strain | None:
    """Drop rows that fail, at the ends of their types."""
    if not _has(related, FAILING):
        return None
    return replace(_extreme(related), outputs=_edited(related, FAILING, {"on_error": "drop"}).outputs)


def _distant(related: RelatedRun) -> Strain | None:
    """Move the streams to the beginning of time, or to its end."""
    inputs = related.inputs
    every = {t for batch in inputs.batches for one in batch.elements for t in times_of(one) if NEG_INF < t < INF}
    if not every:
        return None
    near = related.random.randrange(1, NEAR)
    by = NEG_INF + near - min(every) if related.random.random() < 0.5 else INF - near - max(every)
    return Strain(related.tree.outputs, moved(inputs, {t: t + by for t in every}), compares_kept=False)


def _forwarded(related: RelatedRun) -> Strain:
    """Let the run learn at some point that events that end before some time are not needed, and stop it behind that."""
    random, count = related.random, len(related.inputs.batches)
    ends = sorted({ve for _, _, ve in related.expected}) or [0]
    at = random.randrange(count + 1)
    stop = random.randrange(at, count + 1) if random.random() < 0.5 else None
    return Strain(related.tree.outputs, related.inputs, forward=(at, random.choice(ends)), stop=stop)


def _early(related: RelatedRun) -> Strain | None:
    """Let results of a module begin before their window, where events do."""
    plan = plan_to_json(related.tree.outputs)
    stamping = [node for node in _every(plan) if node["kind"] == "apply" and node["call"]["name"] in STAMPING]
    for node in stamping:
        node.update(EARLY)
    return Strain(plan_from_json(plan), related.inputs) if stamping else None


def _has(related: RelatedRun, kinds: Sequence[str]) -> bool:
    return any(node.kind in kinds for node in every_node(list(related.tree.outputs.values())))


def _edited(related: RelatedRun, kinds: Sequence[str], fields: Mapping[str, Any]) -> Strain:
    """Return the query with other fields of the nodes of some kinds, as far as they have them."""
    plan = plan_to_json(related.tree.outputs)
    for node in _every(plan):
        if node["kind"] in kinds:
            node.update({name: value for name, value in fields.items() if name in node or name == "on_error"})
    return Strain(plan_from_json(plan), related.inputs)


def _every(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan as JSON values, those of groups' sub-plans too."""
    for node in plan["nodes"]:
        yield node
        if isinstance(node.get("plan"), dict):
            yield from _every(node["plan"])


Straining = Callable[[RelatedRun], Strain | None]
"""Returns a query under a strain, or None where it does not apply."""

STRAINS: Final[Mapping[str, Straining]] = {
    "late": _late,
    "promised": _promised,
    "points": _pointed,
    "limited": _limited,
    "extreme": _extreme,
    "dropping": _dropping,
    "distant": _distant,
    "forwarded": _forwarded,
    "early": _early,
}
