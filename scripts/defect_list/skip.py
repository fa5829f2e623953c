"""Defects of skipping events that are not needed: ``lmerge/spark/skipping.py`` and the modules that act on it."""

from seeded import Defect

COMMITTER = "lmerge/spark/sink/committer.py"
ELEMENTS = "lmerge/spark/sink/elements.py"
MARKS = "lmerge/spark/sink/intervals.py"
STATE = "lmerge/spark/spool/published_state.py"
SKIPPING = "lmerge/spark/skipping.py"
SOURCE = "lmerge/spark/source/readers.py"
SPOOL = "lmerge/spark/spool/spool.py"
TEST = "tests/spark/test_skip.py::"
QUERIES = "tests/spark/test_skip_queries.py::"

DEFECTS = (
    Defect(
        "events are left out without an announcement to the servers",
        COMMITTER,
        "        publisher.skip_now(until)\n        if not was_skipping:",
        "        if not was_skipping:",
        TEST + "test_a_skip_is_announced_before_the_first_event_is_left_out",
    ),
    Defect(
        "a restarted replica that skips publishes a stable that it has not reached",
        COMMITTER,
        "    complete_from = min(complete_from, max((row[1] for row in stables), default=NEG_INF))\n",
        "",
        TEST + "test_a_replica_that_skips_may_still_publish_what_begins_before_the_point",
    ),
    Defect(
        "a replica that has left things out joins a server as if it had not",
        COMMITTER,
        "if publisher.outbox.skipped < complete_from < INF:",
        "if False:",
        TEST + "test_a_server_that_comes_later_learns_what_is_missing",
    ),
    Defect(
        "a replica that has caught up goes on skipping",
        COMMITTER,
        "self._is_skipping, until > stable",
        "self._is_skipping, until > NEG_INF",
        TEST + "test_one_that_is_no_longer_behind_does_not_skip",
    ),
    Defect(
        "a query skips although skipping is off",
        COMMITTER,
        "self._needed_from if self._options.skips else NEG_INF",
        "self._needed_from",
        TEST + "test_a_query_that_does_not_skip_leaves_nothing_out",
    ),
    Defect(
        "a batch that runs again leaves out more",
        SPOOL,
        "before = self.record.manifest(batch - 1) or",
        "before = self.record.manifest(batch) or self.record.manifest(batch - 1) or",
        TEST + "test_a_batch_that_runs_again_leaves_out_the_same",
    ),
    Defect(
        "events that were left out are published again later",
        SPOOL,
        "max(skipped, before.skipped if before else NEG_INF)",
        "skipped",
        TEST + "test_what_was_left_out_once_is_left_out_for_good",
    ),
    Defect(
        "an event that ends at the point is left out",
        ELEMENTS,
        "needed = pc.greater_equal(ve, self._skipped)",
        "needed = pc.greater(ve, self._skipped)",
        TEST + "test_a_batch_leaves_out_what_the_one_before_announced_to_the_servers",
    ),
    Defect(
        "an event that was begun never gets its end",
        ELEMENTS,
        "(ve if kind == INSERT else max(ve, vold))",
        "ve",
        TEST + "test_an_event_that_was_begun_gets_its_end_even_if_that_is_not_needed",
    ),
    Defect(
        "state of events that are not needed is kept for ever",
        ELEMENTS,
        "value[1] >= max(self._published_stable, self._skipped)",
        "value[1] >= self._published_stable",
        TEST + "test_keys_that_are_not_needed_are_forgotten_at_once",
    ),
    Defect(
        "a state that skips is looked through as rarely as ever",
        STATE,
        "1 if skips else _LOOK_BATCHES",
        "_LOOK_BATCHES",
        TEST + "test_keys_that_are_not_needed_are_forgotten_at_once",
    ),
    Defect(
        "the payload of an interval that begins at an end is forgotten",
        MARKS,
        'b"" if t < ends[-1] else payload',
        'b"" if t <= ends[-1] else payload',
        TEST + "test_a_payload_that_is_forgotten_was_of_an_interval_that_ends_before",
    ),
    Defect(
        "the optimizer puts an expensive filter beside the one that skips",
        SKIPPING,
        ".asNondeterministic()",
        "",
        QUERIES + "test_a_query_that_is_behind_skips_before_the_expensive_part_and_goes_on_after_a_restart",
    ),
    Defect(
        "a source reads all that its query will leave out",
        SOURCE,
        "        if until <= at:\n            return at\n",
        "        return at\n",
        QUERIES + "test_a_query_that_reads_a_merge_does_not_read_what_is_not_needed",
    ),
    Defect(
        "a skip that a server has asked for breaks the connection to it",
        "lmerge/client/publish/link.py",
        "self.lane.note_stable(max(self.lane.needs, self.needed_from))",
        "pass",
        "tests/client/publish/test_feedback.py::test_a_skip_that_a_server_has_asked_for_needs_no_other_connection",
    ),
    Defect(
        "an input that attaches behind a stalled merge gets no feedback",
        "lmerge/service/merge/acks.py",
        "        if self._settings.feedback_lag is not None and self._feedback_timer is None:\n",
        "        if self._settings.feedback_lag is not None and self._feedback_timer is None and any(\n"
        "                inp.acked_stable != release.stable_point for inp in self._inputs.values()):\n",
        "tests/service/merge/test_lifecycle.py::test_an_input_that_attaches_behind_a_stalled_merge_gets_feedback",
    ),
    Defect(
        "a server that is still being called needs nothing",
        "lmerge/client/publish/publisher.py",
        "if not all(link.was_tried for link in self.links):",
        "if not self.links:",
        "tests/client/publish/test_feedback.py::test_a_server_that_is_still_being_called_may_need_more",
    ),
)
