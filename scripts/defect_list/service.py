"""Defects of ``lmerge/service``."""

from seeded import Defect

INBOX = "lmerge/service/merge/inbox.py"
INBOX_TESTS = "tests/service/merge/test_inbox.py::"
ROW_TESTS = "tests/service/calls/test_publish.py::"
LAST_STABLE_TEST = (
    "tests/service/merge/test_hub.py::test_the_last_stable_of_an_input_counts_though_its_end_is_in_the_same_turn"
)
ASIDE_TESTS = "tests/service/test_offload.py::"

DEFECTS = (
    Defect(
        "a token that is too old gets a snapshot of now, though more is retained",
        "lmerge/service/output/pipeline.py",
        "            segment = self.journal.oldest()\n",
        "            segment = None\n",
        "tests/service/calls/test_resume.py::"
        "test_a_reader_that_waited_for_an_input_in_the_middle_gets_all_that_it_delivers",
    ),
    Defect(
        "what a subscriber has read still counts as waiting for it",
        "lmerge/service/output/fanout.py",
        "        self.queued_bytes -= len(message)\n",
        "",
        "tests/service/calls/test_subscribe.py::test_a_slow_subscriber_is_cut_off_by_name_and_a_fast_one_misses_nothing",
    ),
    Defect(
        "an empty batch costs a turn nothing",
        INBOX,
        "elements -= work.batch.count or 1",
        "elements -= work.batch.count",
        INBOX_TESTS + "test_an_empty_batch_counts_as_one_so_that_no_turn_is_endless",
    ),
    Defect(
        "a publisher that finds no room does not wait again",
        INBOX,
        "        while self._is_full:\n",
        "        if self._is_full:\n",
        INBOX_TESTS + "test_all_who_wait_are_woken_and_those_who_find_no_room_wait_again",
    ),
    Defect(
        "a record does not have which input was admitted early",
        "lmerge/service/merge/outcomes.py",
        "            state.recorder.admitted(first.name)\n",
        "            pass\n",
        "tests/service/output/test_session_recorder.py::test_that_the_first_input_is_right_only_from_a_time_on_is_recorded",
    ),
    Defect(
        "an event that differs is shown as the payload came",
        "lmerge/service/merge/divergence_policy.py",
        "escaped_line(payload_text(d.event.payload))",
        "d.event.payload.decode(errors='replace')",
        "tests/service/merge/test_divergence_policy.py::test_rows_that_differ_are_shown_by_their_columns_in_reasons_and_in_the_log",
    ),
    Defect(
        "a long option is cut in the help of a narrow terminal",
        "lmerge/cli/serve_options.py",
        '                "--hold-survivor-wins",\n',
        "",
        "tests/cli/test_commands.py::test_help_cuts_nothing_at_80_columns",
    ),
    Defect(
        "the help of a sink has no room for an address",
        "lmerge/cli/sink.py",
        'typer.Option("--progress", metavar="SECONDS", help',
        'typer.Option("--progress", help',
        "tests/cli/test_commands.py::test_help_cuts_nothing_at_80_columns",
    ),
    Defect(
        "all live events are listed on the loop",
        "lmerge/service/offload.py",
        "return await self.run(merge, work) if self.is_large(merge) else work()",
        "return work()",
        ASIDE_TESTS + "test_others_are_served_while_a_snapshot_is_taken_and_it_is_of_one_moment",
    ),
    Defect(
        "a stable of many events is merged on the loop",
        "lmerge/service/merge/hub.py",
        "return offload.is_large(merge) and any(",
        "return offload.is_large(merge) and not any(",
        ASIDE_TESTS + "test_others_are_served_while_a_stable_visits_many_events",
    ),
    Defect(
        "a stable that was agreed on is merged on the loop",
        "lmerge/service/merge/maintenance.py",
        "outcome = await state.offload.read(state.merge, give)",
        "outcome = give()",
        ASIDE_TESTS + "test_others_are_served_while_a_stable_that_was_agreed_on_visits_many_events",
    ),
    Defect(
        "a subscriber that left while its snapshot was made takes a place",
        "lmerge/service/output/fanout.py",
        "        if subscriber.has_left:\n            return\n",
        "",
        ASIDE_TESTS + "test_a_subscriber_that_leaves_while_its_snapshot_is_taken_takes_no_place",
    ),
    Defect(
        "a segment that is due within a turn is never begun",
        "lmerge/service/output/pipeline.py",
        "if self._segment_is_due or self.journal",
        "if self.journal",
        "tests/service/calls/test_resume.py::test_a_subscriber_gets_the_time_from_which_a_merge_is_complete",
    ),
    Defect(
        "the rows of an input that declares no schema are not checked",
        "lmerge/service/merge/row_check.py",
        "if inp.role is InputRole.ACTIVE else None",
        "if inp.role is InputRole.ACTIVE and inp.has_schema else None",
        ROW_TESTS + "test_bytes_that_are_no_row_end_their_input_alone_and_none_of_that_batch_is_merged",
    ),
    Defect(
        "the rows of an input that declares the schema are not checked",
        "lmerge/service/merge/row_check.py",
        "if inp.role is InputRole.ACTIVE else None",
        "if inp.role is InputRole.ACTIVE and not inp.has_schema else None",
        ROW_TESTS + "test_what_subscribers_get_fits_the_columns_that_were_declared_first",
    ),
    Defect(
        "rows behind the first doubtful one are not checked",
        "lmerge/wire/fitting.py",
        "            index = self._doubt(batch, index + 1)\n",
        "            index = None\n",
        "tests/wire/test_fitting.py::test_the_first_payload_that_does_not_decode_is_found",
    ),
    Defect(
        "rows of many bytes are checked on the loop",
        "lmerge/service/merge/hub.py",
        "        if self._row_check.takes_long(self.state.schema, pending):\n",
        "        if False:\n",
        "tests/service/test_offload.py::test_others_are_served_while_rows_of_many_bytes_are_checked",
    ),
    Defect(
        "a step overtakes the comparison of what came before it",
        "lmerge/service/merge/hub.py",
        "                await self._certify()  # first",
        "                pass  # first",
        LAST_STABLE_TEST,
    ),
    Defect(
        "what an input has delivered does not count once it leaves",
        "lmerge/service/merge/lifecycle.py",
        "return self._staying(status) in (",
        "return self.state(status) in (",
        LAST_STABLE_TEST,
    ),
)
