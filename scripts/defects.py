"""Seeded defects: each check of the core must be able to fail.

Every defect is a small change of the core and the test that must turn red by it. Each is applied to a copy of the
package in a temporary folder, never to the working tree, and only the named test runs on it. The script fails if a
defect survives, or if the text that it changes is gone (then the defect must be written anew).

    python scripts/defects.py [--list] [--only NAME] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TEST_S_MAX = 180.0


class Defect(NamedTuple):
    """``old`` becomes ``new`` in ``file``; ``test`` must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str


CORE = "lmerge/core/"
PAPER = "tests/core/test_paper.py::"
LAWS = "tests/core/test_laws.py::"

DEFECTS = (
    Defect(
        "r3 without the Vs < MaxStable guard",
        CORE + "r3.py",
        "if vs < max_stable:  # IV.D line 6",
        "if False:",
        PAPER + "test_algorithm_r3_line_6_a_late_insert_whose_node_has_gone_is_ignored",
    ),
    Defect(
        "r0-r2 without the guard on MaxStable",
        CORE + "insert_only.py",
        "if new and vs >= self.max_stable:",
        "if new:",
        "tests/core/test_scenarios.py::test_scenario[python-r0_late_element_below_stable]",
    ),
    Defect(
        "<= for < when an event is fully frozen",
        CORE + "r3.py",
        "return bool(said < t)  # line 26",
        "return bool(said <= t)",
        "tests/core/test_scenarios.py::test_scenario[python-boundaries]",
    ),
    Defect(
        "stable at its own Vs is refused",
        CORE + "tdb.py",
        "if vs < self.stable_point:",
        "if vs <= self.stable_point:",
        PAPER + "test_example_5_stable_allows_its_own_boundary",
    ),
    Defect(
        "a joining input's stable counts",
        CORE + "algorithm.py",
        "            return  # law 1",
        "            pass",
        LAWS + "test_law_1_a_joining_inputs_stable_does_not_move_the_output",
    ),
    Defect(
        "a joining input's insert raises MaxVs",
        CORE + "insert_only.py",
        "                if inp.joined:",
        "                if True:",
        LAWS + "test_law_1_a_joining_inputs_insert_does_not_raise_max_vs",
    ),
    Defect(
        "half-frozen nodes are visited again and again",
        CORE + "r3.py",
        "if ve is not None and t <= ve < due:",
        "if ve is not None and t <= ve < due:\n                due = t + 1\n            if False:",
        LAWS + "test_law_2_stable_visits_only_what_changes",
    ),
    Defect(
        "entries of an input that left stay",
        CORE + "index.py",
        "            node[IN + slot] = None",
        "            pass",
        LAWS + "test_law_3_a_new_incarnation_starts_with_nothing_of_the_old_one",
    ),
    Defect(
        "an old incarnation is heard",
        CORE + "merge.py",
        "(incarnation is not None and incarnation != inp.incarnation)",
        "False",
        LAWS + "test_law_3_elements_of_an_old_incarnation_are_refused_and_counted",
    ),
    Defect(
        "a stale incarnation may attach",
        CORE + "merge.py",
        "if newest is not None and incarnation <= newest:",
        "if False:",
        LAWS + "test_law_3_elements_of_an_old_incarnation_are_refused_and_counted",
    ),
    Defect(
        "r1 compares with the inputs' counters",
        CORE + "insert_only.py",
        "        position = inp.tie_count\n        if",
        "        position = inp.tie_count\n        if position >= max(i.tie_count for i in self.inputs.values()):\n"
        "            inp.tie_count += 1\n            return True\n        if",
        LAWS + "test_law_4_r1_after_a_replay_inside_a_slot_neither_doubles_nor_drops",
    ),
    Defect(
        "r1 without aligning by content",
        CORE + "insert_only.py",
        "        for ahead in range(position + 1, len(slot)):",
        "        for ahead in range(0):",
        LAWS + "test_law_4_a_replay_that_begins_in_the_middle_of_a_slot_is_aligned",
    ),
    Defect(
        "one stable(+inf) closes",
        CORE + "policy.py",
        "return closed >= (joined if self.needed is None else min(self.needed, joined))",
        "return True",
        LAWS + "test_law_5_one_inputs_end_does_not_close_the_output",
    ),
    Defect(
        "nobody looks at closing when an input leaves",
        CORE + "algorithm.py",
        "            if inp.stable == INF:\n",
        "            if False:\n",
        LAWS + "test_law_5_the_rest_agrees_when_the_one_that_had_not_ended_leaves",
    ),
    Defect(
        "adjust of an unknown event is believed",
        CORE + "r3.py",
        "if node is None or node[slot] != vold:",
        "if node is None:",
        LAWS + "test_law_6_an_input_that_breaks_its_promise_ends_and_the_output_is_untouched",
    ),
    Defect(
        "adjusts of one stable in calendar order",
        CORE + "index.py",
        "            rows.sort(key=_by_event)",
        "            rows.reverse()",
        "tests/core/test_differential.py::test_r3_says_what_the_papers_listing_says",
    ),
    Defect(
        "every adjust is shown under lazy",
        CORE + "r3.py",
        "not self.policy.reflects_adjusts\n",
        "True\n        self.policy = type(self.policy)(self.policy.show, True)\n        lazy = False\n",
        PAPER + "test_example_2_the_outputs_of_table_2",
    ),
    Defect(
        "check() sees nothing",
        CORE + "index.py",
        'assert self.next_due(node, self.max_stable) >= node[DUE] >= self.max_stable, "due too late"',
        "pass",
        LAWS + "test_law_9_check_finds_a_damaged_index",
    ),
    Defect(
        "the freezing input's missing event stays",
        CORE + "r3.py",
        "                rows.append((ADJUST, vs, vs, shown, payload))\n            return True",
        "                return False\n            return True",
        PAPER + "test_algorithm_r3_violation_case_1_an_event_the_freezing_input_lacks_is_removed",
    ),
    Defect(
        "an open difference is adjusted too",
        CORE + "r3.py",
        "elif said != shown and (said < t or shown < t):  # lines 22-25",
        "elif said != shown:",
        PAPER + "test_algorithm_r3_an_open_difference_is_left_alone",
    ),
    Defect(
        "a half-frozen event that the freezing input lacks is removed",
        CORE + "r3.py",
        "        if half_frozen and said is None:\n            return bool(shown < t)",
        "        if False:\n            return False",
        "tests/core/test_scenarios.py::test_scenario[python-r3_nobody_knows_better]",
    ),
    Defect(
        "no witness is asked",
        CORE + "r3.py",
        "            other = self.witness(node)",
        "            other = None",
        "tests/core/test_scenarios.py::test_scenario[python-r3_witness]",
    ),
    Defect(
        "r4 shows one event too many",
        CORE + "r4.py",
        "        if len(node[slot]) <= shown:",
        "        if len(node[slot]) < shown:",
        PAPER + "test_algorithm_r4_never_shows_more_than_the_input_with_most",
    ),
    Defect(
        "AdjustOutputCount only removes",
        CORE + "r4.py",
        "    for ve in missing[: len(said) - len(shown)]:",
        "    for ve in missing[:0]:",
        PAPER + "test_algorithm_r4_adjust_output_count_when_a_vs_becomes_half_frozen",
    ),
    Defect(
        "AdjustOutput without case (1)",
        CORE + "r4.py",
        "        surplus += _minus(shown[at_shown:], said[at_said:])",
        "        pass",
        PAPER + "test_algorithm_r4_adjust_output_when_an_end_becomes_fully_frozen",
    ),
    Defect(
        "the quorum is off by one",
        CORE + "r3.py",
        "return supporters >= self.quorum()",
        "return supporters >= self.quorum() - 1",
        PAPER + "test_v_a_quorum_waits_for_k_inputs",
    ),
    Defect(
        "the lag is ignored",
        CORE + "policy.py",
        "return max(t - self.lag, NEG_INF)",
        "return t",
        PAPER + "test_v_a_lag_saves_an_adjust",
    ),
    Defect(
        "final-only passes an event that is not shown",
        CORE + "index.py",
        "super().announce(min(t, held[0][0]) if held else t, out)",
        "super().announce(t, out)",
        "tests/core/test_scenarios.py::test_scenario[python-r3_final_only]",
    ),
    Defect(
        "final-only forgets what never ends",
        CORE + "index.py",
        "closing = self.final_only and t == INF",
        "closing = False",
        "tests/core/test_scenarios.py::test_scenario[python-r3_final_only_never_ending]",
    ),
    Defect(
        "a duplicate key is not noticed",
        CORE + "r3.py",
        "                if node[slot] is not None:\n",
        "                if False:\n",
        "tests/core/test_violations.py::test_the_offender_is_named_and_ends_alone",
    ),
    Defect(
        "its own stable is not checked",
        CORE + "inputs.py",
        "            return self.stable\n",
        "            return -(2**63)\n",
        "tests/core/test_violations.py::test_the_offender_is_named_and_ends_alone",
    ),
    Defect(
        "a snapshot without the fence",
        CORE + "snapshot.py",
        '"incarnations": merge._incarnations',
        '"incarnations": {}',
        "tests/core/test_snapshot.py::test_golden_snapshots_are_still_written_and_read",
    ),
    Defect(
        "a switch forgets what the inputs have delivered",
        CORE + "insert_only.py",
        "return copies if event.vs < inp.last_vs else 0",
        "return 0",
        "tests/core/test_downgrade.py::test_an_input_that_promises_less_changes_a_running_merge_without_loss",
    ),
    Defect(
        "the calendar drops a slot that it should deal out again",
        CORE + "calendar.py",
        "        return slots.pop(last, [])",
        "        slots.pop(last, [])\n        return []",
        "tests/core/test_calendar.py::test_pop_below_gives_exactly_what_is_due",
    ),
    Defect(
        "C2 accepts an input that is behind",
        CORE + "compatible.py",
        "if is_half_frozen(event.vs, s.ve, s.last) and limit <= s.last:",
        "if is_half_frozen(event.vs, s.ve, s.last):",
        PAPER + "test_c2_a_half_frozen_event_needs_an_input_that_is_not_behind",
    ),
    Defect(
        "C3 forgets frozen events",
        CORE + "compatible.py",
        "        elif event is None or event.ve != s.ve:",
        "        elif False:",
        PAPER + "test_section_3d_o3_is_not_compatible_for_the_two_reasons_given",
    ),
)

