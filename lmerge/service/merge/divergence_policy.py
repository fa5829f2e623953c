"""What follows when the inputs of one merge differ: the policies none, alarm, majority, hold, quarantine.

The hub calls this at every point where it touches its merge. ``core.divergence.monitor`` compares, ``stable_gate``
withholds stables. This module returns what has to happen to inputs, and the hub does it.

========== ============================================== ====================================================
policy     when inputs differ                             when too few are left to compare
========== ============================================== ====================================================
alarm      log, metric, report                            goes on
quarantine as alarm; an input that differs from more than goes on; with two inputs there is no majority: alarm
           half of the active inputs that count is
           quarantined; the output's stable waits for it,
           but for a late input only ``compare_wait_s``
majority   as quarantine, and waits without a bound until one input is its own majority: goes on unchecked
           more than half deliver the same
hold       as alarm, and the stable waits until all agree goes on unchecked, but not past an interval in which
                                                          inputs differed: see ``_disputed``
========== ============================================== ====================================================

**Disputed.** Under hold, an interval in which two inputs that count differ is *disputed*. The end of one of the two
does not decide it. The stable waits before it until one of these happens:

- two inputs agree on it;
- one of those that differed breaks a promise, or an administrator detaches it;
- an administrator lets the input that is left decide (``release``). With ``hold_survivor_wins`` it decides at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from lmerge import clock
from lmerge.core.batch import AnyBatch
from lmerge.core.detaching import DetachCause, InputDetached
from lmerge.core.divergence.compared_input import DivergenceReport
from lmerge.core.divergence.digests import bounds, interval_of
from lmerge.core.divergence.monitor import AgreementRule, Divergence, DivergenceMonitor
from lmerge.core.elements import show_time
from lmerge.core.inputs import InputRole
from lmerge.core.merge import InputStatus, Merge, Outcome
from lmerge.errors import LmergeError, Quarantined, StaleIncarnation, UsageError
from lmerge.service import log
from lmerge.service.choices import DivergencePolicy
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.occurrences import OccurrenceKind, Occurrences
from lmerge.service.merge.stable_gate import StableGate, is_gated
from lmerge.service.merge.stalled_merge import WaitTimer
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import row_formatter
from lmerge.wire.shown import escaped_line

# Names that may be refused at a time: the list is reported and persisted. A further input is ended, but may come back.
QUARANTINED_MAX: Final = 1024
_DIFFERENCES_REPORTED: Final = 3
# Disputed intervals in a status: the first ones are enough.
DISPUTED_REPORTED: Final = 16
# The names under which state is persisted, so that it outlives the server.
QUARANTINED_NAMES: Final = "quarantined"
DISPUTED: Final = "disputed"
# R0-R2 emit at once what one input delivers, and cannot retract it.
LACKS: Final = "keeps no events that inputs could agree on before they are frozen"


class Expulsion(NamedTuple):
    """Why an input is to be ended: the cause, and a sentence for people, with which its publisher's stream ends too."""

    cause: DetachCause
    reason: str


def expulsion(why: str) -> Expulsion:
    """Return the expulsion of an input whose name may come back."""
    return Expulsion(DetachCause.EXPELLED, f"detached: {why}")


