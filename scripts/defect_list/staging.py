"""Defects of staging and commit: ``lmerge/service`` and ``lmerge/client``."""

from seeded import Defect

PARTS = "lmerge/service/merge/staged_parts.py"
PUBLISH = "lmerge/service/calls/publish.py"
LINK = "lmerge/client/publish/link.py"
SERVICE_TESTS = "tests/service/calls/test_staging.py::"
REFUSED_TESTS = "tests/service/calls/test_staging_refused.py::"
PARTS_TESTS = "tests/service/merge/test_staged_parts.py::"
CLIENT_TESTS = "tests/client/publish/test_stage.py::"
DROPS = PARTS_TESTS + "test_a_commit_drops_other_attempts_and_what_came_before_and_nothing_else"

DEFECTS = (
    Defect(
        "a commit merges only the parts that have arrived",
        PARTS,
        "for partition, attempt in parts]\n        missing",
        "for partition, attempt in parts if kept and PartKey(query, batch, partition, attempt) in kept.parts]\n"
        "        missing",
        PARTS_TESTS + "test_a_miss_takes_nothing_and_what_it_leaves_is_of_no_use",
    ),
    Defect(
        "a commit takes parts of another run that hold more",
        PARTS,
        "expected is not None and expected != is_there",
        "expected is not None and expected > is_there",
        SERVICE_TESTS + "test_parts_that_do_not_hold_what_the_publisher_declares_are_not_merged",
    ),
    Defect(
        "a part that was replaced goes on counting",
        PARTS,
        "        if key in kept.parts:\n            self._drop(owner, key, REPLACED)",
        "        if key in kept.parts:\n            pass",
        PARTS_TESTS + "test_whatever_is_staged_committed_missed_and_swept_the_sums_are_right",
    ),
    Defect(
        "other attempts stay when their batch is committed",
        PARTS,
        "now_s, behind=batch + 1)",
        "now_s, behind=batch)",
        DROPS,
    ),
    Defect(
        "a batch cannot be committed once the next one is staged",
        PARTS,
        "now_s, behind=key.batch - 1)",
        "now_s, behind=key.batch)",
        DROPS,
    ),
    Defect(
        "a part that did not come to its end goes on counting",
        PARTS,
        "            self._release(owner, arriving.held)",
        "            self._release(owner, 0)",
        PARTS_TESTS + "test_parts_that_arrive_or_are_taken_count_and_cannot_be_dropped",
    ),
    Defect(
        "parts are merged in another order than that of the commit",
        PUBLISH,
        "[batch for part in parts for batch in part.batches]",
        "[batch for part in reversed(parts) for batch in part.batches]",
        SERVICE_TESTS + "test_a_commit_has_its_place_among_the_batches_and_its_parts_the_order_of_the_commit",
    ),
    Defect(
        "a broken promise in a commit is reported by its index in a batch",
        PUBLISH,
        "            base += batch.count\n",
        "            base += 0\n",
        SERVICE_TESTS + "test_a_broken_promise_in_a_part_is_reported_by_its_index_in_the_commit",
    ),
    Defect(
        "a commit is acked with its first batch",
        "lmerge/service/merge/hub.py",
        "acked = sequence if is_last else 0",
        "acked = sequence",
        "tests/service/merge/test_hub.py::test_batches_with_one_sequence_are_acked_when_the_last_of_them_is_merged",
    ),
    Defect(
        "a worker may stage for every replica of its merge",
        "lmerge/service/security/guard.py",
        'as replica {_cut(replica)}", merge, replica)\n        return self._guard.one_stage',
        'as replica {_cut(replica)}", merge)\n        return self._guard.one_stage',
        REFUSED_TESTS + "test_a_worker_stages_for_the_replica_that_its_token_names_and_for_no_other",
    ),
    Defect(
        "a server must commit what another one holds",
        LINK,
        "self.target in item.staged.holders",
        "bool(item.staged.holders)",
        CLIENT_TESTS + "test_servers_that_do_not_hold_all_of_it_receive_the_elements",
    ),
    Defect(
        "a server that loses what was staged may commit every time",
        LINK,
        "            self._trust.broken()\n",
        "            self._trust.kept()\n",
        CLIENT_TESTS + "test_a_server_that_loses_what_was_staged_again_and_again_is_sent_more_and_more",
    ),
    Defect(
        "a lane that sends elements is dropped when another commits them",
        "lmerge/client/publish/outbox.py",
        "            if isinstance(item, StagedBatches):\n",
        "            if isinstance(item, Skip):\n",
        CLIENT_TESTS + "test_a_lane_that_must_send_what_others_commit_is_dropped_only_when_it_is_behind_by_more",
    ),
    Defect(
        "the stable of a staged batch is not sent to servers that do not hold it",
        "lmerge/client/publish/outbox.py",
        "return self.batches if self.stable is None else (*self.batches, self.stable)",
        "return self.batches",
        CLIENT_TESTS + "test_staged_batches_and_their_stable_are_one_item_in_the_order_of_publishing",
    ),
)