REQUIRE_NATIVE = ("CI", "LMERGE_REQUIRE_NATIVE")  # what makes a missing native core a failure


def run(defect: Defect) -> str | None:
    """Apply a defect and run its test. None if the test turned red, else what is wrong."""
    with tempfile.TemporaryDirectory(prefix="lmerge-defect-") as folder:
        copy = Path(folder)
        for name in ("lmerge", "tests/core"):
            # Without the native core: these are defects of the Python one, and tests of both must not mix them up.
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_native*"))
        # An editable installation would still find the native core of the working tree.
        (copy / "lmerge" / "_native.py").write_text("raise ImportError('a copy without the native core')\n")
        shutil.copy(ROOT / "tests/conftest.py", copy / "tests/conftest.py")
        shutil.copy(ROOT / "pyproject.toml", copy / "pyproject.toml")
        path = copy / defect.file
        text = path.read_text()
        if text.count(defect.old) != 1:
            return f"the text to change occurs {text.count(defect.old)} times in {defect.file}"
        path.write_text(text.replace(defect.old, defect.new))
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", defect.test],
            cwd=copy,
            env={name: value for name, value in os.environ.items() if name not in REQUIRE_NATIVE}
            | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=TEST_S_MAX,
            check=False,
        )
    if result.returncode == 1:
        return None
    last = (result.stdout.strip().splitlines() or ["nothing printed"])[-1]
    return "survived" if result.returncode == 0 else f"pytest ended with code {result.returncode}: {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the defects")
    parser.add_argument("--only", metavar="NAME", help="defects whose name contains NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [defect for defect in DEFECTS if not options.only or options.only in defect.name]
    if options.list:
        print("\n".join(f"{defect.name}\n    {defect.test}" for defect in chosen))
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        problems = 0
        for defect, problem in zip(chosen, pool.map(run, chosen)):
            problems += problem is not None
            print(f"{'red ' if problem is None else 'FAIL'} {defect.name}: {problem or defect.test}", flush=True)
    print(f"{len(chosen) - problems} defects caught, {problems} not")
    return 1 if problems or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
