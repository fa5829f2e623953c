"""Operators judged by their definition: over random streams, after every step, with restored twins and with feedback.

A definition is a function of the tables of the inputs. It returns the output's table and stable point.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack
from temporal_world import ROWS, Item, StreamTable, cut, random_stream

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.values import Values

Table: TypeAlias = Counter[Lifetime]
Definition: TypeAlias = Callable[[Sequence[StreamTable]], tuple[Table, int]]


def own_order(row: Values) -> Any:
    """Order rows of numbers and None as the order of rows does."""
    return tuple((value is None, 0 if value is None else value) for value in row)


@dataclass(frozen=True)
class OperatorCase:
    """An operator with its definition. ``rows``: for each input, what its stream is made of."""

    make: Callable[[], PlanOperator]
    definition: Definition
    rows: Sequence[Sequence[Values]] = (ROWS,)
    open_part: float = 0.1
    lengths: Sequence[int] = (4, 8, 12, 20)


def judge(case: OperatorCase, seeds: Iterable[int]) -> None:
    """Run the operator over random streams, and a restored twin beside it; judge every step (L1, L2, L4, L8, L10)."""
    for seed in seeds:
        random_ = random.Random(seed)
        _judge_run(case, steps(random_, case))


def _judge_run(case: OperatorCase, run: Sequence[Sequence[Delta]]) -> None:
    operator, output = case.make(), StreamTable()
    tables = [StreamTable() for _ in case.rows]
    for deltas in run:
        for table, delta in zip(tables, deltas, strict=True):
            table.apply(delta)
        twin = restored(case.make, operator)
        emitted = operator.step(deltas)
        operator.check()
        assert twin.step(deltas) == emitted, "a restored operator goes on in another way"
        assert twin.state() == operator.state()
        check_smallest(emitted)
        output.apply(emitted)
        expected, stable = case.definition(tables)
        assert output.events == expected
        assert output.stable == stable
        assert emitted.stable is None or any(delta.stable is not None for delta in deltas)
    if all(table.stable == INF for table in tables):
        assert operator.live() == 0


def restored(make: Callable[[], PlanOperator], operator: PlanOperator) -> PlanOperator:
    """Return a new operator with the state of ``operator``, which has gone through MessagePack."""
    twin = make()
    twin.restore(msgpack.unpackb(msgpack.packb(operator.state())))
    twin.check()
    return twin


def steps(random_: random.Random, case: OperatorCase) -> list[list[Delta]]:
    """Return a step of random batches of all inputs after the other; not every input has one in every step."""
    length = random_.choice(case.lengths)
    streams = [random_stream(random_, length, rows, case.open_part) for rows in case.rows]
    return interleaved(random_, streams)


def interleaved(random_: random.Random, streams: Sequence[Iterable[Item]]) -> list[list[Delta]]:
    """Return the streams in batches, in steps: in each one every input takes its next batch, or waits."""
    waiting = [cut(random_, stream) for stream in streams]
    run: list[list[Delta]] = []
    while any(waiting):
        run.append([batches.pop(0) if batches and random_.random() < 0.7 else NOTHING_CHANGES for batches in waiting])
    return [deltas for deltas in run if any(not delta.is_empty for delta in deltas)]


def check_smallest(emitted: Delta) -> None:
    """Check that no event changes twice in a batch, and that adjusts and removals come before inserts."""
    gone = Counter(Lifetime(one.row, one.vs, one.old) for one in emitted.changes if one.old > one.vs)
    come = Counter(Lifetime(one.row, one.vs, one.new) for one in emitted.changes if one.new > one.vs)
    assert not gone & come, "an event comes and goes in one batch"
    removed = {(one.row, one.vs) for one in emitted.changes if one.new == one.vs}
    inserted = {(one.row, one.vs) for one in emitted.changes if one.is_insert}
    assert not removed & inserted, "an event is removed and inserted where its end could be adjusted"
    order = [(one.is_insert, one.vs, own_order(one.row), one.old, one.new) for one in emitted.changes]
    assert order == sorted(order), "the changes of a batch have another order"


# Every short stream.


def judge_every_stream(case: OperatorCase, rows: Sequence[Sequence[Values]], elements: int, last: int = 1) -> int:
    """Judge the operator on every legal stream of up to ``elements`` elements; return how many there are.

    Starts are from 0 to ``last``, ends and stables one further, and +inf. Each stream comes element by element, and
    with all changes up to the next stable in one step.
    """
    count = 0
    for stream in every_stream(rows, elements, last):
        single = [[delta if at == place else NOTHING_CHANGES for at in range(len(rows))] for place, delta in stream]
        _judge_end(case, single)
        together = _together(stream, len(rows))
        if len(together) < len(single):
            _judge_end(case, together)
        count += 1
    return count


def every_stream(rows: Sequence[Sequence[Values]], elements: int, last: int) -> Iterator[list[tuple[int, Delta]]]:
    """Yield every legal stream over all inputs as (input, batch of one element)."""
    waiting: list[tuple[list[tuple[int, Delta]], list[StreamTable]]] = [([], [StreamTable() for _ in rows])]
    while waiting:
        stream, tables = waiting.pop()
        for place, table in enumerate(tables):
            for delta in next_elements(table, rows[place], last):
                later = [copy.deepcopy(one) if at == place else one for at, one in enumerate(tables)]
                later[place].apply(delta)
                longer = [*stream, (place, delta)]
                yield longer
                if len(longer) < elements:
                    waiting.append((longer, later))


def next_elements(table: StreamTable, rows: Sequence[Values], last: int) -> Iterator[Delta]:
    """Yield every element that can come next in a stream."""
    ends = [*range(last + 2), INF]
    for row in rows:
        for vs in range(max(0, table.stable), last + 1):
            yield from (Delta([Change(row, vs, vs, ve)], None) for ve in ends if ve > vs)
    for row, vs, ve in table.events:
        if ve >= table.stable:
            first = max(vs, table.stable)
            yield from (Delta([Change(row, vs, ve, new)], None) for new in ends if new >= first and new != ve)
    yield from (Delta([], stable) for stable in ends if stable > max(0, table.stable))


def _together(stream: Sequence[tuple[int, Delta]], inputs: int) -> list[list[Delta]]:
    """Return the elements of all inputs in one step, up to the first stable and from one stable to the next."""
    run: list[list[Delta]] = []
    changes: list[list[Change]] = [[] for _ in range(inputs)]
    for place, delta in stream:
        changes[place] += delta.changes
        if delta.stable is not None:
            run.append([Delta(own, delta.stable if at == place else None) for at, own in enumerate(changes)])
            changes = [[] for _ in range(inputs)]
    return [*run, [Delta(own, None) for own in changes]] if any(changes) else run


def _judge_end(case: OperatorCase, run: Sequence[Sequence[Delta]]) -> None:
    """Judge what the operator has emitted at the end of a run; streams that are shorter are judged by themselves."""
    operator, output = case.make(), StreamTable()
    tables = [StreamTable() for _ in case.rows]
    for deltas in run:
        for table, delta in zip(tables, deltas, strict=True):
            table.apply(delta)
        output.apply(operator.step(deltas))
    operator.check()
    expected, stable = case.definition(tables)
    assert output.events == expected, run
    assert output.stable == stable, run
    if all(table.stable == INF for table in tables):
        assert operator.live() == 0, run


class LossyInput:
    """A stream that leaves out some of the events that end before ``until``: what an operator upstream may do.

    Independent of ``SkippedEvents``: it leaves out by chance, goes through all of its events every time, and lets the
    stable point wait for those that may come back.
    """

    def __init__(self, random_: random.Random) -> None:
        self.until = NEG_INF
        self._random = random_
        self._absent: list[Lifetime] = []
        self._stable = NEG_INF

    def take(self, delta: Delta) -> Delta:
        changes: list[Change] = []
        for row, vs, old, new in delta.changes:
            was = old
            if Lifetime(row, vs, old) in self._absent:
                self._absent.remove(Lifetime(row, vs, old))
                was = vs
            now = new
            if was == vs and vs < new < self.until and self._random.random() < 0.8:
                self._absent.append(Lifetime(row, vs, new))
                now = vs
            if was != now:
                changes.append(Change(row, vs, was, now))
        if delta.stable is None:
            return Delta(changes, None)
        self._absent = [event for event in self._absent if event.ve >= delta.stable and delta.stable < INF]
        free = min([delta.stable, *(event.vs for event in self._absent)])
        moves = free > self._stable
        self._stable = max(self._stable, free)
        return Delta(changes, free if moves else None)


def judge_feedback(case: OperatorCase, seeds: Iterable[int], last_t: int = 24) -> int:
    """Give feedback at random; judge what ends at or after its time (L7). Return how many events were left out.

    Inputs leave out what the operator does not need, so its output is compared with the definition over all events.
    """
    return sum(_judge_feedback_run(case, random.Random(seed), last_t) for seed in seeds)


def _judge_feedback_run(case: OperatorCase, random_: random.Random, last_t: int) -> int:
    operator, output = case.make(), StreamTable()
    tables = [StreamTable() for _ in case.rows]
    inputs = [LossyInput(random_) for _ in case.rows]
    t = needed = NEG_INF
    for deltas in steps(random_, case):
        if random_.random() < 0.3:
            t = max(t, random_.randint(-8, last_t))
            for lossy, until in zip(inputs, operator.fast_forward(t), strict=True):
                lossy.until = max(lossy.until, until)
                needed = max(needed, t, until)
        for table, delta in zip(tables, deltas, strict=True):
            table.apply(delta)
        given = [lossy.take(delta) for lossy, delta in zip(inputs, deltas, strict=True)]
        twin = restored(case.make, operator)
        emitted = operator.step(given)
        operator.check()
        assert twin.step(given) == emitted, "a restored operator goes on in another way"
        assert twin.state() == operator.state()
        output.apply(emitted)
        expected, stable = case.definition(tables)
        assert from_then_on(output.events, t) == from_then_on(expected, t)
        if min(table.stable for table in tables) >= needed:
            assert output.stable == stable
    if all(table.stable == INF for table in tables):
        assert operator.live() == 0
    return operator.skipped


def from_then_on(table: Table, t: int) -> Table:
    """Return the events that end at or after ``t``."""
    return Counter({event: count for event, count in table.items() if event.ve >= t})
