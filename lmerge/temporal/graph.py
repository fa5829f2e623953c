"""Operators that run together: a batch of each source goes through all of them, and comes out at each output.

The graph has no cycles, and each step comes behind what it reads. A step that several others read is computed once
(multicast). All of its readers get the same batch in the same step, stable included, so a diamond needs no queue and
cannot wait for itself. Feedback goes the other way: what a step need not compute is the least that its readers do not
need.

A step that fails ends itself and what reads it, and nothing else: several queries can run in one graph. Its error names
the operator, whichever implementation has raised it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import NOTHING_CHANGES, Delta
from lmerge.temporal.columns import AnyDelta, ColumnDelta, ColumnOperator, MixedOperator, as_rows
from lmerge.temporal.errors import OperatorFailed
from lmerge.temporal.operators.operator import PlanOperator

# How errors of expressions begin, which name a node: a step can compute several.
_NAMED_BY_EXPRESSION: Final = "operator "

Observer: TypeAlias = Callable[[int, Sequence[Delta], Delta], None]
"""What is called for each step that computes something: its place, what it has read, and what came out."""


class StepCounters:
    """What a step has done: ``batches`` that it took, the changes in them (``taken``), and those that came out."""

    __slots__ = ("batches", "emitted", "taken")

    def __init__(self) -> None:
        self.batches = self.taken = self.emitted = 0


class GraphStep(NamedTuple):
    """An operator and what it reads: places of sources and of earlier steps, which follow the sources."""

    operator: PlanOperator
    reads: tuple[int, ...]
    counters: StepCounters | None = None


class OperatorGraph:
    """Operators over ``sources`` streams. ``outputs``: the places that are read from outside.

    ``needed``: the feedback that the outputs have given so far. ``failures``: by place, the error of a step that has
    failed, or of one that it reads. ``observer``: see there.
    """

    def __init__(
        self, sources: int, steps: Sequence[GraphStep], outputs: Sequence[int], needed: Sequence[int] | None = None
    ) -> None:
        places = sources + len(steps)
        for at, step in enumerate(steps):
            assert len(step.reads) == step.operator.inputs, f"{step.operator.name} reads {len(step.reads)} streams"
            assert all(0 <= place < sources + at for place in step.reads), f"{step.operator.name} reads a later step"
        assert all(0 <= place < places for place in outputs), "an output is no place"
        self.sources, self.steps, self.outputs = sources, tuple(steps), tuple(outputs)
        self.failures: dict[int, LmergeError] = {}
        self.observer: Observer | None = None
        self._needed = [NEG_INF] * len(self.outputs) if needed is None else list(needed)

    def step(self, deltas: Sequence[AnyDelta]) -> list[Delta]:
        """Take one batch of each source, and return one of each output. Raises what an operator raises."""
        found = self.advance(deltas)
        for error in self.failures.values():
            raise error
        return found

    def advance(self, deltas: Sequence[AnyDelta]) -> list[Delta]:
        """Take one batch of each source, and return one of each output.

        An operator that raises ends itself and what reads it (``failures``); no output of these changes any more.
        """
        streams = self._advance(deltas)
        return [NOTHING_CHANGES if place in self.failures else streams.rows(place) for place in self.outputs]

    def advance_columns(self, deltas: Sequence[AnyDelta]) -> list[AnyDelta]:
        """Do as ``advance``, and return each output in the form in which it was computed."""
        streams = self._advance(deltas)
        return [NOTHING_CHANGES if place in self.failures else streams.batches[place] for place in self.outputs]

    def _advance(self, deltas: Sequence[AnyDelta]) -> _Streams:
        streams = _Streams(deltas)
        for place, (operator, reads, counters) in enumerate(self.steps, self.sources):
            found: AnyDelta = NOTHING_CHANGES
            if not (self.failures and self._has_failed(place, reads)):
                try:
                    found = streams.stepped(operator, reads)
                except LmergeError as error:
                    self.failures[place] = error
                else:
                    if found is not NOTHING_CHANGES and counters is not None:
                        counters.batches += 1
                        counters.taken += sum(map(streams.changes, reads))
                        counters.emitted += _changes(found)
                    if self.observer is not None and found is not NOTHING_CHANGES:
                        self.observer(place, [streams.rows(source) for source in reads], as_rows(found))
            streams.batches.append(found)
        self._spread_failures()
        return streams

    def fast_forward(self, output: int, t: int) -> list[int]:
        """Learn that an output needs no event that ends before ``t``; return the same for each source."""
        self._needed[output] = max(self._needed[output], t)
        asked: list[list[int]] = [[] for _ in range(self.sources + len(self.steps))]
        for place, needed in zip(self.outputs, self._needed, strict=True):
            asked[place].append(needed)
        for at in range(len(self.steps) - 1, -1, -1):
            operator, reads, _ = self.steps[at]
            least = min(asked[self.sources + at], default=NEG_INF)
            upstream = [NEG_INF] * len(reads) if least == NEG_INF else operator.fast_forward(least)
            for place, needed in zip(reads, upstream, strict=True):
                asked[place].append(needed)
        return [min(asked[source], default=NEG_INF) for source in range(self.sources)]

    def state(self) -> list[dict[str, Any]]:
        """Return the state of each operator, as plain values."""
        return [step.operator.state() for step in self.steps]

    def restore(self, states: Sequence[dict[str, Any]]) -> None:
        """Take states that ``state`` has returned. The graph is a new one with the same operators."""
        for step, state in zip(self.steps, states, strict=True):
            step.operator.restore(state)

    def check(self) -> None:
        """Assert the invariants of every operator."""
        for step in self.steps:
            step.operator.check()

    def live(self) -> int:
        """Return the number of events that the operators keep."""
        return sum(step.operator.live() for step in self.steps)

    def _has_failed(self, place: int, reads: Sequence[int]) -> bool:
        return place in self.failures or any(source in self.failures for source in reads)

    def _spread_failures(self) -> None:
        """Note the error of a step with all that read it."""
        if not self.failures:
            return
        for place, (_, reads, _) in enumerate(self.steps, self.sources):
            failed = next((self.failures[source] for source in reads if source in self.failures), None)
            if failed is not None:
                self.failures.setdefault(place, failed)


def stepped(operator: PlanOperator, read: Sequence[Delta]) -> Delta:
    """Return an operator's output for a batch of each input. Raises LmergeError, which names the operator."""
    try:
        return _of_rows(operator, read)
    except Exception as error:
        raise_named(error, operator.name)


