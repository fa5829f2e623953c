"""Relations of how the engine runs (TESTING 7, P4 to P6 and R2): they hold for every tree, and each finds a defect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from judged_world import inputs_by_hand, payload, tree_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.engines.selection import native_problem
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.operators.lifetimes import Extend
from lmerge.temporal.operators.operator import PlanOperator, raise_first
from lmerge.temporal.operators.union import DisjointUnionOperator
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.values import Values
from lmerge.temporal.windows import window_operator
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.checking import implementations
from lmerge.testing.checking.engine_relations import OF_ENGINE
from lmerge.testing.checking.relations import RelationVerdict, check_tree
from lmerge.testing.checking.session import every_operator
from lmerge.testing.systems.inputs import TreeInputs, inputs_of
from lmerge.testing.transforming.transformer import Transformer

LEFT = lt.source("left", {"k": "int", "v": "int"})
needs_native = pytest.mark.skipif(native_problem() is not None, reason="both implementations are needed")


def test_they_hold_for_every_tree(seeds_of: Callable[[int, int], range]) -> None:
    """X2 (3): the engine in this process, in both implementations."""
    found: Counter[str] = Counter()
    for seed in seeds_of(20, 20):
        for tree in Transformer(every_operator(), seed).trees(120):
            for verdict in check_tree(tree, inputs_of(tree)):
                assert not verdict.is_bad, f"{tree}\n{verdict}"
                found[verdict.name] += not verdict.refused
    assert set(found) == set(OF_ENGINE)
    assert min(found.values()) > 15, found


def few() -> TreeInputs:
    """Return a table of some keys, with disorder and revisions, in small batches."""
    elements: list[Element] = []
    for at in range(12):
        start = at ^ 1
        row = payload(LEFT, at % 3, at)
        elements += [Insert(row, start, start + 6), Adjust(row, start, start + 6, start + 4)]
        if at % 2:
            elements.append(Stable(at - 1))
    elements.append(Stable(INF))
    return inputs_by_hand([("left", elements[at : at + 2]) for at in range(0, len(elements), 2)])


def verdicts(stream: Stream, name: str, row: int = 0) -> list[RelationVerdict]:
    return check_tree(replace(tree_of(stream), row=row), few(), [name])


GROUPED = LEFT.group_by("k").tumbling(4).agg(n=lt.count(), form="eager")
SUMMED = LEFT.group_by("k").tumbling(400).agg(total=lt.sum(lt.col.v))


def keep_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    right = WindowOperator.sizes
    monkeypatch.setattr(WindowOperator, "sizes", lambda self: {**right(self), "groups": 1})


def forget_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanOperator, "restore_packed", lambda self, state: None)


def stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Extend.altered
    monkeypatch.setattr(Extend, "altered", lambda self, vs, ve: right(self, vs, ve + 1))


def take_what_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamEntrance, "_admitted", lambda self, change: change)
    monkeypatch.setattr(implementations, "STRAINS", {"late": implementations.STRAINS["late"]})


def believe(monkeypatch: pytest.MonkeyPatch) -> None:
    right = DisjointUnionOperator._keep

    def kept(self: DisjointUnionOperator, start: int, part: Values, at: int) -> int:
        right(self, start, part, at)
        return at

    monkeypatch.setattr(DisjointUnionOperator, "_keep", kept)


def refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DisjointUnionOperator, "_keep", lambda self, start, part, at: 1 - at)


def fail_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        window_operator, "raise_first", lambda failures, key_order: raise_first(failures, lambda key: 0)
    )


@pytest.mark.parametrize(
    ("stream", "name", "seed_defect", "problem"),
    [
        (GROUPED, "freed", keep_groups, "behind all ends, operator 'aggregate' keeps 0 events, 1 groups"),
        (GROUPED, "restored", forget_events, ""),
        (LEFT.union(LEFT.shift(0)), "disjoint-unions", believe, "and it does not fail"),
        (LEFT.union(LEFT.shift(1)), "disjoint-unions", refuse, "its streams differ in 'v', and it fails"),
        (SUMMED, "other-key-order", fail_with_the_first, "with its keys in another order it fails with"),
        pytest.param(LEFT.extend(2), "other-implementation", stay_behind, "in Python it emits", marks=needs_native),
        pytest.param(LEFT.shift(1), "strained", take_what_is_late, "in Python it", marks=needs_native),
    ],
    ids=["freed", "restored", "believed", "refused", "other-key-order", "other-implementation", "strained"],
)
def test_a_defect_is_found_by_its_relation(
    monkeypatch: pytest.MonkeyPatch,
    stream: Stream,
    name: str,
    seed_defect: Callable[[pytest.MonkeyPatch], None],
    problem: str,
) -> None:
    """P5, R2 (6.3): state is freed, and a run goes on from its snapshot."""
    (right,) = verdicts(stream, name)
    assert not right.is_bad, str(right)
    seed_defect(monkeypatch)
    wrong = [verdict for row in range(8) for verdict in verdicts(stream, name, row)]
    assert any(verdict.is_bad and problem in verdict.problem for verdict in wrong), str(wrong[0])


@needs_native
@pytest.mark.parametrize("name", implementations.STRAINS)
def test_both_implementations_refuse_alike(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """And each strain makes some query fail, or drop something: otherwise it would be none."""
    failures: Counter[str] = Counter()
    right = implementations.taken

    def counted(*taken: Any) -> implementations.Taken:
        found = right(*taken)
        failures.update([found.split(":")[0]] if isinstance(found, str) else [])
        return found

    monkeypatch.setattr(implementations, "STRAINS", {name: implementations.STRAINS[name]})
    monkeypatch.setattr(implementations, "taken", counted)
    for tree in Transformer(every_operator(), 4).trees(60):
        for verdict in check_tree(tree, inputs_of(tree), ["strained"]):
            assert not verdict.is_bad, f"{tree}\n{verdict}"
    assert failures or name in ("dropping", "forwarded")
