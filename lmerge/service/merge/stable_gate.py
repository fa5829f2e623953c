"""The gate before a merge under ``majority``, ``hold`` and ``quarantine``: stables wait until enough inputs agree.

Inserts and adjusts pass. Stables are withheld, and given to the merge at interval boundaries, for the inputs that have
delivered what was agreed on. An input's elements are as legal without its stable as with it: a stable only promises
that less will come. So the output never freezes what has not been agreed on. This holds for the ends of events and, by
the second grid of digests, for their existence.

What was agreed on is perhaps not frozen yet: the merge waits for the end of the last input, or the output lags. An
input that attaches in that time could freeze something else. So the inputs that count from then on agree once more:

    a, b    complete [0, 10) with x, and their end     agreed on by 2 of 3; the merge waits for c's end
    wrong   attaches, completes [0, 10) without x      2 of 4 have x: its stable waits
    c       completes [0, 10) with x                   agreed on by 3 of 4

The merge cannot check an input against a stable that was withheld. The digests can: they find the element that breaks
the promise, and the gate makes the violation that the merge would have found.
"""

from __future__ import annotations

from lmerge.core import violations
from lmerge.core.batch import AnyBatch, Batch, BatchBuilder
from lmerge.core.detaching import DetachCause
from lmerge.core.divergence.digests import completed_at
from lmerge.core.divergence.monitor import AgreementRule, DivergenceMonitor, time_of
from lmerge.core.elements import ADJUST, INSERT, NEG_INF, STABLE, Stable
from lmerge.core.engines.selection import NATIVE
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Merge, Outcome
from lmerge.errors import InputViolation


class StableGate:
    """Withholds stables from ``merge``, by the comparisons of ``monitor``."""

    def __init__(self, merge: Merge, monitor: DivergenceMonitor) -> None:
        self.agreed_until: int = NEG_INF  # intervals below are agreed on
        self._merge = merge
        self._monitor = monitor
        self._given: dict[str, int] = {}  # the last stable given to the merge, by input
        self._counting: list[str] = []  # the inputs that counted when ``agreed_until`` was found

    def attached(self, name: str) -> None:
        self._given[name] = NEG_INF
        self._counting = []  # an earlier incarnation of this name may have counted, with other elements

    def gone(self, name: str) -> None:
        self._given.pop(name, None)

    def holds(self, name: str) -> bool:
        """Whether the gate withholds the stables of this input."""
        return name in self._given and self._merge.is_attached(name)

    def apply(self, name: str, batch: AnyBatch, incarnation: int) -> Outcome:
        """Merge the elements of the batch that are not stables. The monitor gets all of them; the stables wait."""
        merge = self._merge
        before = self._monitor.stable_point(name)
        offender = self._monitor.receive(name, batch, batch.count)
        stop = batch.count if offender is None else offender
        through, places = _without_stables(batch, stop)
        outcome = merge.apply(name, through, incarnation) if through.count else Outcome()
        for gone in outcome.detached:
            if gone.violation is not None and gone.input == name:
                gone.violation.index = places[gone.violation.index]
        if offender is None or not merge.is_attached(name):
            return outcome
        reached = max([before, *(vs for kind, vs, *_ in _first(batch, stop) if kind == STABLE)])
        return _joined([outcome, self._detach(name, batch, offender, reached)], merge)

    def releases(self, counting: list[str], verdict: AgreementRule) -> list[tuple[str, int]]:
        """Return the stables to give to the merge now, as (input, time).

        Each is at a boundary of intervals that the input has completed, and not above what is agreed on.
        """
        if counting:
            if counting != self._counting:
                self._counting = counting
                frozen_until = completed_at(self._merge.stable_point, self._monitor.interval)
                self.agreed_until = min(self.agreed_until, frozen_until)
            self.agreed_until = self._monitor.agreed_below(self.agreed_until, counting, verdict)
        given = []
        for name in self._given:
            t = time_of(min(self._monitor.completed(name), self.agreed_until), self._monitor.interval)
            if t > self._given[name]:
                self._given[name] = t
                given.append((name, t))
        return given

    def give(self, name: str, t: int, incarnation: int) -> Outcome:
        """Give this stable of the input to the merge."""
        return self._merge.apply(name, Batch.of([Stable(t)]), incarnation)

    def _detach(self, name: str, batch: AnyBatch, index: int, stable_point: int) -> Outcome:
        violation = _violation(name, batch, index, stable_point)
        outcome = self._merge.detach(name, str(violation), DetachCause.BROKEN_PROMISE)
        return outcome._replace(
            detached=tuple(
                gone._replace(violation=violation) if gone.input == name else gone for gone in outcome.detached
            )
        )


def is_gated(role: InputRole) -> bool:
    """Whether the gate withholds the stables of this role. An observer moves no output: its elements pass unchanged."""
    return role is not InputRole.OBSERVE


def _first(batch: AnyBatch, stop: int) -> list[tuple[int, int, int, int, bytes]]:
    return [row for at, row in enumerate(batch.rows()) if at < stop]


def _without_stables(batch: AnyBatch, stop: int) -> tuple[AnyBatch, list[int]]:
    """Return the first ``stop`` elements without the stables, and the index of each in ``batch``."""
    kinds = batch.kinds[:stop]
    if STABLE not in kinds:
        return (batch if stop == batch.count else _built(_first(batch, stop))), list(range(stop))
    places = [at for at, kind in enumerate(kinds) if kind != STABLE]
    slicing = getattr(batch, "slice", None)
    if slicing is None:
        return _built([row for row in _first(batch, stop) if row[0] != STABLE]), places
    pieces, start = [], 0
    while start < stop:
        end = kinds.find(STABLE, start)
        end = stop if end < 0 else end
        if end > start:
            pieces.append(slicing(start, end))
        start = end + 1
    if not pieces:
        return _built([]), places
    return (pieces[0] if len(pieces) == 1 else type(batch).concat(pieces)), places  # type: ignore[attr-defined]


def _built(rows: list[tuple[int, int, int, int, bytes]]) -> Batch:
    builder = BatchBuilder()
    builder.rows += rows
    return builder.build()


def _violation(name: str, batch: AnyBatch, index: int, stable_point: int) -> InputViolation:
    """Return the violation that the merge would raise for an element.

    The input's own stable point forbids the element, or its lifetime is impossible.
    """
    row = next(row for at, row in enumerate(batch.rows()) if at == index)
    kind, vs, ve, _, _ = row
    if kind == STABLE:
        return violations.stable_backwards(name, row, index, stable_point)
    if ve < vs:
        return violations.end_before_start(name, row, index)
    if kind == INSERT:
        return violations.insert_below_stable(name, row, index, stable_point)
    assert kind == ADJUST
    return violations.adjust_below_stable(name, row, index, stable_point)


def _joined(outcomes: list[Outcome], merge: Merge) -> Outcome:
    """Join several outcomes into one."""
    output = BatchBuilder()
    for outcome in outcomes:
        output.extend(outcome.batch)
    batch: AnyBatch = output.build()
    if merge.engine == NATIVE:
        from lmerge.core.engines.native_engine import columns_of

        batch = columns_of("output", batch)
    return Outcome(
        batch,
        tuple(gone for outcome in outcomes for gone in outcome.detached),
        tuple(name for outcome in outcomes for name in outcome.joined),
        tuple(change for outcome in outcomes for change in outcome.switched),
        sum(outcome.refused for outcome in outcomes),
    )
