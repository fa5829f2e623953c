"""Defects of the demo's schedule of kills, its clock and its verdict, and of what a replica reads at a restart."""

from seeded import Defect

PACE = "tests/demo/test_demo_pace.py"
VERDICT = "tests/demo/test_demo_verdict.py"

DEFECTS = (
    Defect(
        "the demo: the winner is killed while another is away",
        "lmerge/demo/pace.py",
        "        if situation.is_whole:\n            self._away_since_s = None\n",
        "        if situation.is_whole or self._has_begun:\n            self._away_since_s = None\n",
        f"{PACE}::test_on_any_machine_all_kills_take_place_and_all_processes_are_back_at_the_end",
    ),
    Defect(
        "the demo: the replay passes the mark of the next kill",
        "lmerge/demo/pace.py",
        "        return min([kill.at for kill in self._kills[self._number + 1 :]] + [self._last])",
        "        return self._last",
        f"{PACE}::test_every_kill_has_its_place",
    ),
    Defect(
        "the demo: it waits for ever",
        "lmerge/demo/pace.py",
        "        self.has_given_up = situation.now_s - self._away_since_s >= BACK_S_MAX\n",
        "",
        f"{PACE}::test_a_process_that_never_comes_back_is_not_waited_for_for_ever",
    ),
    Defect(
        "the demo: the clock makes up for the time that it stood",
        "lmerge/demo/clock.py",
        "    return showing(clock, reading(clock, wall_s), wall_s)._replace(until=until)",
        "    return clock._replace(until=until)",
        f"{PACE}::test_a_clock_that_has_stood_goes_on_from_there",
    ),
    Defect(
        "the demo: a late redundancy is called a wrong table",
        "lmerge/demo/verdict.py",
        "        return WRONG if self.wrong() else",
        "        return WRONG if self.problems() else",
        f"{VERDICT}::test_a_wrong_table_and_a_late_redundancy_are_never_confused",
    ),
    Defect(
        "the demo: a replica that joins leaves out diverted flights",
        "lmerge_replicas/flights/timetable.py",
        "if flight.is_diverted]",
        "if flight.is_cancelled]",
        "tests/replicas/test_flights_timetable.py::test_a_join_from_the_timetable_is_the_join_from_the_whole_table",
    ),
)