def raise_named(error: Exception, name: str) -> NoReturn:
    """Raise what a step has raised with ``name`` in front, if the message does not begin with a name."""
    if not isinstance(error, LmergeError):
        raise OperatorFailed(f"{name}: it failed with {type(error).__name__}: {error!s:.400}") from error
    text = str(error)
    if not text.startswith((f"{name}: ", _NAMED_BY_EXPRESSION)):
        error.args = (f"{name}: {text}", *error.args[1:])
    raise error


def _of_rows(operator: PlanOperator, read: Sequence[Delta]) -> Delta:
    if all(delta.is_empty for delta in read):
        return NOTHING_CHANGES
    return _marked(operator.step(read), operator, read)


def _marked(found: Delta, operator: PlanOperator, read: Sequence[AnyDelta]) -> Delta:
    """Return an operator's output with the watermark that follows from those that it has read."""
    marks = [delta.mark for delta in read if delta.mark is not None]
    return found._replace(mark=operator.mark_of(max(marks))) if marks else found


def _changes(batch: AnyDelta) -> int:
    return len(batch.changes if isinstance(batch, Delta) else batch)


class _Streams:
    """The batches of one step by place. Each is converted at most once where operators of both forms meet."""

    def __init__(self, batches: Sequence[AnyDelta]) -> None:
        self.batches = [*batches]
        self._rows: dict[int, Delta] = {}
        self._columns: dict[int, ColumnDelta] = {}

    def stepped(self, operator: PlanOperator, reads: Sequence[int]) -> AnyDelta:
        """Let an operator take what it reads; return its output. Raises LmergeError, which names the operator."""
        try:
            return self._stepped(operator, reads)
        except Exception as error:
            raise_named(error, operator.name)

    def _stepped(self, operator: PlanOperator, reads: Sequence[int]) -> AnyDelta:
        read = [self.batches[place] for place in reads]
        if isinstance(operator, MixedOperator) and not all(batch.is_empty for batch in read):
            rows = operator.step_mixed(read)
            return _marked(rows, operator, read)
        if not isinstance(operator, ColumnOperator) or all(batch.is_empty for batch in read):
            return _of_rows(operator, [self.rows(place) for place in reads])
        marks = [batch.mark for batch in read if batch.mark is not None]
        found = operator.step_columns([self.columns(operator, at, place) for at, place in enumerate(reads)])
        return found.marked(operator.mark_of(max(marks))) if marks else found

    def changes(self, place: int) -> int:
        """Return how many changes a batch has."""
        return _changes(self.batches[place])

    def rows(self, place: int) -> Delta:
        """Return a batch as rows."""
        batch = self.batches[place]
        if isinstance(batch, Delta):
            return batch
        if place not in self._rows:
            self._rows[place] = as_rows(batch)
        return self._rows[place]

    def columns(self, operator: ColumnOperator, at: int, place: int) -> ColumnDelta:
        """Return the batch of an operator's input as columns."""
        batch = self.batches[place]
        if not isinstance(batch, Delta):
            return batch
        if place not in self._columns:
            self._columns[place] = operator.as_columns(at, batch)
        return self._columns[place]
