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
        "lmerge/client/connection/channels.py",
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
    Defect(
        "a child takes the files of its parent's connections from the loop",
        "lmerge/client/connection/native_channel.py",
        "if self._process != os.getpid():",
        "if self._process == 0:",
        "tests/client/connection/test_transport_choice.py"
        "::test_a_child_that_closes_a_channel_closes_nothing_of_its_parent",
    ),
    Defect(
        "a proxy for HTTP is passed by",
        "lmerge/client/connection/channels.py",
        "return any(map(os.environ.get, _PROXIES)) and not proxy_bypass(host_of(target))",
        "return any(map(os.environ.get, _PROXIES)) and proxy_bypass(host_of(target))",
        "tests/client/connection/test_transport_choice.py::test_it_is_native_unless_grpc_alone_can_connect",
    ),
    Defect(
        "a task that is cancelled leaves its native call open",
        "lmerge/client/connection/native_channel.py",
        "        except asyncio.CancelledError:\n            self.cancel()\n            raise\n        finally:\n",
        "        finally:\n",
        "tests/client/connection/test_channels.py"
        "::test_a_call_ends_with_its_reader_with_its_last_reference_and_with_its_channel",
    ),
    Defect(
        "a broken connection of a native call is an end without an error",
        "lmerge/client/connection/native_channel.py",
        "        if status is not None and status[0] != grpc.StatusCode.OK.value[0]:\n",
        "        if status is not None and status[0] == grpc.StatusCode.INTERNAL.value[0]:\n",
        "tests/client/connection/test_channels.py"
        "::test_a_broken_connection_ends_its_calls_and_the_next_call_has_another",
    ),
)