class Certifier:
    """Applies the divergence policy to one merge.

    ``kept``: the texts that ``save`` persisted before a restart, by name. ``save`` None: there is no store. ``again``:
    runs a step, after which the hub settles once more. ``schema``: returns the schema of the rows, if one is declared.
    """

    def __init__(
        self,
        name: str,
        merge: Merge,
        settings: Settings,
        kept: Mapping[str, str] | None = None,
        save: Callable[[str, str], None] | None = None,
        again: Callable[[Callable[[], None]], None] | None = None,
        schema: Callable[[], pb.Schema | None] = lambda: None,
        occurrences: Occurrences | None = None,
    ) -> None:
        kept = kept or {}
        self._schema = schema
        self._occurrences = Occurrences(1) if occurrences is None else occurrences
        self.policy = settings.divergence_policy
        self.quarantined: dict[str, str] = dict(json.loads(kept.get(QUARANTINED_NAMES, "{}")))  # name -> why
        self._again = again
        self._wait_timer = WaitTimer(settings.compare_wait_s, self._excuse_late)
        self._name = name
        self._save = save
        self._settings = settings
        self.last_divergence_us: int | None = None  # wall clock
        self.cutover_to = ""  # while one goes on
        self._changed = True  # whether other inputs may count since the last ``settle``
        self._watchers: set[asyncio.Event] = set()
        self.begin_anew(merge)
        self._disputed |= {interval_of(t, settings.certify_interval) for t in json.loads(kept.get(DISPUTED, "[]"))}

    def begin_anew(self, merge: Merge) -> None:
        """Start with a fresh ``merge``, without inputs. Nothing of the merge before is compared with its inputs."""
        settings = self._settings
        self._merge = merge
        self._disputed: set[int] = set()  # under hold: intervals that one input alone cannot decide
        self._is_decided = False  # whether one of those that differed was detached since the last ``settle``
        self._late: list[str] = []  # under quarantine: inputs for which the stable waits
        self._excused: set[str] = set()  # under quarantine: inputs for which it does not wait any more
        gated = self.policy.withholds_stables
        self.monitor: DivergenceMonitor | None = None
        if self.policy is not DivergencePolicy.NONE:
            self.monitor = DivergenceMonitor(
                merge.engine,
                settings.certify_interval,
                starts=gated,
                evidence_bytes=settings.evidence_bytes,
                open_max=settings.certify_open_max,
            )
        self.gate: StableGate | None = None
        if gated and self.monitor is not None:
            merge.require_index(LACKS)
            self.gate = StableGate(merge, self.monitor)
        self.notice()

    # What inputs do.

    def check(self, name: str) -> None:
        """Raise Quarantined if this name may not attach."""
        why = self.quarantined.get(name)
        if why is not None:
            raise Quarantined(
                f"input {name!r} cannot attach to merge {self._name!r}: it is quarantined "
                f"({why}); an administrator can release it: lmerge release {self._name} {name}"
            )

    def attached(self, name: str, incarnation: int, role: InputRole, join_at: int | None) -> None:
        """Note that an input has attached. ``join_at``: as the input declared it."""
        self.notice()
        if self.monitor is not None:
            self.monitor.attach(name, incarnation, role, join_at)
        if self.gate is not None and is_gated(role):
            self.gate.attached(name)

    def gone(self, gone: InputDetached) -> None:
        """Note that an input has ended. If it broke a promise or was quarantined, the monitor forgets it."""
        self.notice()
        is_disowned = gone.cause in (DetachCause.BROKEN_PROMISE, DetachCause.QUARANTINED)
        self._is_decided = self._is_decided or is_disowned or gone.cause is DetachCause.EXPELLED
        self._excused.discard(gone.input)
        if self.monitor is not None:
            self.monitor.detach(gone.input, forget=is_disowned)
        if self.gate is not None:
            self.gate.gone(gone.input)

    def skipped(self, name: str, until: int) -> None:
        self.notice()
        if self.monitor is not None:
            self.monitor.skipped(name, until)

    def apply(self, name: str, batch: AnyBatch, incarnation: int) -> Outcome:
        """Merge a batch and pass it to the monitor. Called in the thread in which the merge works."""
        if self.gate is not None and self.gate.holds(name):
            outcome = self.gate.apply(name, batch, incarnation)
        else:
            outcome = self._merge.apply(name, batch, incarnation)
            if self.monitor is not None and not outcome.refused:
                self.monitor.receive(name, batch, _merged(outcome, name, batch))
        if outcome.joined or outcome.detached:
            self._changed = True
        return outcome

    def ending(self, gone: InputDetached) -> LmergeError | None:
        """Return the error for the publisher of an input that was quarantined or detached; None for other endings."""
        if gone.cause is DetachCause.QUARANTINED:
            return Quarantined(f"input {gone.input!r} of merge {self._name!r} was {gone.reason}")
        if gone.cause is DetachCause.EXPELLED:
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

    def settle(self, lives: Callable[[], Iterable[tuple[InputStatus, InputLifecycle]]]) -> list[tuple[str, Expulsion]]:
        """Compare the inputs; return those to detach, each with the reason."""
        monitor = self.monitor
        self.notice()
        self._changed = False
        if monitor is None:
            return []
        counting = _counting(lives())
        for divergence in monitor.settle(counting):
            self._log_divergence(divergence)
        self._note_disputed(counting)
        if self.policy not in (DivergencePolicy.QUARANTINE, DivergencePolicy.MAJORITY):
            return []
        expelled = []
        for name, divergence in monitor.outvoted(counting).items():
            why = f"differs from more than half of the inputs in {describe_divergence(divergence, self._schema())}"
            expelled.append((name, self.quarantine(name, why)))
        return expelled

    def releases(
        self, lives: Callable[[], Iterable[tuple[InputStatus, InputLifecycle]]]
    ) -> list[Callable[[], Outcome]]:
        """Return calls that give the merge each stable that is agreed on. A call may take long.

        None without a gate. To be called after ``settle``, and again if an input has joined by one of these stables,
        since it counts from then on.
        """
        if self.gate is None:
            return []
        statuses = list(lives())
        incarnations = {status.name: status.incarnation for status, _ in statuses}
        given = self.gate.releases(_counting(statuses), self._verdict())
        return [partial(self.gate.give, name, t, incarnations[name]) for name, t in given if name in incarnations]

    def wait_for_late(self, lives: Callable[[], Iterable[tuple[InputStatus, InputLifecycle]]]) -> None:
        """Under quarantine: begin or end the bounded wait for inputs that are late for the next interval.

        To be called after the last ``releases``.
        """
        if self.policy is not DivergencePolicy.QUARANTINE or self.gate is None or self.monitor is None:
            return
        until, counting = self.gate.agreed_until, _counting(lives())
        self._excused = {name for name in self._excused if self.monitor.completed(name) < until}
        self._late = [name for name in self.monitor.late_for(until, counting) if name not in self._excused]
        self._wait_timer.look(until if self._late else None)

    def _verdict(self) -> AgreementRule:
        if self.policy is DivergencePolicy.HOLD:
            return AgreementRule(all_of_them=True, disputed=self._disputed)
        return AgreementRule(excused=self._excused if self.policy is DivergencePolicy.QUARANTINE else None)

    def _note_disputed(self, counting: list[str]) -> None:
        """Under hold: record the intervals that are disputed from now on, and remove those that are decided."""
        if self.policy is not DivergencePolicy.HOLD or self._settings.hold_survivor_wins:
            return
        if self.gate is None or self.monitor is None:
            return
        start, before = self.gate.agreed_until, self._disputed
        differing = set(self.monitor.differing_from(start, counting))
        left = set() if self._is_decided else {index for index in before if index >= start}
        self._is_decided = False
        self._disputed = left | differing
        if self._disputed != before:
            self._store()

    def _excuse_late(self) -> None:
        def excuse() -> None:
            log.event(logging.WARNING, "late inputs not waited for", merge=self._name, inputs=self._late)
            self._excused.update(self._late)
            self.notice()

        if self._again is not None:
            self._again(excuse)

    def close(self) -> None:
        """Stop waiting."""
        self._wait_timer.look(None)

    # What administrators do.

    def quarantine(self, name: str, why: str) -> Expulsion:
        """Refuse this name from now on. Return why its input ends."""
        if name not in self.quarantined and len(self.quarantined) >= QUARANTINED_MAX:
            log.event(logging.ERROR, "too many quarantined names", merge=self._name, limit=QUARANTINED_MAX, input=name)
            return expulsion(why)
        self.quarantined[name] = why
        self._store()
        log.event(logging.WARNING, "input quarantined", merge=self._name, input=name, reason=why)
        return Expulsion(DetachCause.QUARANTINED, f"quarantined: {why}")

    def release(self, name: str) -> None:
        """Let this name attach again. Raises UsageError if it is not quarantined."""
        if name not in self.quarantined:
            raise UsageError(f"input {name!r} of merge {self._name!r} cannot be released: it is not quarantined")
        del self.quarantined[name]
        self._store()
        log.event(logging.INFO, "input released", merge=self._name, input=name)

    def decide_disputes_by(self, name: str) -> bool:
        """Under hold: decide the disputes that are left by what this input delivered. False: there are none.

        Raises UsageError if another input that is attached still differs from it.
        """
        if not self._disputed or name in self.quarantined or self.monitor is None or self.monitor.report(name) is None:
            return False
        attached = [report.name for report in self.monitor.reports()]
        if name not in attached:
            return False
        if any(self.monitor.differing(index, attached) for index in self._disputed):
            raise UsageError(
                f"input {name!r} of merge {self._name!r} cannot decide the disputed intervals: another one that is "
                f"attached differs from it; put that one out first: lmerge detach {self._name} REPLICA"
            )
        self._disputed = set()
        self._store()
        self.notice()
        log.event(logging.WARNING, "disputed intervals released", merge=self._name, input=name)
        return True

    # Queries.

    @property
    def disputed(self) -> list[str]:
        """The disputed intervals as text: the first ``DISPUTED_REPORTED``."""
        spans = [bounds(index, self._settings.certify_interval) for index in sorted(self._disputed)[:DISPUTED_REPORTED]]
        return [f"[{show_time(start)}, {show_time(end)})" for start, end in spans]

    @property
    def divergences(self) -> int:
        """How many intervals there were in which inputs differed."""
        return 0 if self.monitor is None else self.monitor.divergences

    def equal_in_row(self, name: str) -> int:
        report = None if self.monitor is None else self.monitor.report(name)
        return 0 if report is None else report.in_row

    def compared_in_life(self, name: str) -> tuple[int, int]:
        """Return the equal intervals in a row, and all unequal ones, of the present incarnation of an input."""
        return (0, 0) if self.monitor is None else self.monitor.in_life(name)

    @contextmanager
    def watching(self) -> Iterator[asyncio.Event]:
        """Give an event that is set whenever an input attaches, joins or ends, or intervals are compared."""
        news = asyncio.Event()
        self._watchers.add(news)
        try:
            yield news
        finally:
            self._watchers.discard(news)

    def notice(self) -> None:
        """Note that an input has attached, ended, or counts from now on."""
        self._changed = True
        for news in self._watchers:
            news.set()

    def _store(self) -> None:
        if self._save is not None:
            interval = self._settings.certify_interval
            self._save(QUARANTINED_NAMES, json.dumps(self.quarantined))
            self._save(DISPUTED, json.dumps([bounds(index, interval)[0] for index in sorted(self._disputed)]))

    def _log_divergence(self, divergence: Divergence) -> None:
        self.last_divergence_us = clock.wall_us()
        names, others = (divergence.outvoted, " from the others") if divergence.outvoted else (divergence.digests, "")
        differ = "differs" if len(names) == 1 else "differ"
        self._occurrences.note(
            OccurrenceKind.DIFFERED, f"{', '.join(names)} {differ}{others} in {_interval(divergence)}"
        )
        log.event(
            logging.WARNING,
            "inputs differ",
            merge=self._name,
            interval=_interval(divergence),
            digests={name: digest.events for name, digest in divergence.digests.items()},
            outvoted=list(divergence.outvoted),
            differences=describe_divergence(divergence, self._schema()),
        )


