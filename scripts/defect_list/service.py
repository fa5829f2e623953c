"""Defects of ``lmerge/service``."""

from seeded import Defect

INBOX = "lmerge/service/inbox.py"
INBOX_TESTS = "tests/service/test_inbox.py::"

DEFECTS = (
    Defect(
        "what a subscriber has read still counts as waiting for it",
        "lmerge/service/fanout.py",
        "        self.queued_bytes -= len(message)\n",
        "",
        "tests/service/test_subscribe.py::test_a_slow_subscriber_is_cut_off_by_name_and_a_fast_one_misses_nothing",
    ),
    Defect(
        "an empty batch costs a turn nothing",
        INBOX,
        "elements -= work.batch.count or 1",
        "elements -= work.batch.count",
        INBOX_TESTS + "test_an_empty_batch_counts_as_one_so_that_no_turn_is_endless",
    ),
    Defect(
        "who finds no room does not wait again",
        INBOX,
        "        while self._is_full:\n",
        "        if self._is_full:\n",
        INBOX_TESTS + "test_all_who_wait_are_woken_and_those_who_find_no_room_wait_again",
    ),
    Defect(
        "a record does not say who was let in early",
        "lmerge/service/hub.py",
        "            self._recorder.admitted(first.name)\n",
        "            pass\n",
        "tests/service/test_record.py::test_that_the_first_input_is_right_only_from_a_time_on_is_recorded",
    ),
)
