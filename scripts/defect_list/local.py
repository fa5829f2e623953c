"""Defects of the local backend: processes that are lost, doubled, or not noticed."""

from seeded import Defect

LOCAL = "lmerge_controller/local"
TESTS = "tests/controller/local"

DEFECTS = (
    Defect(
        "lmerge down --all names every query that was ever up",
        "lmerge_controller/local/commands.py",
        "        elif not everything:",
        "        else:",
        "tests/controller/local/test_up.py::test_down_all_names_only_what_it_has_ended",
    ),
    Defect(
        "local processes: a number is taken for a process",
        f"{LOCAL}/process_table.py",
        "        return started_of(self.pid) == self.started",
        "        return started_of(self.pid) is not None",
        f"{TESTS}/test_process_table.py::test_a_process_is_not_one_that_has_its_number_later",
    ),
    Defect(
        "local processes: what a dead process has started goes on beside its next life",
        f"{LOCAL}/supervisor.py",
        "            running.kill_all()  # what",
        "            pass  # what",
        f"{TESTS}/test_supervisor.py::test_what_a_dead_process_has_started_ends_before_its_next_life",
    ),
    Defect(
        "local processes: children in sessions of their own are forgotten",
        f"{LOCAL}/process_table.py",
        "    for found in marked(run, name):\n",
        "    for found in marked(run, name)[:0]:\n",
        f"{TESTS}/test_supervisor.py::test_what_a_dead_process_has_started_ends_before_its_next_life",
    ),
    Defect(
        "local processes: an adopted process survives a stop at once",
        f"{LOCAL}/supervisor.py",
        "        while self._adopted is not None or not self.stopping.is_set():",
        "        while not self.stopping.is_set():",
        f"{TESTS}/test_supervisor.py::test_an_adopted_process_ends_also_if_it_is_stopped_at_once",
    ),
    Defect(
        "local processes: one that ignores SIGTERM is waited for without a limit",
        f"{LOCAL}/supervisor.py",
        "            await asyncio.wait({ended}, timeout=self.grace_s)",
        "            await asyncio.wait({ended})",
        f"{TESTS}/test_supervisor.py::test_a_process_that_does_not_end_is_killed_after_its_grace",
    ),
    Defect(
        "local processes: they outlive a supervisor that is killed",
        f"{LOCAL}/spawn.py",
        "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n",
        "",
        f"{TESTS}/test_supervisor.py::test_processes_end_when_their_supervisor_is_killed",
    ),
    Defect(
        "local processes: they ignore SIGPIPE, as Python does",
        f"{LOCAL}/spawn.py",
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n",
        "",
        f"{TESTS}/test_supervisor.py::test_a_process_ignores_no_signal_from_its_start",
    ),
    Defect(
        "local processes: a mistake in the supervisor leaves a process",
        f"{LOCAL}/supervisor.py",
        "        try:\n            self._report(SupervisedPhase.RUNNING, process=running.id)\n",
        "        self._report(SupervisedPhase.RUNNING, process=running.id)\n        try:\n",
        f"{TESTS}/test_supervisor.py::test_a_mistake_in_the_supervisor_ends_it_and_its_processes",
    ),
    Defect(
        "local processes: a good run does not begin the waits anew",
        f"{LOCAL}/restarts.py",
        "            self.failures = 0\n",
        "            pass\n",
        f"{TESTS}/test_restarts.py::test_a_good_run_begins_the_waits_anew",
    ),
    Defect(
        "local processes: a minute has one start too many",
        f"{LOCAL}/restarts.py",
        "        while len(self._starts) > self.rule.per_minute_max:",
        "        while len(self._starts) > self.rule.per_minute_max + 1:",
        f"{TESTS}/test_restarts.py::test_a_process_that_runs_well_and_dies_again_and_again_is_limited_by_the_minute",
    ),
    Defect(
        "local processes: joined inputs are taken for redundant ones",
        f"{LOCAL}/progress.py",
        "    losses = status.survives_losses\n",
        "    losses = len(status.joined) - 1\n",
        f"{TESTS}/test_progress.py::test_losses_are_those_of_the_server_that_survives_fewest",
    ),
    Defect(
        "local processes: a copy of a log is not bounded",
        f"{LOCAL}/log_file.py",
        "            old.seek(-self.bytes_max, os.SEEK_END)",
        "            old.seek(0)",
        f"{TESTS}/test_log_file.py::test_a_long_log_is_copied_and_emptied_and_its_writer_goes_on",
    ),
)
