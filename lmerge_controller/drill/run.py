"""Runs one scenario against one target, and judges what the reader of the probe received.

Called by the command ``drill``. One thread: it waits, breaks, waits, undoes, and waits for the redundancy to come back.
Everything that it changes is in the journal first. Whatever ends a run (a failure, the time limit, Ctrl-C), what it has
broken is undone before the verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, Unavailable, UsageError
from lmerge_controller.drill.cutover import cut_over, long_intervals
from lmerge_controller.drill.judging.judge import ProbeJudge
from lmerge_controller.drill.judging.verdict import SETTLE_S, DrillVerdict, FaultRecord, judged
from lmerge_controller.drill.judging.watched import WatchVerdict, has_gone_on, watch_verdict
from lmerge_controller.drill.observe import LAG_US_MAX, report_merge
from lmerge_controller.drill.probe.fleet import MERGE, ProbeFleet
from lmerge_controller.drill.probe.trace import read_trace
from lmerge_controller.drill.probe.watch import UserStreamWatch
from lmerge_controller.drill.redundancy import MergeReports, is_noticed, refusal, unmet_needs
from lmerge_controller.drill.scenario import RECOVERY_S, START_S_MAX, DrillScenario, DrillStep, FaultKind, VictimKind
from lmerge_controller.drill.targets.sandbox import SERVER_ABILITIES
from lmerge_controller.drill.targets.target import DrillTarget, Undo

POLL_S: Final = 0.02
# How often the servers are asked while the redundancy comes back: each time costs a connection to each of them.
OBSERVE_S: Final = 0.2
# The stream goes on for so long after the last fault, so that its pause has an end.
AFTER_S: Final = 2 * SETTLE_S
# A kill is noticed at once, a full disk at the next commit, a lie when its interval is over.
NOTICE_S_MAX: Final = 10.0
# From the order to end until everything is delivered: events live for up to 2 s; a server that compares inputs
# withholds stables for up to its interval, a minute by default; and a loaded machine is slow.
END_S_MAX: Final = 90.0
# For the stable point of a user's stream after the last fault: so long, and so many times its longest quiet stall.
GO_ON_S_MIN: Final = 5.0
GO_ON_STALLS: Final = 5.0
REPLICA_ABILITIES: Final = ("kill replica", "freeze replica", "lie replica", "skew-clock replica", "cutover replica")
LINK_ABILITIES: Final = ("cut replica", "slow replica", "cut server", "slow server")
SANDBOX_ABILITIES: Final = frozenset((*REPLICA_ABILITIES, *LINK_ABILITIES, *SERVER_ABILITIES))
DIRECTIONS: Final = {"up": ("up",), "down": ("down",), "both": ("up", "down")}


@dataclass(frozen=True)
class DrillRecord:
    """What was recorded in a run. Times are monotonic seconds; ``began_at``: wall seconds since the epoch.

    ``stream_ended_s``: when the publishers were ordered to end. ``watched``: what became of the user's streams.
    """

    began_at: float
    began_s: float
    stream_ended_s: float
    ended_s: float
    verdict: DrillVerdict
    watched: tuple[WatchVerdict, ...] = ()


def abilities_of(target: DrillTarget) -> frozenset[str]:
    """Return what can be broken at a target, with the probe's own replicas and links."""
    return frozenset((*REPLICA_ABILITIES, *LINK_ABILITIES, *target.breaks))


