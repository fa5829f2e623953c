"""Do the inputs of one merge agree, and what follows if not: the policies none, alarm, majority, hold, quarantine.

The hub asks at every point where it touches its merge; ``core.divergence`` compares, ``gate`` withholds stables. What
has to happen to inputs is given back as words, and the hub does it.

========== ============================================== ====================================================
policy     when inputs differ                             when too few are left to compare
========== ============================================== ====================================================
alarm      log, metric, report                            goes on
quarantine as alarm; who differs from more than half of   goes on; with two inputs there is no majority: alarm
           the active inputs that count is put out
majority   as quarantine, and the output's stable waits   one input is its own majority: goes on unchecked
           until more than half say the same
hold       as alarm, and the stable waits until all agree one input agrees with itself: goes on unchecked
========== ============================================== ====================================================
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from lmerge.core.batch import AnyBatch
from lmerge.core.divergence import Divergence, DivergenceMonitor, Report
from lmerge.core.elements import show_payload, show_time
from lmerge.core.inputs import ACTIVE
from lmerge.core.merge import InputDetached, InputStatus, Merge, Outcome
from lmerge.errors import LmergeError, Quarantined, StaleIncarnation, UsageError
from lmerge.service import log
from lmerge.service.gate import Gate, is_gated
from lmerge.service.lifecycle import JOINED, Life
from lmerge.service.settings import Settings

NONE: Final = "none"
ALARM: Final = "alarm"
MAJORITY: Final = "majority"
HOLD: Final = "hold"
QUARANTINE: Final = "quarantine"

# The first words of the reasons for which inputs end here.
QUARANTINED: Final = "quarantined: "
DETACHED: Final = "detached: "
# Names that may be put out at a time: the list is shown and stored. One more is ended, but may come back.
QUARANTINED_MAX: Final = 1024
_DIFFERENCES_TOLD: Final = 3
# R0-R2 show at once what one input says, and cannot take it back.
LACKS: Final = "keeps no events that inputs could agree on before they are frozen"


class Certifier:
    """Of one merge. ``kept``: what ``save`` was given last before a restart; ``save`` None: there is no store."""

    def __init__(
        self, name: str, merge: Merge, settings: Settings, kept: str | None = None,
        save: Callable[[str], None] | None = None,
    ) -> None:
        self.policy = settings.divergence
        self.quarantined: dict[str, str] = {} if kept is None else dict(json.loads(kept))  # name -> why
        self._name = name
        self._save = save
        self._settings = settings
        self.cutover_to = ""  # while one goes on
        self._changed = True  # whether who counts may have changed since the last ``settle``
        self._watchers: set[asyncio.Event] = set()
        self.begin_anew(merge)

    def begin_anew(self, merge: Merge) -> None:
        """``merge`` is fresh, and has no inputs: nothing that was heard before is compared with what they will say."""
        settings = self._settings
        self._merge = merge
        gated = self.policy in (MAJORITY, HOLD)
        self.monitor: DivergenceMonitor | None = None
        if self.policy != NONE:
            self.monitor = DivergenceMonitor(
                merge.engine, settings.certify_interval, starts=gated, evidence_bytes=settings.evidence_bytes,
                open_max=settings.certify_open_max,
            )
        self.gate: Gate | None = None
        if gated and self.monitor is not None:
            merge.require_index(LACKS)
            self.gate = Gate(merge, self.monitor, all_of_them=self.policy == HOLD)
        self.notice()

    # What inputs do.

    def check(self, name: str) -> None:
        """Raises Quarantined if this name may not attach."""
        why = self.quarantined.get(name)
        if why is not None:
            raise Quarantined(
                f"input {name!r} cannot attach to merge {self._name!r}: it was put out ({why}); "
                f"an administrator can let it in again: lmerge release {self._name} {name}"
            )

    def attached(self, name: str, incarnation: int, role: str, join_at: int | None) -> None:
        """``join_at``: as the input has said it."""
        self.notice()
        if self.monitor is not None:
            self.monitor.attach(name, incarnation, role, join_at)
        if self.gate is not None and is_gated(role):
            self.gate.attached(name)

    def gone(self, gone: InputDetached) -> None:
        """An input has ended. What one has said that broke a promise, or was put out, is not compared any more."""
        self.notice()
        if self.monitor is not None:
            self.monitor.detach(gone.input, forget=gone.violation is not None or gone.reason.startswith(QUARANTINED))
        if self.gate is not None:
            self.gate.gone(gone.input)

    def skipped(self, name: str, until: int) -> None:
        self.notice()
        if self.monitor is not None:
            self.monitor.skipped(name, until)

    def apply(self, name: str, batch: AnyBatch, incarnation: int) -> Outcome:
        """Merge a batch, and hear it; in whichever thread the merge is at work."""
        if self.gate is not None and self.gate.holds(name):
            outcome = self.gate.apply(name, batch, incarnation)
        else:
            outcome = self._merge.apply(name, batch, incarnation)
            if self.monitor is not None and not outcome.refused:
                self.monitor.heard(name, batch, _merged(outcome, name, batch))
        if outcome.joined or outcome.detached:
            self._changed = True
        return outcome

    def ending(self, gone: InputDetached) -> LmergeError | None:
        """The error with which the publisher of an input ends that was put out; None: it ended otherwise."""
        if gone.reason.startswith(QUARANTINED):
            return Quarantined(f"input {gone.input!r} of merge {self._name!r} was {gone.reason}")
        if gone.reason.startswith(DETACHED):
            return StaleIncarnation(
                f"input {gone.input!r} of merge {self._name!r}, incarnation {gone.incarnation}, was {gone.reason}; "
                "a new process may take its place"
            )
        return None

    # What follows.

    @property
    def is_due(self) -> bool:
        """Whether there is anything to settle."""
        return self.monitor is not None and (self._changed or self.monitor.is_due)

    def settle(self, lives: Callable[[], Iterable[tuple[InputStatus, Life]]]) -> list[tuple[str, str]]:
        """Compare; the inputs that have to be put out, each with the reason, which ``ending`` understands."""
        monitor = self.monitor
        self.notice()
        self._changed = False
        if monitor is None:
            return []
        counting = _counting(lives())
        for divergence in monitor.settle(counting):
            self._tell(divergence)
        if self.policy not in (QUARANTINE, MAJORITY):
            return []
        expelled = []
        for name, divergence in monitor.outvoted(counting).items():
            why = f"differs from more than half of the inputs in {words_of(divergence)}"
            expelled.append((name, self.quarantine(name, why)))
        return expelled

    def releases(self, lives: Callable[[], Iterable[tuple[InputStatus, Life]]]) -> Iterable[Outcome]:
        """Under majority and hold: the merge hears the stables that have been agreed on. After ``settle``."""
        if self.gate is None:
            return
        moved = True
        while moved:  # one that joins by what was released counts from there on
            statuses = list(lives())
            incarnations = {status.name: status.incarnation for status, _ in statuses}
            given = self.gate.releases(_counting(statuses))
            moved = False
            for name, t in given:
                if name in incarnations:
                    outcome = self.gate.give(name, t, incarnations[name])
                    moved = moved or bool(outcome.joined)
                    yield outcome

    # What administrators do.

    def quarantine(self, name: str, why: str) -> str:
        """Refuse this name from now on; the reason with which its input ends."""
        if name not in self.quarantined and len(self.quarantined) >= QUARANTINED_MAX:
            log.event(logging.ERROR, "too many quarantined names", merge=self._name, limit=QUARANTINED_MAX, input=name)
            return DETACHED + why
        self.quarantined[name] = why
        self._store()
        log.event(logging.WARNING, "input quarantined", merge=self._name, input=name, reason=why)
        return QUARANTINED + why

    def release(self, name: str) -> None:
        """Let it attach again. Raises UsageError if it was not put out."""
        if name not in self.quarantined:
            raise UsageError(f"input {name!r} of merge {self._name!r} cannot be released: it is not quarantined")
        del self.quarantined[name]
        self._store()
        log.event(logging.INFO, "input released", merge=self._name, input=name)

    # What can be asked.

    @property
    def divergences(self) -> int:
        """Intervals in which inputs differed."""
        return 0 if self.monitor is None else self.monitor.divergences

    def equal_in_row(self, name: str) -> int:
        report = None if self.monitor is None else self.monitor.report(name)
        return 0 if report is None else report.in_row

    @contextmanager
    def watching(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever an input came or went, or intervals were compared."""
        news = asyncio.Event()
        self._watchers.add(news)
        try:
            yield news
        finally:
            self._watchers.discard(news)

    def notice(self) -> None:
        """An input came, went, or counts from now on."""
        self._changed = True
        for news in self._watchers:
            news.set()

    def _store(self) -> None:
        if self._save is not None:
            self._save(json.dumps(self.quarantined))

    def _tell(self, divergence: Divergence) -> None:
        log.event(
            logging.WARNING, "inputs differ", merge=self._name, interval=_interval(divergence),
            digests={name: digest.events for name, digest in divergence.digests.items()},
            outvoted=list(divergence.outvoted), differences=words_of(divergence),
        )


