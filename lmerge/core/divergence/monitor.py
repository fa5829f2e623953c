"""Do the inputs of a merge say the same? Compared per interval of Ve, as each input completes it.

Pure, like the merge: no clock, no I/O; the caller tells what inputs have said, ``settle`` says what follows from it.

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
    Digest,
    Digests,
    Heard,
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


class Verdict(NamedTuple):
    """When an interval is decided on. ``all_of_them``: all who are able must agree; otherwise more than half.
    ``excused``: inputs that are not waited for: when all others have completed the interval it is decided on as well,
    whatever they deliver; None: everybody is waited for. ``disputed``: intervals that one input alone cannot decide on.
    """

    all_of_them: bool = False
    excused: Collection[str] | None = None
    disputed: Collection[int] = ()


class Report(NamedTuple):
    """One input: compared intervals, those in which it was equal (to the majority, or to all others where there is
    none), equal ones in a row up to the last compared. ``problem``: why it is not compared; empty: it is."""

    name: str
    compared: int
    equal: int
    in_row: int
    problem: str = ""


class _Said:
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
        self.past = Report(name, 0, 0, 0)  # of those that are not

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
        """Intervals from ``first`` on will be said again."""
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
            self.past = Report(name, compared + 1, before + equal, in_row + 1 if equal else 0)


class DivergenceMonitor:
    """Compares the inputs of one merge. ``interval``: length in units of Ve. ``starts``: compare on Vs as well.

    ``evidence_bytes``: batches kept to name differences. ``open_max``: open intervals of one input; one that has more
    is not compared any longer (``Report.problem`` says so).
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
        self._inputs: dict[str, _Said] = {}
        self._evidence = Evidence(engine, interval, starts=starts, bytes_max=evidence_bytes)
        self._indices: set[int] = set()  # intervals in which somebody has completed something
        self._forgotten_until: int = NEG_INF  # intervals below cannot be compared any more
        self._divergent: dict[int, Divergence] = {}
        self._evidence_from: int = NEG_INF
        self._touched: set[int] = set()  # completed by somebody since the last ``settle``
        self.hash_name = digests_of(engine, interval, starts=starts, open_max=open_max).hash_name

    # What inputs do.

    def attach(self, name: str, incarnation: int, role: str, join_at: int | None) -> None:
        """``join_at``: as the input has said it; it is right for every event with Ve >= join_at."""
        said = self._inputs.pop(name, None) or _Said(name)
        self._inputs[name] = said  # last: those that have gone longest are first
        self._end_life(said)
        said.incarnation, said.role, said.attached = incarnation, role, True
        said.digests = digests_of(self._engine, self.interval, starts=self._with_starts, open_max=self._open_max)
        said.begin_life(max(first_from(join_at, self.interval), self._forgotten_until))

    def detach(self, name: str, *, forget: bool = False) -> None:
        """The input has gone. ``forget``: what it has said is not to be compared with any more."""
        said = self._inputs.get(name)
        if said is None:
            return
        self._end_life(said)
        if forget:
            said.spans, said.done = [], {}
            self._evidence.forget(name)
        gone = [other.name for other in self._inputs.values() if not other.attached]
        for longest in gone[: max(0, len(gone) - GONE_KEPT)]:
            del self._inputs[longest]
            self._evidence.forget(longest)

    def heard(self, name: str, batch: AnyBatch, stop: int) -> int | None:
        """The input has said the first ``stop`` elements of this batch. The index of one that its own stable point
        forbids, for a caller that has not asked the merge before; what comes from there on is not heard."""
        said = self._inputs.get(name)
        if said is None or said.digests is None:
            return None
        heard: Heard = said.digests.add(batch, stop)
        said.overflowed = said.digests.overflowed
        if said.is_comparable:
            self._evidence.keep(name, said.life, batch, stop, heard.touched)
        return heard.offender

    def skipped(self, name: str, until: int) -> None:
        """From here on the input leaves out events that end before ``until``: what it has completed stands."""
        said = self._inputs.get(name)
        if said is None or said.digests is None:
            return
        self._complete(said)
        first = first_from(until, self.interval)
        if first <= max(said.first, said.completed):
            return
        said.save_span()
        said.first = first

    # What follows.

    @property
    def is_due(self) -> bool:
        """Whether an input has completed an interval since the last ``settle``."""
        return bool(self._touched) or any(
            said.digests is not None and said.digests.stable_point > NEG_INF
            and completed_at(said.digests.stable_point, self.interval) > said.completed
            for said in self._inputs.values()
        )

    def settle(self, counting: Collection[str] = ()) -> list[Divergence]:
        """Compare what has been completed since the last call. ``counting``: the active inputs that count.

        Gives the intervals that were found divergent, or whose divergence looks different now, in order.
        """
        for said in self._inputs.values():
            if said.digests is not None:
                self._complete(said)
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

    def agreed(self, index: int, counting: Collection[str], verdict: Verdict) -> bool:
        """Whether the inputs that count and are right for the interval have decided on it, as ``verdict`` says. True as
        well if there are none, and it is not disputed: then nobody can ever say anything about it."""
        able = self._able(index, counting)
        if index in verdict.disputed and len(able) < 2:
            return False
        if not able:
            return True
        spoken = [said.digest(index) for said in able if said.covers(index)]
        most = max(map(spoken.count, set(spoken)), default=0)
        if verdict.all_of_them:
            return most == len(able)
        return 2 * most > len(able) or (
            verdict.excused is not None
            and all(said.covers(index) or said.name in verdict.excused for said in able)
        )

    def differing(self, index: int, counting: Iterable[str]) -> bool:
        """Whether two inputs that count have completed the interval and differ there."""
        return len({said.digest(index) for said in self._able(index, counting) if said.covers(index)}) > 1

    def differing_from(self, start: int, counting: Collection[str]) -> list[int]:
        """The remembered intervals from ``start`` on in which inputs that count differ."""
        return [index for index in sorted(self._divergent) if index >= start and self.differing(index, counting)]

    def late_for(self, index: int, counting: Iterable[str]) -> list[str]:
        """The inputs that count, are right for the interval, and have not completed it, if another one has."""
        able = self._able(index, counting)
        late = [said.name for said in able if not said.covers(index)]
        return late if len(late) < len(able) else []

    def agreed_below(self, start: int, counting: Collection[str], verdict: Verdict) -> int:
        """The first interval from ``start`` on that is not ``agreed``; between turning points nothing changes."""
        turns = {NEG_INF, *self._indices, *verdict.disputed}
        for name in counting:
            said = self._inputs.get(name)
            if said is not None and said.attached:
                turns |= {said.first, said.completed, *(t for span in said.spans for t in span[:2])}
        following = sorted({t for turn in turns for t in (turn, turn + 1) if start < t <= ALL})
        for turn in following:
            if not self.agreed(start, counting, verdict):
                return start
            start = turn
        return start

    def completed(self, name: str) -> int:
        """The first interval that the input has not completed."""
        said = self._inputs.get(name)
        return NEG_INF if said is None else said.completed

    def stable_point(self, name: str) -> int:
        """The last stable that the input has said."""
        said = self._inputs.get(name)
        return NEG_INF if said is None or said.digests is None else said.digests.stable_point

    # What can be asked.

    def reports(self) -> list[Report]:
        """The attached inputs, in order of attachment."""
        return [self._report(said) for said in self._inputs.values() if said.attached]

    def report(self, name: str) -> Report | None:
        said = self._inputs.get(name)
        return None if said is None else self._report(said)

    def divergent(self) -> list[Divergence]:
        """The most recent divergent intervals, newest first."""
        return [self._divergent[index] for index in sorted(self._divergent, reverse=True)]

    def beside(self, name: str, other: str, since: int) -> tuple[int, int | None]:
        """In how many intervals in a row, up to now, the present life of ``name`` and ``other`` have said the same, of
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

    def _end_life(self, said: _Said) -> None:
        if said.digests is not None:
            self._complete(said)
        said.end_life()

    def _complete(self, said: _Said) -> None:
        """Note the intervals that the input's stable point has passed."""
        assert said.digests is not None
        stable_point = said.digests.stable_point
        completed = completed_at(stable_point, self.interval)
        if stable_point == NEG_INF or completed <= said.completed:
            return
        taken = said.digests.take_below(completed)
        if not said.is_comparable:
            said.first = ALL
            return
        for index, digest in taken.items():
            if index >= max(said.first, self._forgotten_until):
                said.done[index] = digest
                self._indices.add(index)
        low = max(said.first, said.completed)
        said.completed = completed
        self._touched |= {index for index in self._indices if low <= index < completed}

    def _able(self, index: int, counting: Iterable[str]) -> list[_Said]:
        """The active inputs that count and are, or will be, right for the interval."""
        inputs = (self._inputs.get(name) for name in counting)
        return [
            said for said in inputs
            if said is not None and said.attached and said.role == ACTIVE and said.is_comparable
            and (said.first <= index or said.covers(index))
        ]

    def _judge(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Enter the verdicts of an interval; the divergence, if it is one that has not been told like this."""
        participants = [said for said in self._inputs.values() if said.covers(index)]
        if len(participants) < 2:
            return None
        divergence = self._judgement(index, counting)
        for said in participants:
            same = divergence is None or said.digest(index) == divergence.majority
            said.verdicts[index] = same
        if divergence is None:
            return None
        before = self._divergent.get(index)
        if before is None:
            self.divergences += 1
        elif before[3:6] == divergence[3:6]:
            return None
        if self._is_news(index, participants):
            lives = {said.name: said.life_of(index) for said in participants}
            divergence = divergence._replace(findings=self._evidence.read(index, divergence.digests, lives))
        else:
            why = f"more than {EVIDENCE_IN_ROW} intervals in a row differ, and only the first are read"
            divergence = divergence._replace(findings=Findings(missing=why))
        self._divergent[index] = divergence
        return divergence

    def _judgement(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Without evidence, or with that of before."""
        digests = {said.name: said.digest(index) for said in self._inputs.values() if said.covers(index)}
        if len(set(digests.values())) < 2:
            return None
        able = self._able(index, counting)
        spoken = [said.digest(index) for said in able if said.covers(index)]
        majority = next((digest for digest in spoken if 2 * spoken.count(digest) > len(able)), None)
        outvoted = tuple(
            said.name for said in able if majority is not None and said.covers(index) and said.digest(index) != majority
        )
        start, end = bounds(index, self.interval)
        before = self._divergent.get(index)
        return Divergence(
            index, start, end, digests, majority, outvoted, Findings() if before is None else before.findings
        )

    def _is_news(self, index: int, participants: list[_Said]) -> bool:
        """Whether evidence is worth reading: not if somebody has differed several times in a row already."""
        for said in participants:
            if not said.verdicts[index]:
                before = sorted((i for i in said.verdicts if i < index), reverse=True)[:EVIDENCE_IN_ROW]
                if len(before) < EVIDENCE_IN_ROW or any(said.verdicts[i] for i in before):
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
            for said in self._inputs.values():
                said.forget_below(bound)
                said.first = max(said.first, bound)
        waiting = [said.completed for said in self._inputs.values() if said.attached and said.is_comparable]
        bound = min(waiting, default=NEG_INF)
        if bound > self._evidence_from:
            self._evidence_from = bound
            self._evidence.forget_below(bound)

    def _report(self, said: _Said) -> Report:
        in_row = 0
        for index in sorted(said.verdicts, reverse=True):
            if not said.verdicts[index]:
                break
            in_row += 1
        else:
            in_row += said.past.in_row
        problem = ""
        if said.attached and not said.is_comparable:
            problem = f"more than {self._open_max} intervals of {self.interval} were open at once; compare longer ones"
        return Report(
            said.name, said.past.compared + len(said.verdicts), said.past.equal + sum(said.verdicts.values()), in_row,
            problem,
        )


def time_of(index: int, interval: int) -> int:
    """The largest stable point that leaves the interval ``index`` incomplete: that of the end of the one before."""
    if index == NEG_INF:
        return NEG_INF
    if index == INF_INTERVAL:
        return INF - 1
    return INF if index == ALL else bounds(index, interval)[0]
