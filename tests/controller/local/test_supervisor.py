"""Real processes are kept running, end in order, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from local_world import ENDLESS, PARENT, PYTHON, STUBBORN, Watched, command, gone, is_alive, printed

from lmerge.errors import UsageError
from lmerge_controller.local.process_table import ProcessId, end_all, process_id
from lmerge_controller.local.restarts import RestartRule
from lmerge_controller.local.spawn import LocalSpawner, ProcessCommand, check_runs
from lmerge_controller.local.supervisor import ProcessStatus, SupervisedPhase, Supervisor, how_it_ended

SOON = RestartRule(first_s=0.01, cap_s=0.02)
NEVER = RestartRule(first_s=3600.0, cap_s=3600.0)


class World:
    """A supervisor whose processes are ended after the test, also after a failure."""

    def __init__(self) -> None:
        self.run = uuid4().hex
        self.watched = Watched()
        self.supervisor = Supervisor(LocalSpawner(self.run), self.watched)

    async def __aenter__(self) -> World:
        await self.supervisor.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.supervisor.__aexit__(None, None, None)
        finally:
            end_all(self.run)


async def test_a_killed_process_is_noticed_and_started_again(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, ENDLESS), SOON)
        first = await world.watched.life(1)
        await printed(tmp_path / "p.log")
        os.kill(pid_of(first), signal.SIGKILL)
        second = await world.watched.life(2)
        assert pid_of(second) != pid_of(first)
        assert second.ended == "it was ended by SIGKILL"
        assert world.watched.phases == [SupervisedPhase.RUNNING, SupervisedPhase.WAITING, SupervisedPhase.RUNNING]
        assert world.supervisor.statuses == {"p": second}
    await gone(pid_of(first), pid_of(second))
    assert world.watched.phases[-2:] == [SupervisedPhase.STOPPING, SupervisedPhase.STOPPED]
    assert "p: it was ended by SIGKILL; it is started again in 0.0 s" in (tmp_path / "p.log").read_text()


async def test_a_process_that_does_not_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, STUBBORN, grace_s=0.05), SOON)
        status = await world.watched.life(1)
        await printed(tmp_path / "p.log")
        await world.supervisor.stop("p")
        assert not is_alive(pid_of(status))
        assert world.supervisor.statuses == {}
        assert world.watched.statuses[-1].ended == "it was ended by SIGKILL"


async def test_a_process_ends_in_its_own_way_when_it_is_stopped(tmp_path: Path) -> None:
    program = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); signal.pause()"
    )
    async with World() as world:
        world.supervisor.start(command(tmp_path, program), SOON)
        await printed(tmp_path / "p.log")
        await world.supervisor.stop("p")
        assert world.watched.statuses[-1].ended == "it ended with exit code 7"


async def test_what_a_dead_process_has_started_ends_before_its_next_life(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, PARENT), NEVER)
        leader = await world.watched.life(1)
        in_group, in_own_session, _ = await printed(tmp_path / "p.log")
        assert is_alive(int(in_own_session))
        os.kill(pid_of(leader), signal.SIGKILL)
        await world.watched.until(lambda status: status.phase is SupervisedPhase.WAITING)
        await gone(int(in_group), int(in_own_session))


async def test_exit_code_0_completes_a_process_that_runs_once(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, "pass", runs_once=True), SOON)
        world.supervisor.start(command(tmp_path, "pass", name="q"), SOON)
        world.supervisor.start(command(tmp_path, "raise SystemExit(3)", name="r", runs_once=True), SOON)
        await world.watched.until(lambda status: (status.name, status.phase) == ("p", SupervisedPhase.COMPLETE))
        await world.watched.life(2, "q")
        await world.watched.life(2, "r")
        assert world.supervisor.statuses["p"].phase is SupervisedPhase.COMPLETE
        assert world.supervisor.statuses["p"].starts == 1


async def test_what_cannot_be_started_waits_with_its_reason(tmp_path: Path) -> None:
    async with World() as world:
        nowhere = command(tmp_path, ENDLESS, folder=tmp_path / "nowhere")
        world.supervisor.start(nowhere, NEVER)
        status = await world.watched.until(lambda status: status.phase is SupervisedPhase.WAITING)
        assert "cannot run" in status.ended
        assert "No such file" in status.ended
        assert status.wait_s == 3600.0
        assert status.process is None
    assert "cannot run" in (tmp_path / "p.log").read_text()


async def test_a_program_that_is_gone_is_reported_in_the_log(tmp_path: Path) -> None:
    async with World() as world:
        missing = ProcessCommand("p", ("no-such-program",), command(tmp_path, "").log, folder=tmp_path)
        world.supervisor.start(missing, NEVER)
        await world.watched.until(lambda status: status.phase is SupervisedPhase.WAITING)
    assert "cannot run 'no-such-program': No such file or directory" in (tmp_path / "p.log").read_text()


async def test_a_process_has_its_folder_environment_and_a_session_of_its_own(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "print(os.getcwd(), os.environ['LMERGE_REPLICA'], sys.stdin.read() == '', os.getsid(0) == os.getpid())\n"
        "print('ready', flush=True)"
    )
    async with World() as world:
        world.supervisor.start(command(tmp_path, program, environment={"LMERGE_REPLICA": "a"}), NEVER)
        lines = await printed(tmp_path / "p.log")
    assert lines[0] == f"{tmp_path} a True True"


@pytest.mark.skipif(sys.platform != "linux", reason="signals are read in /proc")
async def test_a_process_ignores_no_signal_from_its_start(tmp_path: Path) -> None:
    show = ProcessCommand("p", ("grep", "SigIgn", "/proc/self/status"), command(tmp_path, "").log, runs_once=True)
    async with World() as world:
        world.supervisor.start(show, NEVER)
        await world.watched.until(lambda status: status.phase is SupervisedPhase.COMPLETE)
    ignored = int((tmp_path / "p.log").read_text().split()[1], 16)
    assert ignored & (1 << (signal.SIGPIPE - 1)) == 0


async def test_a_name_is_kept_once_and_free_again_after_it_was_stopped(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, ENDLESS), SOON)
        with pytest.raises(ValueError, match="kept already"):
            world.supervisor.start(command(tmp_path, ENDLESS), SOON)
        await world.supervisor.stop("p")
        await world.supervisor.stop("p")
        world.supervisor.start(command(tmp_path, ENDLESS), SOON)


async def test_a_wait_ends_when_the_process_is_stopped(tmp_path: Path) -> None:
    async with World() as world:
        world.supervisor.start(command(tmp_path, "raise SystemExit(1)"), NEVER)
        await world.watched.until(lambda status: status.phase is SupervisedPhase.WAITING)
        await world.supervisor.stop("p")
        assert world.watched.phases[-1] is SupervisedPhase.STOPPED


async def test_a_mistake_in_the_supervisor_ends_it_and_its_processes(tmp_path: Path) -> None:
    seen: list[ProcessStatus] = []

    def fail(status: ProcessStatus) -> None:
        seen.append(status)
        if status.starts == 2:
            raise RuntimeError("a mistake")

    run = uuid4().hex

    async def supervise() -> None:
        async with Supervisor(LocalSpawner(run), fail) as supervisor:
            supervisor.start(command(tmp_path, ENDLESS), SOON)
            supervisor.start(command(tmp_path, "raise SystemExit(1)", name="q"), SOON)
            await supervisor.failed()

    with pytest.raises(RuntimeError, match="a mistake"):
        await supervise()
    assert end_all(run) == []
    await gone(*(status.process.pid for status in seen if status.process is not None))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux watches processes of others")
async def test_a_process_of_an_earlier_supervisor_is_adopted_and_kept(tmp_path: Path) -> None:
    async with World() as world:
        spawner = LocalSpawner(world.run, bound=False)
        earlier = await spawner.start(command(tmp_path, ENDLESS))
        await printed(tmp_path / "p.log")
        adopted = await spawner.adopt(earlier.id, "p")
        world.supervisor.start(command(tmp_path, ENDLESS), SOON, adopted)
        status = await world.watched.life(1)
        assert status.process == earlier.id
        os.kill(earlier.id.pid, signal.SIGKILL)
        again = await world.watched.life(2)
        assert pid_of(again) != earlier.id.pid
        assert again.ended == "it ended"
        await earlier.wait()
        assert await spawner.adopt(earlier.id, "p") is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux watches processes of others")
async def test_an_adopted_process_ends_also_if_it_is_stopped_at_once(tmp_path: Path) -> None:
    async with World() as world:
        spawner = LocalSpawner(world.run, bound=False)
        earlier = await spawner.start(command(tmp_path, ENDLESS))
        world.supervisor.start(command(tmp_path, ENDLESS), NEVER, await spawner.adopt(earlier.id, "p"))
        await world.supervisor.stop("p")
        assert not is_alive(earlier.id.pid)
        assert await earlier.wait() == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with their parent")
async def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    run = uuid4().hex
    log = tmp_path / "p.log"
    program = (
        "import asyncio, pathlib, sys; from lmerge_controller.local.spawn import *\n"
        "async def main():\n"
        f"    command = ProcessCommand('p', {(*PYTHON, ENDLESS)!r}, LogFile(pathlib.Path({str(log)!r})))\n"
        f"    child = await LocalSpawner({run!r}).start(command)\n"
        "    print(child.id.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert supervisor.stdout is not None
        child = process_id(int(await supervisor.stdout.readline()))
        assert child is not None
        await printed(log)
    finally:
        supervisor.kill()
        await supervisor.wait()
    await gone(child.pid)
    assert end_all(run) == []


async def test_what_comes_before_a_start_runs_before_each_and_its_failure_is_the_reason(tmp_path: Path) -> None:
    prepare = (*PYTHON, "print('prepared', flush=True)")
    async with World() as world:
        world.supervisor.start(command(tmp_path, "raise SystemExit(1)", prepare=prepare), SOON)
        world.supervisor.start(
            command(tmp_path, ENDLESS, name="q", prepare=(*PYTHON, "raise SystemExit('no merge yet')")), NEVER
        )
        failed = await world.watched.until(lambda status: status.name == "q" and bool(status.ended))
        assert failed.ended == "what comes before its start ended with exit code 1: no merge yet"
        assert failed.process is None
        await world.watched.life(3)
    assert (tmp_path / "p.log").read_text().count("prepared") >= 3


def test_programs_that_cannot_run_are_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    check_runs([sys.executable], tmp_path, {})
    for argv, folder, text in (
        (["no-such-program"], tmp_path, "in the folders of PATH"),
        (["./missing"], tmp_path, "there is no program"),
        (["./plain"], tmp_path, "is not executable"),
        (["sh"], tmp_path / "nowhere", "there is no folder"),
    ):
        with pytest.raises(UsageError, match=text):
            check_runs(argv, folder, {})
    with pytest.raises(UsageError, match="in the folders of PATH"):
        check_runs(["sh"], tmp_path, {"PATH": str(tmp_path)})


def test_ends_are_shown_by_name() -> None:
    assert [how_it_ended(code) for code in (None, 0, -9, -200)] == [
        "it ended",
        "it ended with exit code 0",
        "it was ended by SIGKILL",
        "it was ended by signal 200",
    ]


def pid_of(status: ProcessStatus) -> int:
    assert isinstance(status.process, ProcessId)
    return status.process.pid