def words_of(divergence: Divergence) -> str:
    """The interval and the first events that differ, for people."""
    told = [
        f"{show_payload(d.event.payload)} [{show_time(d.event.vs)}, {show_time(d.event.ve)}): "
        f"{_has(d.present)}, {', '.join(d.absent) or 'nobody'} without it"
        for d in divergence.findings.differences[:_DIFFERENCES_TOLD]
    ]
    rest = len(divergence.findings.differences) - len(told)
    if rest > 0:
        told.append(f"{rest} more")
    if divergence.findings.missing:
        told.append(divergence.findings.missing)
    return f"{_interval(divergence)}: {'; '.join(told)}"


def report_words(report: Report) -> str:
    """``v2 equal over 12 intervals``, for people."""
    if report.problem:
        return f"{report.name} is not compared: {report.problem}"
    if not report.compared:
        return f"{report.name} has not been compared yet"
    intervals = "1 interval" if report.in_row == 1 else f"{report.in_row} intervals"
    if report.in_row == report.compared:
        return f"{report.name} equal over {intervals}"
    differs = report.compared - report.equal
    return f"{report.name} equal over the last {intervals}, different in {differs} of {report.compared}"


def counted(present: Mapping[str, int]) -> list[str]:
    """The inputs that have an event, and how often if not once."""
    return [name if times == 1 else f"{name} ({times} times)" for name, times in present.items()]


def _has(present: Mapping[str, int]) -> str:
    return f"{', '.join(counted(present)) or 'nobody'} with it"


def _interval(divergence: Divergence) -> str:
    return f"[{show_time(divergence.start)}, {show_time(divergence.end)})"


def _counting(lives: Iterable[tuple[InputStatus, Life]]) -> list[str]:
    """The active inputs that are redundant to one another."""
    return [status.name for status, life in lives if status.role == ACTIVE and life.state(status) == JOINED]


def _merged(outcome: Outcome, name: str, batch: AnyBatch) -> int:
    """How many elements the merge took."""
    for gone in outcome.detached:
        if gone.input == name and gone.violation is not None:
            return min(gone.violation.index, batch.count)
    return batch.count
