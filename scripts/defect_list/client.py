"""Defects of ``lmerge/client``."""

from seeded import Defect

LIVE = "lmerge/client/publish/live_events.py"
LIVE_TESTS = "tests/client/publish/test_live.py::"

OUTAGE = "lmerge/client/connection/outage.py"
OUTAGE_TESTS = "tests/client/connection/test_outage.py::"

DEFECTS = (
    Defect(
        "an event that ends at the stable point is forgotten",
        LIVE,
        "            gone = bisect_left(ends, (frozen_to, 0))",
        "            gone = bisect_left(ends, (frozen_to + 1, 0))",
        LIVE_TESTS + "test_the_prelude_is_that_of_the_naive_twin_after_every_element",
    ),
    Defect(
        "a replica behind the merge forgets what it may still adjust",
        LIVE,
        "frozen_to = min(self.trimmed, self.stable)",
        "frozen_to = self.trimmed",
        LIVE_TESTS + "test_a_replica_behind_the_merge_keeps_what_it_may_still_adjust[python]",
    ),
    Defect(
        "the prelude is in order of Vs and not of insertion",
        LIVE,
        "[(number, vs, ve, payload) for",
        "[(vs, vs, ve, payload) for",
        LIVE_TESTS + "test_the_prelude_keeps_the_order_of_insertion[python]",
    ),
    Defect(
        "a server that has another address under its name is looked for after 30 s",
        "lmerge/client/connection/streams.py",
        '    ("grpc.dns_min_time_between_resolutions_ms", 500),',
        '    ("grpc.dns_min_time_between_resolutions_ms", 30_000),',
        "tests/client/connection/test_new_address.py::test_a_server_with_a_new_address_is_found_soon",
    ),
    Defect(
        "a server that is not reached is reported at every attempt",
        OUTAGE,
        "        if self._waits_for_reason:",
        "        if self._waits_for_reason or self._is_reported:",
        OUTAGE_TESTS + "test_an_outage_is_one_warning_after_five_seconds_and_one_line_at_its_end",
    ),
    Defect(
        "a server that is not reached is waited for in silence",
        "lmerge/client/subscribe/connection.py",
        "            self._outage.attempt(channel)",
        "            pass",
        OUTAGE_TESTS + "test_a_name_that_the_certificate_does_not_hold_is_the_reason",
    ),
    Defect(
        "a server that accepts connections and refuses calls counts as reached",
        OUTAGE,
        "        self._channel = None\n        self._reasons.pop",
        "        self._reasons.pop",
        OUTAGE_TESTS + "test_a_server_that_connects_and_refuses_every_call_is_an_outage",
    ),
    Defect(
        "each ack indexes all waiting elements",
        "lmerge/client/publish/outbox.py",
        "            self._count_at = self.live.at_most + self.behind_events_max",
        "            self._count_at = len(self.live) + self.behind_events_max",
        "tests/client/publish/test_outbox.py::test_an_ack_looks_at_no_event_that_waits[here]",
    ),
)
