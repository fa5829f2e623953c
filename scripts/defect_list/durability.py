"""Defects of the journal, resume tokens, the store and restarts."""

from seeded import Defect

RELEASE = "lmerge/service/output/release_queue.py"
OUTPUT = "lmerge/service/output/pipeline.py"
JOURNAL = "lmerge/service/output/journal.py"
STORE = "lmerge/service/output/store.py"
RESUME = "lmerge/core/resume.py"
SETTLED = "tests/service/output/test_durable.py"
TOKENS = "tests/service/calls/test_resume.py"

DEFECTS = (
    Defect(
        "reset: the number of an epoch is the clock alone",
        "lmerge/client/admin.py",
        "max(clock.wall_us() // 1_000_000, 1 + _latest_epoch(servers, merge, security, timeout_s))",
        "clock.wall_us() // 1_000_000",
        "tests/service/admin/test_reset.py::test_a_merge_is_reset_twice_within_a_second",
    ),
    Defect(
        "a closed store is opened again by a late write",
        STORE,
        "        if self._is_closed:\n",
        "        if False:\n",
        "tests/service/output/test_store.py::test_a_closed_store_is_not_opened_again_by_what_comes_late",
    ),
    Defect(
        "a server that could not start is stopped twice",
        "lmerge/service/server.py",
        "            self._closed = None\n            raise\n",
        "            raise\n",
        "tests/service/output/test_store.py::test_a_server_that_could_not_start_has_nothing_to_stop",
    ),
    Defect(
        "a restarted merge is taken to be right from the beginning",
        "lmerge/service/output/durable_merges.py",
        "found.incarnations, complete_from(found.facts))",
        "found.incarnations, -(2**63))",
        SETTLED + "::test_an_end_delivered_before_the_output_is_right_is_not_frozen_after_a_restart",
    ),
    Defect(
        "output is shown before it is committed",
        RELEASE,
        "        if not self._groups and not group.changes:\n",
        "        if True:\n",
        SETTLED + "::test_nothing_is_shown_or_promised_before_it_is_committed[native]",
    ),
    Defect(
        "a subscriber is in the fan-out before its snapshot is released",
        OUTPUT,
        "        self.then(lambda: self.fanout.add(subscriber))\n",
        "        self.fanout.add(subscriber)\n",
        SETTLED + "::test_a_subscription_that_waits_for_a_commit_begins_where_its_deltas_do[native]",
    ),
    Defect(
        "resume is off by one segment",
        JOURNAL,
        "            if later.number >= segment.number:\n",
        "            if later.number > segment.number:\n",
        "tests/service/output/test_journal.py::test_the_past_is_the_snapshot_and_every_message_since",
    ),
    Defect(
        "a token older than the journal gets the journal",
        JOURNAL,
        "            if segment.complete_from <= t:\n",
        "            if True:\n",
        TOKENS + "::test_a_token_that_is_too_old_is_refused_with_what_is_retained[native]",
    ),
    Defect(
        "the past before a gap can still be resumed",
        OUTPUT,
        "        self.flush()\n        self.journal.forget()\n",
        "        self.flush()\n",
        TOKENS + "::test_a_subscriber_gets_the_time_from_which_a_merge_is_complete",
    ),
    Defect(
        "no subscriber gets the error that a merge begins later",
        OUTPUT,
        "        self.then(lambda: self.fanout.finish(error, complete_from))\n",
        "        str(error)\n",
        TOKENS + "::test_a_subscriber_gets_the_time_from_which_a_merge_is_complete",
    ),
    Defect(
        "subscribers of before a gap go on, and get a stable point that goes back",
        OUTPUT,
        "        self.then(partial(self.fanout.finish, error))\n",
        "",
        TOKENS + "::test_a_stalled_merge_goes_on_behind_a_gap_and_reports_it[native]",
    ),
    Defect(
        "the fence is lost at a gap",
        "lmerge/service/merge/new_beginnings.py",
        "        merge.keep_fence(state.merge)\n",
        "",
        TOKENS + "::test_behind_a_gap_no_event_keeps_an_end_that_it_had_before[native]",
    ),
    Defect(
        "a disk that is full from the first file on is taken for damage",
        STORE,
        "        if is_blank and not make:\n            return\n",
        "",
        "tests/service/output/test_store.py::test_a_disk_that_is_full_from_the_first_file_on_is_no_damage_over_restarts",
    ),
    Defect(
        "the fence is lost at a restart",
        OUTPUT,
        "            self.release.changes.incarnations[replica] = incarnation\n",
        "            pass\n",
        SETTLED + "::test_the_fence_and_the_schema_and_what_was_kept_outlive_the_server[native]",
    ),
    Defect(
        "the journal's tail is lost with a log that was cut",
        STORE,
        "        if marked > self._commits:\n",
        "        if False:\n",
        "tests/service/output/test_store.py::test_a_log_that_has_lost_its_end_is_refused_as_output_was_shown_from_it[truncated]",
    ),
    Defect(
        "final-only emits an event again after a restart",
        RESUME,
        '        **({"said": plain} if is_final and plain else {}),\n',
        "",
        "tests/core/test_resume.py::test_a_resumed_merge_continues_as_if_it_had_never_ended[python-r3-final-only]",
    ),
    Defect(
        "r1 continues in another order than it has emitted",
        RESUME,
        "        builder.rows += slot\n",
        "        builder.rows += sorted(slot)\n",
        "tests/core/test_resume.py::test_a_replay_of_r1_keeps_the_order_at_max_vs[python]",
    ),
    Defect(
        "checksums are not checked",
        STORE,
        "        if not isinstance(data, bytes) or crc != _crc(data, *values):\n",
        "        if not isinstance(data, bytes):\n",
        "tests/service/output/test_store.py::test_a_row_that_does_not_fit_its_checksum_is_refused",
    ),
    Defect(
        "a batch is acked before it is durable",
        "lmerge/service/merge/acks.py",
        "        release.then(partial(self._acked, inp, inp.merged, inp.joined, release))\n",
        "        self._acked(inp, inp.merged, inp.joined, release)\n",
        SETTLED + "::test_nothing_is_shown_or_promised_before_it_is_committed[native]",
    ),
)
