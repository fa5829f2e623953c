"""Compare what the inputs of a merge delivered, per interval of Ve, when each input completes the interval.

Pure, like the merge: no clock, no I/O. The caller passes in what inputs deliver; ``settle`` returns the differences.

    intervals of Ve      0    1    2    3    4    5
    a  (from the start)  =    =    =    =    .           completed up to 4
    b  (join_at in 1)         ,    =    =    =    .      completed up to 5; 1 began before its join_at
    o  (observes)        =    =    x    .                2 differs from both others

An input has *completed* an interval when its own stable point has reached the end of the interval. It is *right for*
an interval that begins at or after its join_at and after what it skipped. Two equivalent streams have the same digest
for every interval that both have completed and are right for. So a difference there is a difference of the tables. It
is never a difference of order, timing or revisions, and never the effect of a reconnect or a fast-forward.

An input that attaches again keeps the intervals that its earlier lives completed. A majority is more than half of the
active inputs that count (joined, not leaving or skipping) and are right for the interval. An observer is compared with
the others and is never part of a majority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.divergence.compared_input import ComparedInput, DivergenceReport
from lmerge.core.divergence.digests import ALL, INF_INTERVAL, AddOutcome, Digest, bounds, completed_at, first_from
from lmerge.core.divergence.engine_digests import digests_of
from lmerge.core.divergence.evidence import Evidence, Findings
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import InputRole

# Compared intervals are kept for inputs that attach later: 100 bytes each per input.
INTERVALS_KEPT: Final = 1024
# Inputs that have left are still compared. Of more names than this, the one that left first is forgotten.
GONE_KEPT: Final = 64
# A replica with another plan differs in every interval. The first few show why; the others are not read.
EVIDENCE_IN_ROW: Final = 3


class Divergence(NamedTuple):
    """An interval in which inputs differ.

    ``digests``: of the inputs that have completed it. ``majority``: the digest of more than half of the active inputs
    that count; None if there is no majority. ``outvoted``: the inputs that differ from the majority.
    """

    interval: int
    start: int
    end: int
    digests: dict[str, Digest]
    majority: Digest | None
    outvoted: tuple[str, ...]
    findings: Findings


class AgreementRule(NamedTuple):
    """The rule by which the inputs decide on an interval.

    ``all_of_them``: all inputs that are right for the interval must agree; otherwise more than half of them.
    ``excused``: inputs that are not waited for. When all others have completed the interval, it is decided on as well,
    whatever the excused ones deliver. None: every input is waited for. ``disputed``: intervals that need more than one
    input for a decision.
    """

    all_of_them: bool = False
    excused: Collection[str] | None = None
    disputed: Collection[int] = ()


class DivergenceMonitor:
    """Compares the inputs of one merge.

    ``interval``: length in units of Ve. ``starts``: compare on Vs as well. ``evidence_bytes``: bytes of batches that
    are kept to name differences. ``open_max``: open intervals of one input. An input with more is not compared any
    longer, and ``DivergenceReport.problem`` gives the reason.
    """

    def __init__(
        self,
        engine: str,
        interval: int,
        *,
        starts: bool = False,
        evidence_bytes: int = 0,
        open_max: int = 65_536,
        intervals_kept: int = INTERVALS_KEPT,
    ) -> None:
        self.interval = interval
        self.divergences = 0  # intervals in which inputs differed
        self._engine = engine
        self._with_starts = starts
        self._open_max = open_max
        self._intervals_kept = intervals_kept
        self._inputs: dict[str, ComparedInput] = {}
        self._evidence = Evidence(engine, interval, starts=starts, bytes_max=evidence_bytes)
        self._indices: set[int] = set()  # intervals that an input has completed and that are not empty
        self._forgotten_until: int = NEG_INF  # intervals below this one cannot be compared any more
        self._divergent: dict[int, Divergence] = {}
        self._evidence_from: int = NEG_INF
        self._touched: set[int] = set()  # intervals that an input has completed since the last ``settle``
        self.hash_name = digests_of(engine, interval, starts=starts, open_max=open_max).hash_name

    # What inputs do.

    def attach(self, name: str, incarnation: int, role: InputRole, join_at: int | None) -> None:
        """Attach an input. ``join_at``: as the input declared it; it is right for every event with Ve >= join_at."""
        record = self._inputs.pop(name, None) or ComparedInput(name, self.interval, self._open_max)
        self._inputs[name] = record  # at the end, so the inputs that left first stand first
        self._end_life(record)
        record.incarnation, record.role, record.attached = incarnation, role, True
        record.digests = digests_of(self._engine, self.interval, starts=self._with_starts, open_max=self._open_max)
        record.begin_life(max(first_from(join_at, self.interval), self._forgotten_until))

    def detach(self, name: str, *, forget: bool = False) -> None:
        """Detach an input. ``forget``: also drop what it delivered, so it is not compared any more."""
        record = self._inputs.get(name)
        if record is None:
            return
        self._end_life(record)
        if forget:
            record.spans, record.done = [], {}
            self._evidence.forget(name)
        gone = [other.name for other in self._inputs.values() if not other.attached]
        for oldest in gone[: max(0, len(gone) - GONE_KEPT)]:
            del self._inputs[oldest]
            self._evidence.forget(oldest)

    def receive(self, name: str, batch: AnyBatch, stop: int) -> int | None:
        """Take the first ``stop`` elements of a batch that the input has delivered.

        Returns the index of an element that the input's own stable point forbids, None if there is none. That serves
        callers that have not passed the batch to the merge. The elements from that index on are not taken.
        """
        record = self._inputs.get(name)
        if record is None or record.digests is None:
            return None
        outcome: AddOutcome = record.digests.add(batch, stop)
        record.overflowed = record.digests.overflowed
        if record.is_comparable:
            self._evidence.keep(name, record.life, batch, stop, outcome.touched)
        return outcome.offender

    def skipped(self, name: str, until: int) -> None:
        """From now on the input leaves out events that end before ``until``. What it has completed stays."""
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
        """Whether an input has completed an interval since the last ``settle``. O(inputs)."""
        return bool(self._touched) or any(
            record.digests is not None
            and record.digests.stable_point > NEG_INF
            and completed_at(record.digests.stable_point, self.interval) > record.completed
            for record in self._inputs.values()
        )

    def settle(self, counting: Collection[str] = ()) -> list[Divergence]:
        """Compare the intervals that were completed since the last call. ``counting``: the active inputs that count.

        Returns, in order, the divergent intervals that are new or whose divergence has changed.
        """
        for record in self._inputs.values():
            if record.digests is not None:
                self._complete(record)
        found = []
        for index in sorted(self._touched):
            divergence = self._compare(index, counting)
            if divergence is not None:
                found.append(divergence)
        self._touched.clear()
        self._trim()
        return found

    def outvoted(self, counting: Collection[str]) -> dict[str, Divergence]:
        """Return the attached active inputs that differ from a majority, each with the first interval where it does."""
        found: dict[str, Divergence] = {}
        for index in sorted(self._divergent):
            divergence = self._divergence_at(index, counting)
            for name in divergence.outvoted if divergence is not None else ():
                if self._inputs[name].attached:
                    found.setdefault(name, divergence or self._divergent[index])
        return found

    def agreed(self, index: int, counting: Collection[str], rule: AgreementRule) -> bool:
        """Return whether the inputs that count and are right for the interval have decided on it, by ``rule``.

        Also True if there is no such input and the interval is not disputed: no input can complete it any more.
        """
        able = self._able(index, counting)
        if index in rule.disputed and len(able) < 2:
            return False
        if not able:
            return True
        digests = [record.digest(index) for record in able if record.covers(index)]
        most = max(map(digests.count, set(digests)), default=0)
        if rule.all_of_them:
            return most == len(able)
        return 2 * most > len(able) or (
            rule.excused is not None and all(record.covers(index) or record.name in rule.excused for record in able)
        )

    def differing(self, index: int, counting: Iterable[str]) -> bool:
        """Return whether two inputs that count have completed the interval and differ there."""
        return len({record.digest(index) for record in self._able(index, counting) if record.covers(index)}) > 1

    def differing_from(self, start: int, counting: Collection[str]) -> list[int]:
        """Return the kept intervals from ``start`` on in which inputs that count differ."""
        return [index for index in sorted(self._divergent) if index >= start and self.differing(index, counting)]

    def late_for(self, index: int, counting: Iterable[str]) -> list[str]:
        """Return the inputs that count and are right for the interval but have not completed it.

        Empty if no input has completed it.
        """
        able = self._able(index, counting)
        late = [record.name for record in able if not record.covers(index)]
        return late if len(late) < len(able) else []

    def agreed_below(self, start: int, counting: Collection[str], rule: AgreementRule) -> int:
        """Return the first interval from ``start`` on that is not ``agreed``.

        Only the intervals at which the answer can change are checked, not every interval between them.
        """
        turns = {NEG_INF, *self._indices, *rule.disputed}
        for name in counting:
            record = self._inputs.get(name)
            if record is not None and record.attached:
                turns |= {record.first, record.completed, *(t for span in record.spans for t in span[:2])}
        following = sorted({t for turn in turns for t in (turn, turn + 1) if start < t <= ALL})
        for turn in following:
            if not self.agreed(start, counting, rule):
                return start
            start = turn
        return start

    def completed(self, name: str) -> int:
        """Return the first interval that the input has not completed."""
        record = self._inputs.get(name)
        return NEG_INF if record is None else record.completed

    def stable_point(self, name: str) -> int:
        """Return the last stable point that the input has delivered."""
        record = self._inputs.get(name)
        return NEG_INF if record is None or record.digests is None else record.digests.stable_point

    # Queries.

    def reports(self) -> list[DivergenceReport]:
        """Return the reports of the attached inputs, in order of attachment."""
        return [record.report() for record in self._inputs.values() if record.attached]

    def report(self, name: str) -> DivergenceReport | None:
        record = self._inputs.get(name)
        return None if record is None else record.report()

    def in_life(self, name: str) -> tuple[int, int]:
        """Return the equal intervals in a row up to now, and all unequal ones, of the present life of an input."""
        record = self._inputs.get(name)
        return (0, 0) if record is None else record.in_life()

    def divergent(self) -> list[Divergence]:
        """Return the kept divergent intervals, newest first."""
        return [self._divergent[index] for index in sorted(self._divergent, reverse=True)]

    def beside(self, name: str, other: str, since: int) -> tuple[int, int | None]:
        """Compare the current life of ``name`` with ``other``, over the intervals that are not empty.

        Returns the number of equal intervals in a row up to now, and the first interval from ``since`` on in which
        they differ, None if there is none.
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

    # One interval at a time.

    def _end_life(self, record: ComparedInput) -> None:
        if record.digests is not None:
            self._complete(record)
        record.end_life()

    def _complete(self, record: ComparedInput) -> None:
        """Move the intervals that the input's stable point has passed from the open ones to the completed ones."""
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

    def _able(self, index: int, counting: Iterable[str]) -> list[ComparedInput]:
        """Return the active inputs that count and are, or will be, right for the interval."""
        inputs = (self._inputs.get(name) for name in counting)
        return [
            record
            for record in inputs
            if record is not None
            and record.attached
            and record.role is InputRole.ACTIVE
            and record.is_comparable
            and (record.first <= index or record.covers(index))
        ]

    def _compare(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Enter which inputs are equal in an interval. Return its divergence if that is new or has changed."""
        participants = [record for record in self._inputs.values() if record.covers(index)]
        if len(participants) < 2:
            return None
        divergence = self._divergence_at(index, counting)
        for record in participants:
            same = divergence is None or record.digest(index) == divergence.majority
            record.is_equal[index] = same
        if divergence is None:
            return None
        before = self._divergent.get(index)
        if before is None:
            self.divergences += 1
        elif before[3:6] == divergence[3:6]:
            return None
        if self._needs_evidence(index, participants):
            lives = {record.name: record.life_of(index) for record in participants}
            divergence = divergence._replace(findings=self._evidence.read(index, divergence.digests, lives))
        else:
            why = f"more than {EVIDENCE_IN_ROW} intervals in a row differ, and only the first are read"
            divergence = divergence._replace(findings=Findings(missing=why))
        self._divergent[index] = divergence
        return divergence

    def _divergence_at(self, index: int, counting: Collection[str]) -> Divergence | None:
        """Return the divergence of an interval, None if its inputs are equal. Evidence already read is kept."""
        digests = {record.name: record.digest(index) for record in self._inputs.values() if record.covers(index)}
        if len(set(digests.values())) < 2:
            return None
        able = self._able(index, counting)
        delivered = [record.digest(index) for record in able if record.covers(index)]
        majority = next((digest for digest in delivered if 2 * delivered.count(digest) > len(able)), None)
        outvoted = tuple(
            record.name
            for record in able
            if majority is not None and record.covers(index) and record.digest(index) != majority
        )
        start, end = bounds(index, self.interval)
        before = self._divergent.get(index)
        return Divergence(
            index, start, end, digests, majority, outvoted, Findings() if before is None else before.findings
        )

    def _needs_evidence(self, index: int, participants: list[ComparedInput]) -> bool:
        """Return whether to read evidence: an input differs that has not differed in the last intervals as well."""
        for record in participants:
            if not record.is_equal[index]:
                before = sorted((i for i in record.is_equal if i < index), reverse=True)[:EVIDENCE_IN_ROW]
                if len(before) < EVIDENCE_IN_ROW or any(record.is_equal[i] for i in before):
                    return True
        return False

    def _trim(self) -> None:
        """Drop intervals above the bound, and batches that no comparison of an attached input needs any more."""
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


def time_of(index: int, interval: int) -> int:
    """Return the largest stable point that leaves the interval ``index`` incomplete: the end of the one before."""
    if index == NEG_INF:
        return NEG_INF
    if index == INF_INTERVAL:
        return INF - 1
    return INF if index == ALL else bounds(index, interval)[0]
