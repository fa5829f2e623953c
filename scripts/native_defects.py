"""Seeded defects of the native core: each check of it must be able to fail. See scripts/defects.py for the Python core.

Every defect is a small change of native/core/src and the Rust test that must turn red by it. They are applied one after
another to one copy of native/ in a temporary folder, never to the working tree, with one target folder for all, so
that only the crate itself is built again. The script fails if a defect survives, if it does not compile, or if the text
that it changes is gone (then the defect must be written anew).

    python scripts/native_defects.py [--list] [--only NAME]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD_S_MAX = 900.0
TEST_S_MAX = 180.0
# Built often and run once: what the compiler saves is worth more than what the tests lose.
PROFILE = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}


class Defect(NamedTuple):
    """``old`` becomes ``new`` in ``file`` of native/core/src; ``test`` of the suite must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str


DEFECTS = (
    Defect(
        "r3 without the Vs < MaxStable guard",
        "r3.rs",
        "if vs < shell.max_stable {\n                    input.late += 1; // IV.D line 6",
        "if false {\n                    input.late += 1; // IV.D line 6",
        "paper::algorithm_r3_line_6_a_late_insert_whose_node_has_gone_is_ignored",
    ),
    Defect(
        "r0-r2 without the guard on MaxStable",
        "insert_only.rs",
        " && vs >= shell.max_stable;",
        ";",
        "paper::algorithms_r0_to_r2_say_nothing_below_max_stable",
    ),
    Defect(
        "<= for < when r3 freezes an event",
        "r3.rs",
        "        said < t // line 26",
        "        said <= t // line 26",
        "paper::freezing_has_its_boundaries_where_the_paper_draws_them",
    ),
    Defect(
        "<= for < when r4 freezes an event on which all agree",
        "r4.rs",
        "return node.common < t;",
        "return node.common <= t;",
        "paper::freezing_has_its_boundaries_where_the_paper_draws_them",
    ),
    Defect(
        "a joining input's stable counts",
        "algorithm.rs",
        "        return; // law 1",
        "        // law 1",
        "laws::law_1_a_joining_inputs_stable_does_not_move_the_output",
    ),
    Defect(
        "entries of an input that left stay in r3",
        "r3.rs",
        "            self.set_end(id, slot, NONE);\n",
        "            let _ = (id, slot);\n",
        "laws::law_3_a_new_incarnation_starts_with_nothing_of_the_old_one",
    ),
    Defect(
        "entries of an input that left stay in r4",
        "r4.rs",
        "            self.set(id, At::In(slot), &[]);\n",
        "            let _ = (id, slot);\n",
        "laws::law_3_a_new_incarnation_starts_with_nothing_of_the_old_one",
    ),
    Defect(
        "r1 without aligning by content",
        "insert_only.rs",
        "for ahead in position + 1..said.len() {",
        "for ahead in said.len()..said.len() {",
        "laws::law_4_a_replay_that_begins_in_the_middle_of_a_slot_is_aligned",
    ),
    Defect(
        "one stable(+inf) closes",
        "policy.rs",
        "closed > 0 && closed >= self.0.map_or(joined, |needed| needed.min(joined))",
        "closed > 0 && joined > 0",
        "laws::law_5_one_inputs_end_does_not_close_the_output",
    ),
    Defect(
        "an adjust of an unknown event is believed",
        "r3.rs",
        "if known == NONE || known != batch.vold(index) {",
        "if known == NONE {",
        "laws::law_6_an_input_that_breaks_its_promise_leaves_the_output_untouched",
    ),
    Defect(
        "what a stable causes is said in the order of the wheel",
        "index.rs",
        "        if rows.len() > 1 {\n",
        "        if false {\n",
        "laws::law_7_what_a_stable_causes_comes_in_order_of_vs_and_payload",
    ),
    Defect(
        "an end that falls does not move the node",
        "index.rs",
        "            self.store.enter(id, ve);\n",
        "            let _ = id;\n",
        "laws::law_2_an_end_that_falls_below_is_visited_in_time",
    ),
    Defect(
        "a node due in its own slot is visited again and again",
        "wheel.rs",
        "            if due < t {\n",
        "            if due <= t || own < OTHER_SIGN {\n",
        "wheel::a_random_life_gives_exactly_what_is_due",
    ),
    Defect(
        "the wheel drops the slot that it should deal out again",
        "wheel.rs",
        "                self.push(due, id);\n            }\n        }\n        self.dealt",
        "                let _ = id;\n            }\n        }\n        self.dealt",
        "wheel::what_is_due_at_t_itself_stays",
    ),
    Defect(
        "evacuation does not tell the owner",
        "arena.rs",
        "                    moved(owner, place);\n",
        "                    let _ = (&mut moved, place);\n",
        "arena::a_few_survivors_of_a_burst_are_moved_together_and_their_owners_told",
    ),
    Defect(
        "the arena does not count what has gone",
        "arena.rs",
        "        self.live_bytes -= size;\n",
        "",
        "arena::payloads_of_every_size_come_back_as_they_were",
    ),
    Defect(
        "sparse chunks are not noted",
        "arena.rs",
        "        } else if was_dense && 2 * chunk.live_bytes < chunk.data.capacity() {\n",
        "        } else if was_dense && chunk.live_bytes == 0 {\n",
        "arena::a_few_survivors_of_a_burst_are_moved_together_and_their_owners_told",
    ),
    Defect(
        "due times that were left behind are popped",
        "wheel.rs",
        "    if nodes.due(id) < t {\n        nodes.get_mut(id).due = INF;",
        "    if nodes.due(id) < INF {\n        nodes.get_mut(id).due = INF;",
        "wheel::a_random_life_gives_exactly_what_is_due",
    ),
    Defect(
        "a key that was made in the same run is not looked up again",
        "index.rs",
        "if id == NIL && run.made >> (hash % 64) & 1 == 1 {",
        "if false {",
        "run::a_second_event_of_a_key_in_one_run_is_found",
    ),
    Defect(
        "the highest page first",
        "nodes.rs",
        "self.room.first()",
        "self.room.last()",
        "nodes::numbers_are_the_lowest_that_are_not_in_use",
    ),
    Defect(
        "empty pages are kept",
        "nodes.rs",
        "if is_empty && self.room.len() > 1 {",
        "if is_empty && self.room.len() > usize::MAX - 1 {",
        "nodes::empty_pages_go_back_but_for_one",
    ),
    Defect(
        "the table of keys never shrinks",
        "index.rs",
        "if capacity > KEPT && 8 * len < 3 * capacity {",
        "if false && 8 * len < 3 * capacity {",
        "index::memory_returns_when_everything_has_died",
    ),
    Defect(
        "spilled entries are never moved together",
        "index.rs",
        "            self.gather_spills();\n",
        "            let _ = Self::gather_spills;\n",
        "index::memory_returns_when_inputs_agree_again",
    ),
    Defect(
        "spilled entries are moved without telling the node",
        "index.rs",
        "                self.store.nodes.get_mut(owner).set_spill(self.spills.len() as u32);\n",
        "",
        "index::memory_returns_when_inputs_agree_again",
    ),
    Defect(
        "r3 takes a node back though its inputs do not agree",
        "r3.rs",
        "                return; // they do not agree\n",
        "                continue;\n",
        "index::entries_of_inputs_beyond_the_bits_are_kept_apart",
    ),
    Defect(
        "r4 takes a node back though its inputs do not agree",
        "r4.rs",
        "[ve] if slot < BITS && (has == 0 || ve == common) => {",
        "[ve] if slot < BITS => {",
        "oracle::r4_gives_the_reference_under_every_policy",
    ),
    Defect(
        "r4 without AdjustOutputCount",
        "r4.rs",
        "            self.adjust_output_count(id, said, shown);\n",
        "            let _ = Self::adjust_output_count;\n",
        "paper::algorithm_r4_adjust_output_count_when_a_vs_becomes_half_frozen",
    ),
    Defect(
        "no witness is asked",
        "index.rs",
        "            if is_better && self.has_live_entry(id, slot, shell.max_stable) {",
        "            if false && is_better && self.has_live_entry(id, slot, shell.max_stable) {",
        "paper::a_witness_decides_the_end_of_a_half_frozen_event_that_the_freezing_input_lacks",
    ),
    Defect(
        "the quorum is off by one",
        "index.rs",
        "Show::Quorum => supporters() >= quorum(shell),",
        "Show::Quorum => supporters() + 1 >= quorum(shell),",
        "paper::a_quorum_waits_for_k_inputs",
    ),
    Defect(
        "final-only passes an event that is not shown",
        "index.rs",
        "                return t.min(vs);\n",
        "                return t.max(vs);\n",
        "paper::final_only_shows_what_never_ends_at_the_end",
    ),
    Defect(
        "a switch takes what waits as delivered",
        "switch.rs",
        "if input.joined && input.last_vs == old.max_vs {",
        "if input.last_vs == old.max_vs {",
        "switch::what_waits_to_join_is_not_taken_as_delivered",
    ),
    Defect(
        "a switch loses what waits",
        "switch.rs",
        "            r3_from_events(&old, new, shell, &live);\n            merge_waiting(new, shell);\n",
        "            r3_from_events(&old, new, shell, &live);\n",
        "switch::what_waits_to_join_reaches_the_index",
    ),
    Defect(
        "a part of a batch begins with the payloads before it",
        "columns.rs",
        "            first: if has_ends && start > 0 {\n",
        "            first: if has_ends && start > 1 {\n",
        "columns::every_slice_is_the_part_that_it_says",
    ),
    Defect(
        "payload ends may fall",
        "columns.rs",
        "        if end < before {\n",
        "        if false {\n",
        "columns::payload_ends_must_rise_to_the_end_of_the_payloads",
    ),
    Defect(
        "payload ends may lie outside",
        "columns.rs",
        "    if before != total {\n",
        "    if before > usize::MAX - 1 {\n",
        "hostile::real_batches_with_some_bytes_changed_break_nothing",
    ),
    Defect(
        "a snapshot in the order of the nodes",
        "state.rs",
        "    nodes.sort_unstable_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));\n",
        "    nodes.reverse();\n",
        "state::the_same_events_in_another_order_give_equal_nodes",
    ),
)


