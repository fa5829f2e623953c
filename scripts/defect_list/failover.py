"""Defects of publishers and subscribers of several servers: ``lmerge/client``."""

from seeded import Defect

OUTBOX = "lmerge/client/publish/outbox.py"
FOLLOWER = "lmerge/client/subscribe/follower.py"
READER = "lmerge/client/subscribe/reader.py"
FORWARD = "lmerge/client/publish/fast_forward.py"
OUTBOX_TESTS = "tests/client/publish/test_outbox.py::"
SUBSCRIBER = "lmerge/client/subscribe/subscriber.py"
FOLLOWER_TESTS = "tests/client/subscribe/test_follower.py::"
BLOCKING_TESTS = "tests/client/test_blocking.py::"
MANY = "tests/client/subscribe/test_many_servers.py::"
NOTHING_LOST = MANY + "test_as_long_as_one_server_is_there_nothing_is_lost_and_nothing_delivered_twice"

DEFECTS = (
    Defect(
        "a source that begins too late is taken as joined",
        FOLLOWER,
        "            ready = [s for s in joining if bound is None or s.complete_from <= bound]",
        "            ready = joining",
        NOTHING_LOST + "[python-2]",
    ),
    Defect(
        "a resumed reader receives what had been frozen before its token",
        FOLLOWER,
        "self._withheld.take_frozen() if event.ve >= self._withheld_until]",
        "self._withheld.take_frozen()]",
        FOLLOWER_TESTS + "test_a_reader_that_waited_for_its_token_receives_what_was_frozen_on_the_way[python]",
    ),
    Defect(
        "a resumed reader misses what was frozen while it waited",
        FOLLOWER,
        "builder.rows = _difference(self._held, frozen + self._withheld.live_events())",
        "builder.rows = _difference(self._held, self._withheld.live_events())",
        FOLLOWER_TESTS + "test_a_reader_that_waited_for_its_token_receives_what_was_frozen_on_the_way[python]",
    ),
    Defect(
        "a token taken in the middle of a batch covers more than was seen",
        READER,
        "self._batch, self._applied, self._seen = batch, 0, batch.count if at_once else 0",
        "self._batch, self._applied, self._seen = batch, 0, batch.count",
        NOTHING_LOST + "[python-1]",
    ),
    Defect(
        "a publisher forgets what a server that is away still needs",
        OUTBOX,
        "self.live.trim(min([present, *(lane.needs for lane in away)]))",
        "self.live.trim(present)",
        OUTBOX_TESTS + "test_a_server_that_is_away_is_waited_for_and_joins_where_it_was[python]",
    ),
    Defect(
        "a connection joins at a time before what the table still has",
        OUTBOX,
        "self.needs = self.joins_at = max(outbox.complete_from, outbox.skipped)",
        "self.needs = self.joins_at = outbox.skipped",
        OUTBOX_TESTS + "test_a_connection_joins_at_the_lower_of_the_two_points_of_trimming[python]",
    ),
    Defect(
        "a lane without a connection is waited for",
        OUTBOX,
        "lanes = [lane for lane in self.lanes if lane.is_up] or self.lanes",
        "lanes = [min(self.lanes, key=lambda lane: lane.sent_bytes)] if self.lanes else []",
        OUTBOX_TESTS + "test_a_lane_without_a_connection_keeps_nothing_and_delays_no_other[python]",
    ),
    Defect(
        "events are left out before the skip is sent",
        FORWARD,
        "            if until > self._skipped_to and self._skip is not None:",
        "            if until > self._skipped_to and self._skip is not None and self.count:",
        "tests/client/publish/test_feedback.py::test_what_ends_before_the_point_is_not_needed_and_the_skip_is_sent_first",
    ),
    Defect(
        "a blocking reader reads the merge while another thread changes it",
        FOLLOWER,
        "        return self.reader.delivered_to == INF ",
        "        return (self.reader.delivered_to if self._merge is None else self._merge.stable_point) == INF ",
        BLOCKING_TESTS + "test_a_reader_of_two_servers_may_ask_anything_while_they_are_merged[native]",
    ),
    Defect(
        "a blocking reader ends before the elements that came with the end",
        SUBSCRIBER,
        "        if self.follower.reader.waiting:\n            return False",
        "        if False:\n            return False",
        BLOCKING_TESTS + "test_what_came_with_the_end_is_read_although_the_reader_had_just_found_nothing",
    ),
    Defect(
        "an older server that was restarted empty joins at once",
        FOLLOWER,
        "            complete_from = INF if is_empty else stable_point",
        "            complete_from = stable_point",
        FOLLOWER_TESTS + "test_an_older_server_that_was_restarted_empty_joins_at_its_first_stable[python-8-gaps2]",
    ),
    Defect(
        "a restarted source keeps its earlier stable point",
        FOLLOWER,
        "source.complete_from, source.stable_point = complete_from, stable_point ",
        "source.complete_from = complete_from ",
        FOLLOWER_TESTS + "test_an_older_server_that_was_restarted_empty_joins_at_its_first_stable[python-8-gaps2]",
    ),
)
