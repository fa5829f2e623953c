"""One drill from its journal to its result: folder, target, probe, run, and everything undone.

Called by the command ``drill``. Ctrl-C and SIGTERM end the run as an error; then everything is undone, and signals wait
until it is.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from lmerge import files
from lmerge.errors import LmergeError, UsageError
from lmerge_controller.drill.journal import SUFFIX, UndoJournal, default_folder
from lmerge_controller.drill.probe.fleet import ProbeFleet
from lmerge_controller.drill.probe.watch import UserStreamWatch
from lmerge_controller.drill.report.result import DrillResult, DrillStatus
from lmerge_controller.drill.run import DrillRun, abilities_of
from lmerge_controller.drill.scenario import DrillScenario
from lmerge_controller.drill.targets.target import DrillTarget
from lmerge_controller.drill.undo import FOLDER_PREFIX, undo_all

Report = Callable[[str], None]
#: Makes the target of one scenario in a folder, with a journal. A sandbox differs by scenario.
TargetMaker = Callable[[DrillScenario, Path, UndoJournal], AbstractContextManager[DrillTarget]]
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def drill_once(
    scenario: DrillScenario,
    make: TargetMaker,
    report: Report,
    *,
    protected: Sequence[str] = (),
    watched: Sequence[str] = (),
    keep: Path | None = None,
) -> DrillResult:
    """Run one scenario and return its result; a refusal and a failure are results too.

    ``protected``: merges of users that no fault may interrupt. ``watched``: merges of users that are read beside the
    probe. ``keep``: where the recording and the logs are copied.
    Raises KeyboardInterrupt, after everything was undone.
    """
    run_id = f"{time.time_ns() // 1_000_000 & 0xFFFFFFFF:08x}"
    began_at, began_s = time.time(), time.monotonic()
    title = "no target"

    def result(status: DrillStatus, *reasons: str) -> DrillResult:
        return DrillResult(scenario, title, status, reasons, began_at, began_s, time.monotonic())

    with _interruptible(), UndoJournal(default_folder() / f"{run_id}{SUFFIX}") as journal:
        folder = Path(tempfile.gettempdir()).resolve() / f"{FOLDER_PREFIX}{run_id}"
        try:
            journal.note("remove-folder", path=str(folder))
            folder.mkdir(files.PRIVATE_FOLDER)
            with make(scenario, folder, journal) as target:
                title = target.title
                _check_abilities(scenario, target)
                with (
                    _probe(run_id, target, folder, journal) as fleet,
                    _watches(watched, target, folder, journal) as watches,
                ):
                    record = DrillRun(scenario, target, fleet, protected, report, watches).run()
        except UsageError as refused:
            return result(DrillStatus.REFUSED, str(refused))
        except (LmergeError, TimeoutError) as error:
            return result(DrillStatus.FAILED, str(error))
        finally:
            with _without_signals():
                if keep is not None and folder.is_dir():
                    _copy(folder, keep / scenario.name)
                for failure in undo_all(journal, lambda text: None):
                    report(f"left in {journal.path}: {failure}")
    status = DrillStatus.PASSED if record.verdict.has_passed else DrillStatus.FAILED
    return DrillResult(
        scenario,
        title,
        status,
        record.verdict.reasons,
        record.began_at,
        record.began_s,
        record.ended_s,
        record.verdict,
        stream_ended_s=record.stream_ended_s,
        watched=record.watched,
    )


def _check_abilities(scenario: DrillScenario, target: DrillTarget) -> None:
    """Raise UsageError, before the probe is started, if a target can never do a step."""
    lacks = [f"this target cannot {ability}" for ability in scenario.abilities if ability not in abilities_of(target)]
    servers = len(target.addresses)
    if servers < scenario.needs.servers:
        lacks.append(f"it needs {scenario.needs.servers} servers, and there are {servers}")
    if lacks:
        raise UsageError(f"drill {scenario.name} is refused: {'; '.join(lacks)}")


@contextmanager
def _probe(run_id: str, target: DrillTarget, folder: Path, journal: UndoJournal) -> Iterator[ProbeFleet]:
    fleet = ProbeFleet(run_id, target.addresses, folder, journal, security=target.security)
    try:
        yield fleet
    finally:
        with _without_signals():
            fleet.end()


@contextmanager
def _watches(
    merges: Sequence[str], target: DrillTarget, folder: Path, journal: UndoJournal
) -> Iterator[list[UserStreamWatch]]:
    found: list[UserStreamWatch] = []
    try:
        for merge in merges:
            found.append(UserStreamWatch(merge, target.addresses, folder, journal, security=target.security))
        yield found
    finally:
        with _without_signals():
            for watch in found:
                watch.end()


def _copy(folder: Path, to: Path) -> None:
    """Copy the recording and the logs, without the stores of servers."""
    files.make_folder(to)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".log", ".jsonl"):
            files.write_bytes(to / path.name, path.read_bytes())


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _without_signals() -> Iterator[None]:
    """Hold signals back until the block has ended: undoing is not interrupted. SIGKILL is, and the journal remains."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
