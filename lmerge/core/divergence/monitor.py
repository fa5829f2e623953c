"""Do the inputs of a merge say the same? Compared per interval of Ve, as each input completes it.

Pure, like the merge: no clock, no I/O; the caller tells what inputs have record, ``settle`` says what follows from it.

    intervals of Ve      0    1    2    3    4    5
    a  (from the start)  =    =    =    =    .           completed up to 4
    b  (join_at in 1)         ,    =    =    =    .      completed up to 5; 1 began before its join_at
    o  (observes)        =    =    x    .                2 differs from what both others say

The law: two streams that mean the same have the same digest for every interval that both have *completed* (their own
stable point has reached its end) and are *right for* (it begins at or after their join_at and what they skipped). So a
difference there is a difference in meaning, never one of order, timing, revisions, a reconnect or a fast-forward.

An input that is attached again keeps what its earlier lives completed. A majority is more than half of the active
inputs that count (joined, not leaving or skipping) and are right for the interval. An observer is compared with the
others and is never part of a majority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.divergence.digests import (
    ALL,
    INF_INTERVAL,
    ZERO,
    AddOutcome,
    Digest,
    Digests,
    bounds,
    completed_at,
    digests_of,
    first_from,
)
from lmerge.core.divergence.evidence import Evidence, Findings
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import ACTIVE

# Compared intervals are remembered for inputs that come later: 100 bytes each per input.
INTERVALS_KEPT: Final = 1024
# Inputs that have gone are still compared with; more names than this and the longest gone is forgotten.
GONE_KEPT: Final = 64
# A replica with another plan differs in every interval: the first few say why.
EVIDENCE_IN_ROW: Final = 3


class Divergence(NamedTuple):
    """An interval in which inputs differ. ``digests``: of those that have completed it. ``majority``: the digest of
    more than half of the active inputs that count; None if there is none. ``outvoted``: those that differ from it.
    """

    interval: int
    start: int
    end: int
    digests: dict[str, Digest]
    majority: Digest | None
    outvoted: tuple[str, ...]
    findings: Findings


class AgreementRule(NamedTuple):
    """When an interval is decided on. ``all_of_them``: all who are able must agree; otherwise more than half.
    ``excused``: inputs that are not waited for: when all others have completed the interval it is decided on as well,
    whatever they deliver; None: everybody is waited for. ``disputed``: intervals that one input alone cannot decide on.
    """

    all_of_them: bool = False
    excused: Collection[str] | None = None
    disputed: Collection[int] = ()


class DivergenceReport(NamedTuple):
    """One input: compared intervals, those in which it was equal (to the majority, or to all others where there is
    none), equal ones in a row up to the last compared. ``problem``: why it is not compared; empty: it is."""

    name: str
    compared: int
    equal: int
    in_row: int
    problem: str = ""


class _InputRecord:
    """What is known of one name: the current life's open intervals, and all completed ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.incarnation = 0
        self.role = ACTIVE
        self.attached = False
        self.digests: Digests | None = None
        self.first: int = ALL  # of the current life: right for intervals from here on
        self.completed: int = NEG_INF  # and has completed those below
        self.life = 0
        self.overflowed = False  # as ``digests`` says; another thread may be at it
        self.spans: list[tuple[int, int, int]] = []  # completed before the life or a skip began: [from, to), life
        self.done: dict[int, Digest] = {}  # completed intervals that hold something
        self.verdicts: dict[int, bool] = {}  # by interval, while it is remembered
        self.past = DivergenceReport(name, 0, 0, 0)  # of those that are not

    def covers(self, index: int) -> bool:
        """Whether the name has completed the interval and is right for it."""
        return self.life_of(index) > 0

    def life_of(self, index: int) -> int:
        """The life in which it has completed the interval; 0: in none."""
        if self.first <= index < self.completed:
            return self.life
        return next((life for start, end, life in self.spans if start <= index < end), 0)

    def digest(self, index: int) -> Digest:
        return self.done.get(index, ZERO)

    @property
    def is_comparable(self) -> bool:
        return self.digests is not None and not self.overflowed

    def end_life(self) -> None:
        """Keep what this life has completed, for comparison with others."""
        self.save_span()
        self.attached = False
        self.digests = None
        self.first, self.completed = ALL, NEG_INF

    def save_span(self) -> None:
        """Before ``first`` changes: what has been completed from there on stands."""
        if self.first < self.completed:
            self.spans.append((self.first, self.completed, self.life))

    def begin_life(self, first: int) -> None:
        """Intervals from ``first`` on will be record again."""
        self.life += 1
        self.overflowed = False
        self.spans = [(start, min(end, first), life) for start, end, life in self.spans if start < first]
        self.done = {index: digest for index, digest in self.done.items() if index < first}
        self.first, self.completed = first, NEG_INF

    def forget_below(self, bound: int) -> None:
        self.spans = [span for span in self.spans if span[1] > bound]
        self.done = {index: digest for index, digest in self.done.items() if index >= bound}
        for index in sorted(index for index in self.verdicts if index < bound):
            equal = self.verdicts.pop(index)
            name, compared, before, in_row, _ = self.past
            self.past = DivergenceReport(name, compared + 1, before + equal, in_row + 1 if equal else 0)