def run(defect: Defect, copy: Path, env: dict[str, str]) -> str | None:
    """Apply a defect, run its test, take the defect back. None if the test turned red, else what is wrong."""
    path = copy / "core/src" / defect.file
    text = path.read_text()
    if text.count(defect.old) != 1:
        return f"the text to change occurs {text.count(defect.old)} times in {defect.file}"
    path.write_text(text.replace(defect.old, defect.new))
    try:
        return _tested(defect, copy, env)
    except subprocess.TimeoutExpired:
        return "the test did not end"
    finally:
        path.write_text(text)


def _tested(defect: Defect, copy: Path, env: dict[str, str]) -> str | None:
    cargo = ["cargo", "test", "--release", "--quiet", "--package", "lmerge-core", "--test", "suite"]

    def call(arguments: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=copy, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )

    built = call([*cargo, "--no-run"], BUILD_S_MAX)
    if built.returncode:
        errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
        return f"it does not compile: {(errors or ['no error printed'])[0]}"
    result = call([*cargo, "--", "--exact", defect.test], TEST_S_MAX)
    if "test result: FAILED. 0 passed; 1 failed" in result.stdout:
        return None
    if "1 passed" in result.stdout:
        return "survived"
    last = (result.stdout.strip().splitlines() or ["nothing printed"])[-1]
    return f"the test did not run: {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the defects")
    parser.add_argument("--only", metavar="NAME", help="defects whose name contains NAME")
    options = parser.parse_args()
    chosen = [defect for defect in DEFECTS if not options.only or options.only in defect.name]
    if options.list:
        print("\n".join(f"{defect.name}\n    {defect.test}" for defect in chosen))
        return 0
    problems = 0
    with tempfile.TemporaryDirectory(prefix="lmerge-native-defects-") as folder:
        copy = Path(folder) / "native"
        shutil.copytree(ROOT / "native", copy, ignore=shutil.ignore_patterns("target", "fuzz"))
        env = {"CARGO_TARGET_DIR": str(Path(folder) / "target"), "RUST_BACKTRACE": "0"} | os.environ | PROFILE
        for defect in chosen:
            problem = run(defect, copy, env)
            problems += problem is not None
            print(f"{'red ' if problem is None else 'FAIL'} {defect.name}: {problem or defect.test}", flush=True)
    print(f"{len(chosen) - problems} defects caught, {problems} not")
    return 1 if problems or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
