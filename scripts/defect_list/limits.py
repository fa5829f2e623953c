"""Defects of the limits that keep clients apart: the lead, disputes, bytes, full disks, redundancy."""

from seeded import Defect

LEAD = "lmerge/core/lead.py"
LEAD_TEST = "tests/core/test_lead.py::"
WRONG_TEST = "tests/service/merge/test_wrong_replicas.py::"
DISK_TEST = "tests/service/test_full_disks.py::"
WEIGHT_TEST = "tests/service/merge/test_payload_limit.py::"

DEFECTS = (
    Defect(
        "a stable far ahead is not held",
        LEAD,
        "        inp.held = held\n",
        "        inp.held = False\n",
        LEAD_TEST + "test_one_that_runs_ahead_ruins_nothing_and_without_the_bound_it_does[python-lazy-all]",
    ),
    Defect(
        "the input whose stable is held is found after the quorum was counted",
        "lmerge/core/algorithm.py",
        "        mark_held(self.inputs.values(), self.max_stable, self.policy)\n        self.reconsider(out)\n",
        "        self.reconsider(out)\n",
        LEAD_TEST + "test_a_quorum_is_of_those_that_count_when_one_has_left_or_joined",
    ),
    Defect(
        "an input that was excused is still waited for",
        LEAD,
        "    return not inp.excused and inp",
        "    return inp",
        LEAD_TEST
        + "test_before_the_first_stable_inputs_that_have_delivered_none_are_awaited_until_they_are_excused[python]",
    ),
    Defect(
        "an input far behind holds the output until it has caught up",
        LEAD,
        " and inp.stable >= max(NEG_INF, max_stable - lead_max)",
        "",
        LEAD_TEST + "test_an_input_far_behind_the_output_does_not_hold_it[python]",
    ),
    Defect(
        "a held stable is not released when all other inputs are gone",
        "lmerge/core/algorithm.py",
        "            self.follow_unheld(out)\n            return\n",
        "            return\n",
        LEAD_TEST + "test_it_is_released_when_all_others_are_gone[python]",
    ),
    Defect(
        "under hold the survivor of a dispute wins",
        "lmerge/core/divergence/monitor.py",
        "        if index in rule.disputed and len(able) < 2:\n            return False\n",
        "",
        WRONG_TEST + "test_hold_never_passes_what_is_disputed_though_all_but_one_die[python-1-payload]",
    ),
    Defect(
        "quarantine compares after the output has been emitted",
        "lmerge/service/choices.py",
        "in (DivergencePolicy.MAJORITY, DivergencePolicy.HOLD, DivergencePolicy.QUARANTINE)\n",
        "in (DivergencePolicy.MAJORITY, DivergencePolicy.HOLD)\n",
        WRONG_TEST + "test_a_minority_that_is_wrong_changes_nothing[python-quarantine-lost]",
    ),
    Defect(
        "quarantine waits for a late input without end",
        "lmerge/core/divergence/monitor.py",
        "rule.excused is not None and",
        "False and",
        WRONG_TEST + "test_quarantine_waits_for_a_late_input_only_so_long[python]",
    ),
    Defect(
        "a full disk under a recording ends the merge",
        "lmerge/service/output/session_recorder.py",
        "        except OSError as problem:\n            with suppress(OSError):  # a pipe",
        "        except EOFError as problem:\n            with suppress(OSError):  # a pipe",
        DISK_TEST + "test_a_full_disk_ends_the_recording_and_not_the_stream[python]",
    ),
    Defect(
        "half of a turn stays in a recording that has stopped",
        "lmerge/service/output/session_recorder.py",
        "                self._file.truncate(self._whole_bytes)\n",
        "                pass\n",
        DISK_TEST + "test_what_was_recorded_until_then_is_whole_and_can_be_replayed[python-1000]",
    ),
    Defect(
        "a publisher waits for a disk that is full",
        "lmerge/service/output/pipeline.py",
        "                await asyncio.wait((task, trouble), return_when=asyncio.FIRST_COMPLETED)\n",
        "                await asyncio.wait((task,), return_when=asyncio.FIRST_COMPLETED)\n",
        DISK_TEST + "test_the_first_publisher_of_a_merge_and_probes_get_the_error_of_a_full_disk[python-0]",
    ),
    Defect(
        "the bytes of a merge are counted for no input",
        "lmerge/service/merge/payload_limit.py",
        "            self._shares[key] = self._shares.get(key, 0.0) + live_bytes - before\n",
        "            pass\n",
        WEIGHT_TEST + "test_the_heaviest_is_ended_once_and_the_next_only_for_growth_of_its_own",
    ),
    Defect(
        "bytes that wait for an input to join are not counted",
        "lmerge/core/merge.py",
        "            inp.waiting_bytes += batch.payload_sizes[0]\n",
        "            pass\n",
        WEIGHT_TEST + "test_what_waits_for_an_input_to_join_is_counted[python]",
    ),
    Defect(
        "a line of JSON of any length is read whole",
        "lmerge/cli/lines.py",
        "readline(LINE_BYTES_MAX + 1)",
        "readline()",
        WEIGHT_TEST + "test_a_line_that_is_too_long_is_refused_with_its_number_and_not_read_whole",
    ),
    Defect(
        "an input that has delivered nothing counts as redundant",
        "lmerge/service/merge/redundancy.py",
        "        if status.stable_point == NEG_INF:\n            if",
        '        if status.stable_point == NEG_INF:\n            return ""\n            if',
        "tests/service/merge/test_redundancy.py::test_sixty_three_that_have_delivered_nothing_are_no_redundancy",
    ),
    Defect(
        "an input that has stopped counts as redundant for ever",
        "lmerge/service/merge/redundancy.py",
        "        if status.stable_point >= reached:\n",
        "        if True:\n",
        "tests/service/merge/test_redundancy.py::"
        "test_inputs_that_cannot_carry_the_output_do_not_count_with_the_reason[lacking8-life8-it lags: it is at 99, "
        "and the output was at 100 already 30 s ago]",
    ),
)