def describe_divergence(divergence: Divergence, declared: pb.Schema | None) -> str:
    """Return the interval and the first events that differ, as text. Rows that fit the schema show their columns."""
    payload_text = row_formatter(declared)
    texts = [
        f"{escaped_line(payload_text(d.event.payload))} [{show_time(d.event.vs)}, {show_time(d.event.ve)}): "
        f"{_has(d.present)}, {', '.join(d.absent) or 'none'} without it"
        for d in divergence.findings.differences[:_DIFFERENCES_REPORTED]
    ]
    rest = len(divergence.findings.differences) - len(texts)
    if rest > 0:
        texts.append(f"{rest} more")
    if divergence.findings.missing:
        texts.append(divergence.findings.missing)
    return f"{_interval(divergence)}: {'; '.join(texts)}"


def describe_report(report: DivergenceReport) -> str:
    """Return a sentence such as ``v2 equal over 12 intervals``."""
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
    """Return the inputs that have an event, each with the number of times if it is not 1."""
    return [name if times == 1 else f"{name} ({times} times)" for name, times in present.items()]


def _has(present: Mapping[str, int]) -> str:
    return f"{', '.join(counted(present)) or 'none'} with it"


def _interval(divergence: Divergence) -> str:
    return f"[{show_time(divergence.start)}, {show_time(divergence.end)})"


def _counting(lives: Iterable[tuple[InputStatus, InputLifecycle]]) -> list[str]:
    """Return the active inputs that count, also those whose leave waits behind their last batches."""
    return [status.name for status, life in lives if life.counts(status)]


def _merged(outcome: Outcome, name: str, batch: AnyBatch) -> int:
    """Return how many elements of the batch the merge accepted."""
    for gone in outcome.detached:
        if gone.input == name and gone.violation is not None:
            return min(gone.violation.index, batch.count)
    return batch.count