class DivergenceMonitor:
    """Compares the inputs of one merge. ``interval``: length in units of Ve. ``starts``: compare on Vs as well.

    ``evidence_bytes``: batches kept to name differences. ``open_max``: open intervals of one input; one that has more
    is not compared any longer (``DivergenceReport.problem`` says so).
    """

    def __init__(
        self, engine: str, interval: int, *, starts: bool = False, evidence_bytes: int = 0, open_max: int = 65_536,
        intervals_kept: int = INTERVALS_KEPT,
    ) -> None:
        self.interval = interval
        self.divergences = 0  # intervals in which inputs differed
        self._engine = engine
        self._with_starts = starts
        self._open_max = open_max
        self._intervals_kept = intervals_kept
        self._inputs: dict[str, _InputRecord] = {}
        self._evidence = Evidence(engine, interval, starts=starts, bytes_max=evidence_bytes)
        self._indices: set[int] = set()  # intervals in which somebody has completed something
        self._forgotten_until: int = NEG_INF  # intervals below cannot be compared any more
        self._divergent: dict[int, Divergence] = {}
        self._evidence_from: int = NEG_INF
        self._touched: set[int] = set()  # completed by somebody since the last ``settle``
        self.hash_name = digests_of(engine, interval, starts=starts, open_max=open_max).hash_name

    # What inputs do.

    def attach(self, name: str, incarnation: int, role: str, join_at: int | None) -> None:
        """``join_at``: as the input has record it; it is right for every event with Ve >= join_at."""
        record = self._inputs.pop(name, None) or _InputRecord(name)
        self._inputs[name] = record  # last: those that have gone longest are first
        self._end_life(record)
        record.incarnation, record.role, record.attached = incarnation, role, True
        record.digests = digests_of(self._engine, self.interval, starts=self._with_starts, open_max=self._open_max)
        record.begin_life(max(first_from(join_at, self.interval), self._forgotten_until))

    def detach(self, name: str, *, forget: bool = False) -> None:
        """The input has gone. ``forget``: what it has record is not to be compared with any more."""
        record = self._inputs.get(name)
        if record is None:
            return
        self._end_life(record)
        if forget:
            record.spans, record.done = [], {}
            self._evidence.forget(name)
        gone = [other.name for other in self._inputs.values() if not other.attached]
        for longest in gone[: max(0, len(gone) - GONE_KEPT)]:
            del self._inputs[longest]
            self._evidence.forget(longest)

    def receive(self, name: str, batch: AnyBatch, stop: int) -> int | None:
        """The input has record the first ``stop`` elements of this batch. The index of one that its own stable point
        forbids, for a caller that has not asked the merge before; what comes from there on is not receive."""
        record = self._inputs.get(name)
        if record is None or record.digests is None:
            return None
        outcome: AddOutcome = record.digests.add(batch, stop)
        record.overflowed = record.digests.overflowed
        if record.is_comparable:
            self._evidence.keep(name, record.life, batch, stop, outcome.touched)
        return outcome.offender

    def skipped(self, name: str, until: int) -> None:
        """From here on the input leaves out events that end before ``until``: what it has completed stands."""
        record = self._inputs.get(name)
        if record is None or record.digests is None:
            return
        self._complete(record)
        first = first_from(until, self.interval)
        if first <= max(record.first, record.completed):
            return
        record.save_span()
        record.first = first

    # What follows.

    @property
    def is_due(self) -> bool:
        """Whether an input has completed an interval since the last ``settle``."""
        return bool(self._touched) or any(
            record.digests is not None and record.digests.stable_point > NEG_INF
            and completed_at(record.digests.stable_point, self.interval) > record.completed
            for record in self._inputs.values()
        )

    def settle(self, counting: Collection[str] = ()) -> list[Divergence]:
        """Compare what has been completed since the last call. ``counting``: the active inputs that count.

        Gives the intervals that were found divergent, or whose divergence looks different now, in order.
        """
        for record in self._inputs.values():
            if record.digests is not None:
                self._complete(record)
        found = []
        for index in sorted(self._touched):
            divergence = self._judge(index, counting)
            if divergence is not None:
                found.append(divergence)
        self._touched.clear()
        self._trim()
        return found

    def outvoted(self, counting: Collection[str]) -> dict[str, Divergence]:
        """Attached active inputs that differ from a majority somewhere, each with the first interval where."""
        found: dict[str, Divergence] = {}
        for index in sorted(self._divergent):
            divergence = self._judgement(index, counting)
            for name in divergence.outvoted if divergence is not None else ():
                if self._inputs[name].attached:
                    found.setdefault(name, divergence or self._divergent[index])
        return found

    def agreed(self, index: int, counting: Collection[str], verdict: AgreementRule) -> bool:
        """Whether the inputs that count and are right for the interval have decided on it, as ``verdict`` says. True as
        well if there are none, and it is not disputed: then nobody can ever say anything about it."""
        able = self._able(index, counting)
        if index in verdict.disputed and len(able) < 2:
            return False
        if not able:
            return True
        spoken = [record.digest(index) for record in able if record.covers(index)]
        most = max(map(spoken.count, set(spoken)), default=0)
        if verdict.all_of_them:
            return most == len(able)
        return 2 * most > len(able) or (
            verdict.excused is not None
            and all(record.covers(index) or record.name in verdict.excused for record in able)
        )

    def differing(self, index: int, counting: Iterable[str]) -> bool:
        """Whether two inputs that count have completed the interval and differ there."""
        return len({record.digest(index) for record in self._able(index, counting) if record.covers(index)}) > 1

    def differing_from(self, start: int, counting: Collection[str]) -> list[int]:
        """The remembered intervals from ``start`` on in which inputs that count differ."""
        return [index for index in sorted(self._divergent) if index >= start and self.differing(index, counting)]

    def late_for(self, index: int, counting: Iterable[str]) -> list[str]:
        """The inputs that count, are right for the interval, and have not completed it, if another one has."""
        able = self._able(index, counting)
        late = [record.name for record in able if not record.covers(index)]
        return late if len(late) < len(able) else []

    def agreed_below(self, start: int, counting: Collection[str], verdict: AgreementRule) -> int:
        """The first interval from ``start`` on that is not ``agreed``; between turning points nothing changes."""
        turns = {NEG_INF, *self._indices, *verdict.disputed}
        for name in counting:
            record = self._inputs.get(name)
            if record is not None and record.attached:
                turns |= {record.first, record.completed, *(t for span in record.spans for t in span[:2])}
        following = sorted({t for turn in turns for t in (turn, turn + 1) if start < t <= ALL})
        for turn in following:
            if not self.agreed(start, counting, verdict):
                return start
            start = turn
        return start

    def completed(self, name: str) -> int:
        """The first interval that the input has not completed."""
        record = self._inputs.get(name)
        return NEG_INF if record is None else record.completed

    def stable_point(self, name: str) -> int:
        """The last stable that the input has record."""
        record = self._inputs.get(name)
        return NEG_INF if record is None or record.digests is None else record.digests.stable_point

    # What can be asked.

    def reports(self) -> list[DivergenceReport]:
        """The attached inputs, in order of attachment."""
        return [self._report(record) for record in self._inputs.values() if record.attached]

    def report(self, name: str) -> DivergenceReport | None:
        record = self._inputs.get(name)
        return None if record is None else self._report(record)

    def divergent(self) -> list[Divergence]:
        """The most recent divergent intervals, newest first."""
        return [self._divergent[index] for index in sorted(self._divergent, reverse=True)]

    def beside(self, name: str, other: str, since: int) -> tuple[int, int | None]:
        """In how many intervals in a row, up to now, the present life of ``name`` and ``other`` have record the same, of
        those in which anybody says anything; and the first from ``since`` on in which they differ, if there is one.
        """
        mine, theirs = self._inputs.get(name), self._inputs.get(other)
        count, difference = 0, None
        if mine is None or theirs is None:
            return count, difference
        for index in sorted(index for index in self._indices if mine.first <= index < mine.completed):
            if not theirs.covers(index):
                continue
            if mine.digest(index) == theirs.digest(index):
                count += 1
            else:
                count = 0
                if index >= since and difference is None:
                    difference = index
        return count, difference

    @property
    def evidence_bytes(self) -> int:
        return self._evidence.bytes

    # Below: one interval at a time.

    def _end_life(self, record: _InputRecord) -> None:
        if record.digests is not None:
            self._complete(record)
        record.end_life()

    def _complete(self, record: _InputRecord) -> None:
        """Note the intervals that the input's stable point has passed."""
        assert record.digests is not None
        stable_point = record.digests.stable_point
        completed = completed_at(stable_point, self.interval)
        if stable_point == NEG_INF or completed <= record.completed:
            return
        taken = record.digests.take_below(completed)
        if not record.is_comparable:
            record.first = ALL
            return
        for index, digest in taken.items():
            if index >= max(record.first, self._forgotten_until):
                record.done[index] = digest
                self._indices.add(index)
        low = max(record.first, record.completed)
        record.completed = completed
        self._touched |= {index for index in self._indices if low <= index < completed}

    def _able(self, index: int, counting: Iterable[str]) -> list[_InputRecord]:
        """The active inputs that count and are, or will be, right for the interval."""
        inputs = (self._inputs.get(name) for name in counting)
        return [
            record for record in inputs
            if record is not None and record.attached and record.role == ACTIVE and record.is_comparable
            and (record.first <= index or record.covers(index))
        ]

    def _judge(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Enter the verdicts of an interval; the divergence, if it is one that has not been told like this."""
        participants = [record for record in self._inputs.values() if record.covers(index)]
        if len(participants) < 2:
            return None
        divergence = self._judgement(index, counting)
        for record in participants:
            same = divergence is None or record.digest(index) == divergence.majority
            record.verdicts[index] = same
        if divergence is None:
            return None
        before = self._divergent.get(index)
        if before is None:
            self.divergences += 1
        elif before[3:6] == divergence[3:6]:
            return None
        if self._is_news(index, participants):
            lives = {record.name: record.life_of(index) for record in participants}
            divergence = divergence._replace(findings=self._evidence.read(index, divergence.digests, lives))
        else:
            why = f"more than {EVIDENCE_IN_ROW} intervals in a row differ, and only the first are read"
            divergence = divergence._replace(findings=Findings(missing=why))
        self._divergent[index] = divergence
        return divergence

    def _judgement(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Without evidence, or with that of before."""
        digests = {record.name: record.digest(index) for record in self._inputs.values() if record.covers(index)}
        if len(set(digests.values())) < 2:
            return None
        able = self._able(index, counting)
        spoken = [record.digest(index) for record in able if record.covers(index)]
        majority = next((digest for digest in spoken if 2 * spoken.count(digest) > len(able)), None)
        outvoted = tuple(
            record.name for record in able if majority is not None and record.covers(index) and record.digest(index) != majority
        )
        start, end = bounds(index, self.interval)
        before = self._divergent.get(index)
        return Divergence(
            index, start, end, digests, majority, outvoted, Findings() if before is None else before.findings
        )

    def _is_news(self, index: int, participants: list[_InputRecord]) -> bool:
        """Whether evidence is worth reading: not if somebody has differed several times in a row already."""
        for record in participants:
            if not record.verdicts[index]:
                before = sorted((i for i in record.verdicts if i < index), reverse=True)[:EVIDENCE_IN_ROW]
                if len(before) < EVIDENCE_IN_ROW or any(record.verdicts[i] for i in before):
                    return True
        return False

    def _trim(self) -> None:
        """Keep a bounded number of intervals, and no batch that no attached input can still be compared by."""
        excess = len(self._indices) - self._intervals_kept
        if excess > 0:
            bound = sorted(self._indices)[excess]
            self._forgotten_until = bound
            self._indices = {index for index in self._indices if index >= bound}
            self._divergent = {index: d for index, d in self._divergent.items() if index >= bound}
            for record in self._inputs.values():
                record.forget_below(bound)
                record.first = max(record.first, bound)
        waiting = [record.completed for record in self._inputs.values() if record.attached and record.is_comparable]
        bound = min(waiting, default=NEG_INF)
        if bound > self._evidence_from:
            self._evidence_from = bound
            self._evidence.forget_below(bound)

    def _report(self, record: _InputRecord) -> DivergenceReport:
        in_row = 0
        for index in sorted(record.verdicts, reverse=True):
            if not record.verdicts[index]:
                break
            in_row += 1
        else:
            in_row += record.past.in_row
        problem = ""
        if record.attached and not record.is_comparable:
            problem = f"more than {self._open_max} intervals of {self.interval} were open at once; compare longer ones"
        return DivergenceReport(
            record.name, record.past.compared + len(record.verdicts), record.past.equal + sum(record.verdicts.values()), in_row,
            problem,
        )


def time_of(index: int, interval: int) -> int:
    """The largest stable point that leaves the interval ``index`` incomplete: that of the end of the one before."""
    if index == NEG_INF:
        return NEG_INF
    if index == INF_INTERVAL:
        return INF - 1
    return INF if index == ALL else bounds(index, interval)[0]