class DrillRun:
    """One run. ``protected``: merges of users on the servers, which no fault of a server may interrupt."""

    def __init__(
        self,
        scenario: DrillScenario,
        target: DrillTarget,
        fleet: ProbeFleet,
        protected: Sequence[str],
        report: Callable[[str], None],
        watches: Sequence[UserStreamWatch] = (),
    ) -> None:
        self._scenario, self._target, self._fleet = scenario, target, fleet
        self._protected = list(protected)
        self._report = report
        self._watches = watches
        self._faults: list[FaultRecord] = []
        self._deadline_s = time.monotonic() + scenario.limit_s(len(target.addresses))
        self._first_stable = NEG_INF
        self._stream_ended_s = 0.0
        # Of users' merges that a fault touches: the inputs that were there before, which must come back.
        self._expected: dict[str, frozenset[str]] = {}

    def run(self) -> DrillRecord:
        """Run all steps and judge. Raises UsageError if it refuses, before anything is broken; Unavailable."""
        began_at, began_s = time.time(), time.monotonic()
        self._begin()
        problem = self._steps()
        self._fleet.read_messages()
        count = self._end(problem)
        ended_s = time.monotonic()
        judge = ProbeJudge(self._fleet.truth_of(), stable_point=self._first_stable)
        for at_s, elements in read_trace(self._fleet.recording):
            judge.take(elements, at_s)
        verdict = judged(
            judge.findings(count), self._faults, self._scenario.limits, ended_s=ended_s, gaps=self._fleet.reader.gaps
        )
        watched = tuple(
            watch_verdict(watch.stream(), self._faults, ended_s=self._stream_ended_s) for watch in self._watches
        )
        theirs = [reason for found in watched for reason in found.reasons]
        verdict = replace(verdict, reasons=(*([problem] if problem else []), *verdict.reasons, *theirs))
        return DrillRecord(began_at, began_s, self._stream_ended_s, ended_s, verdict, watched)

    # The beginning and the end.

    def _begin(self) -> None:
        """Start the probe and wait until its redundancy is whole. Raises UsageError if the target lacks something."""
        fleet, needs = self._fleet, self._scenario.needs
        for _ in range(needs.replicas):
            fleet.add()
        self._wait(lambda: all(item.has_attached for item in fleet.replicas.values()), START_S_MAX, "publishers attach")
        first = self._probe_reports()
        self._first_stable = max((server.stable_point for server in first.answering), default=NEG_INF)
        fleet.start_reader(self._first_stable, max((server.epoch for server in first.answering), default=0))
        fleet.begin(self._scenario.events_per_s, self._first_stable)
        if self._whole_at(START_S_MAX) is None:
            raise Unavailable(f"the probe's replicas did not join: {'; '.join(self._lacks())}")
        self._wait(self._is_watching, START_S_MAX, "the user's streams are read")
        lacks = unmet_needs(self._scenario, abilities_of(self._target), needs.replicas, self._probe_reports())
        if any(step.fault is FaultKind.CUTOVER for step in self._scenario.steps):
            lacks += long_intervals(self._target)
        if lacks:
            raise UsageError(f"drill {self._scenario.name} is refused: {'; '.join(lacks)}")

    def _steps(self) -> str:
        """Run the steps. Return why they ended before the last one, or an empty text."""
        try:
            for step in self._scenario.steps:
                for victims in self._victims(step):
                    if not self._fault(step, victims):
                        return f"the drill stopped after {step.text}"
        except TimeoutError as late:
            return str(late)
        return ""

    def _end(self, problem: str) -> int:
        """Let the stream end. Return how many events it had."""
        if not problem:
            self._hold(AFTER_S)
            with suppress(TimeoutError):  # the verdict names the stream that stands
                self._wait(self._have_gone_on, self._go_on_s(), "the user's streams go on")
        self._stream_ended_s = time.monotonic()
        count = self._fleet.order_end()
        with suppress(TimeoutError):  # the judge finds what did not come
            self._wait(lambda: self._fleet.reader.is_done, END_S_MAX, "")
        return count

    # One fault.

    def _victims(self, step: DrillStep) -> Iterator[list[str]]:
        """Yield the victims of each fault of a step, those that fall at once together."""
        which = step.victim.which
        for _ in range(step.repeat):
            if step.victim.kind is not VictimKind.REPLICA:
                last = self._target.numbers.get(step.victim.kind.value, 0)
                for number in range(1, last + 1) if which == "each" else [which]:
                    yield [str(number)]
            elif isinstance(which, int):
                yield [self._fleet.by_number(which)]
            else:
                winner = self._probe_reports().winner()
                yield [winner] if which == "winner" else sorted(self._fleet.names - {winner})

    def _fault(self, step: DrillStep, victims: list[str]) -> bool:
        """Wait, break, hold, undo, and wait for the redundancy. Return whether the drill can go on."""
        self._hold(step.after_s)
        reasons = refusal(step, len(victims), self._merges(step))
        name = ", ".join(_short(victim) for victim in victims)
        what = f"{step.fault.value} {step.victim.kind.value}"
        if reasons and not self._faults:
            raise UsageError(f"drill {self._scenario.name} is refused: {'; '.join(reasons)}")
        if reasons:
            now_s = time.monotonic()
            self._faults.append(FaultRecord(what, name, now_s, now_s, now_s, f"refused: {'; '.join(reasons)}"))
            return False
        self._report(f"{what} {name}")
        self._expected = {merge.merge: _joined_somewhere(merge) for merge in self._merges(step)[1:]}
        record = self._broken(step, victims, FaultRecord(what, name, time.monotonic(), 0.0))
        limit_s = self._scenario.limits.recovery_s or RECOVERY_S
        recovered_s = self._whole_at(limit_s)
        self._faults.append(replace(record, recovered_s=recovered_s))
        return recovered_s is not None and not record.problem

    def _broken(self, step: DrillStep, victims: list[str], record: FaultRecord) -> FaultRecord:
        """Break the victims, hold them, and undo it. Return the record with its end, and with what went wrong."""
        undos: list[Undo] = []
        problems: list[str] = []
        try:
            for victim in victims:
                undos.append(self._break(step, victim))
            # Whoever keeps the servers may have mended it when the hold is over.
            was_noticed = is_noticed(step, victims, self._probe_reports())
            self._hold(step.hold_s)
            if not was_noticed and not self._is_noticed_in_time(step, victims):
                problems.append("the servers have not noticed it")
        except LmergeError as error:
            problems.append(str(error))
        finally:
            for undo in reversed(undos):
                try:
                    undo()
                except LmergeError as error:
                    problems.append(f"not undone: {error}")
            self._report("undone")
        return replace(record, until_s=time.monotonic(), problem="; ".join(problems))

    def _break(self, step: DrillStep, victim: str) -> Undo:
        fleet = self._fleet
        own: Mapping[str, Callable[[], Undo]] = {
            "kill replica": lambda: fleet.kill(victim),
            "freeze replica": lambda: fleet.freeze(victim),
            "lie replica": lambda: fleet.lie(victim),
            "skew-clock replica": lambda: fleet.skew(victim, step.options["seconds"]),
            "cutover replica": lambda: cut_over(fleet, self._target, victim, step, self._wait),
            "cut replica": lambda: fleet.cut(fleet.links_of(victim), DIRECTIONS[step.options["direction"]]),
            "cut server": lambda: fleet.cut(fleet.links_to(int(victim) - 1), DIRECTIONS[step.options["direction"]]),
            "slow replica": lambda: fleet.slow(fleet.links_of(victim), step.options["delayMs"] / 1e3),
            "slow server": lambda: fleet.slow(fleet.links_to(int(victim) - 1), step.options["delayMs"] / 1e3),
        }
        if step.ability in own:
            return own[step.ability]()
        return self._target.breaks[step.ability](int(victim), step)

    # Waiting and observing.

    def _hold(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        self._wait(lambda: time.monotonic() >= until_s, seconds + 1.0, "time passes")

    def _wait(self, is_met: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait for a condition. Raises TimeoutError after ``limit_s`` seconds, or at the drill's time limit."""
        until_s = time.monotonic() + limit_s
        while True:
            self._fleet.read_messages()
            self._target.check()
            if is_met():
                return
            now_s = time.monotonic()
            if now_s >= self._deadline_s:
                raise TimeoutError("the drill has reached its time limit")
            if now_s >= until_s:
                raise TimeoutError(f"waited {limit_s:.0f} s until {what}")
            time.sleep(POLL_S)

    def _whole_at(self, limit_s: float) -> float | None:
        """Wait until every replica counts at every server and the reader reads from all. None: not in time."""
        until_s = time.monotonic() + limit_s
        while True:
            asked_s = time.monotonic()
            if not self._lacks():
                return asked_s
            if time.monotonic() >= until_s:
                return None
            self._hold(OBSERVE_S)

    def _is_noticed_in_time(self, step: DrillStep, victims: list[str]) -> bool:
        until_s = time.monotonic() + NOTICE_S_MAX
        while not is_noticed(step, victims, self._probe_reports()):
            if time.monotonic() >= until_s:
                return False
            self._hold(OBSERVE_S)
        return True

    def _is_watching(self) -> bool:
        """Return whether the user's streams are read. Raises UsageError if one cannot be: nothing is broken yet."""
        for watch in self._watches:
            if watch.stream().problem:
                raise UsageError(f"merge {watch.merge} cannot be watched: {watch.stream().problem}")
        return all(watch.joined or watch.stream().is_complete for watch in self._watches)

    def _have_gone_on(self) -> bool:
        return all(has_gone_on(watch.stream(), self._faults) for watch in self._watches)

    def _go_on_s(self) -> float:
        found = [watch_verdict(watch.stream(), self._faults, ended_s=time.monotonic()) for watch in self._watches]
        return max([GO_ON_S_MIN, *(GO_ON_STALLS * verdict.quiet_stall_ms / 1e3 for verdict in found)])

    def _lacks(self) -> list[str]:
        self._fleet.read_messages()
        found = self._probe_reports().lacks
        for merge, inputs in self._expected.items():
            found += [
                f"{merge}: {name} not joined" for name in sorted(inputs - _joined_somewhere(self._reports(merge)))
            ]
        servers, joined = len(self._target.addresses), self._fleet.reader.joined
        return found if joined == servers else [*found, f"the reader reads from {joined} of {servers} servers"]

    def _probe_reports(self) -> MergeReports:
        return self._reports(MERGE, self._fleet.names, LAG_US_MAX)

    def _merges(self, step: DrillStep) -> list[MergeReports]:
        """Return what is reported of the merges that a fault would touch."""
        touches_users = step.ability in self._target.breaks
        return [self._probe_reports(), *(self._reports(name) for name in self._protected if touches_users)]

    def _reports(self, merge: str, replicas: frozenset[str] = frozenset(), lag_max: int | None = None) -> MergeReports:
        return report_merge(self._target.addresses, merge, replicas, security=self._target.security, lag_max=lag_max)


def _joined_somewhere(merge: MergeReports) -> frozenset[str]:
    """Return the inputs that could carry a merge at one server at least."""
    return frozenset(name for server in merge.answering for name in server.joined)


def _short(victim: str) -> str:
    """Return the name of a replica without that of the drill: ``probe-3f2a-2`` is ``replica 2``."""
    return f"replica {victim.rpartition('-')[2]}" if victim.startswith("probe-") else victim
