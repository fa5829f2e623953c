"""Defects of metrics, of the server and of clients."""

from seeded import Defect

FANOUT = "lmerge/service/output/fanout.py"
INPUTS = "lmerge/service/admin/metrics_inputs.py"
OUTPUT = "lmerge/service/admin/metrics_output.py"
HISTORY = "lmerge/service/merge/stable_history.py"
TESTS = "tests/service/admin/test_metrics.py::"
CLIENT = "lmerge/client/metrics.py"
CLIENT_TESTS = "tests/client/test_metrics.py::"
HISTORY_TESTS = "tests/service/merge/test_stable_history.py::"

DEFECTS = (
    Defect(
        "what a reader does not read counts as delivered when it was queued",
        "lmerge/service/calls/subscribe.py",
        "        await write(data)\n        written(subscriber, len(data))\n",
        "        written(subscriber, len(data))\n        await write(data)\n",
        TESTS + "test_what_a_reader_does_not_read_is_its_lag_and_then_its_latency",
    ),
    Defect(
        "the message that is being written does not count as lag",
        FANOUT,
        "        if self._sending_s is not None:\n            return now_s - self._sending_s\n",
        "",
        TESTS + "test_a_message_lags_until_it_is_written",
    ),
    Defect(
        "progress of a quiet stream counts as output",
        FANOUT,
        "        if received_s is not None:\n            self.added_latency",
        "        received_s = received_s or 0.0\n        if received_s is not None:\n            self.added_latency",
        TESTS + "test_added_latency_is_counted_once_for_each_message_and_subscriber",
    ),
    Defect(
        "every subscriber has series of its own",
        OUTPUT,
        "nsmallest(most, ",
        "nsmallest(len(by_label), ",
        TESTS + "test_series_are_bounded_whoever_subscribes_and_the_page_counts_them_right",
    ),
    Defect(
        "a subscriber without a name is labelled by its port",
        FANOUT,
        'return ANONYMOUS if self.name.startswith(f"{ANONYMOUS} at ") else self.name',
        "return self.name",
        TESTS + "test_series_are_bounded_whoever_subscribes_and_the_page_counts_them_right",
    ),
    Defect(
        "a newcomer lags since the output began",
        INPUTS,
        "        return min(behind_s, now_s - attached.attached_at)\n",
        "        return behind_s\n",
        TESTS + "test_an_input_without_a_stable_point_lags_since_it_attached",
    ),
    Defect(
        "an input at the stable point of the output lags",
        HISTORY,
        "bisect_right(self._points, stable_point)",
        "bisect_right(self._points, stable_point - 1)",
        HISTORY_TESTS + "test_an_input_is_behind_since_the_output_passed_it",
    ),
    Defect(
        "a history is thinned without regard to age",
        HISTORY,
        "> age_s * _ERROR:",
        "> 60 * age_s * _ERROR:",
        HISTORY_TESTS + "test_a_lag_is_never_too_large_and_too_small_by_a_sixteenth_at_most",
    ),
    Defect(
        "a bucket does not contain its upper bound",
        "lmerge/histogram.py",
        "bisect_left(self._bounds, seconds)",
        "bisect_left(self._bounds, seconds + 1e-9)",
        TESTS + "test_a_bucket_contains_its_upper_bound_and_the_last_one_all",
    ),
    Defect(
        "a quarantined name has no state",
        INPUTS,
        "            _add_state(states, hub.name, name, QUARANTINED)\n",
        "            pass\n",
        TESTS + "test_each_input_is_in_one_state",
    ),
    Defect(
        "of a chain the last certificate counts",
        "lmerge/service/security/cert_expiry.py",
        "return min((_expiry",
        "return max((_expiry",
        "tests/service/security/test_cert_expiry.py::test_of_a_chain_the_first_to_expire_counts",
    ),
    Defect(
        "attempts to commit are not counted",
        "lmerge/service/output/durable_merges.py",
        "                self.errors += 1\n",
        "",
        TESTS + "test_a_store_that_cannot_be_written_counts_its_attempts",
    ),
    Defect(
        "freshness is measured in the stream's units, whatever they are",
        CLIENT,
        "clock.wall_us() - stable_point * self._unit_us",
        "clock.wall_us() - stable_point",
        CLIENT_TESTS + "test_freshness_is_the_age_of_the_stable_point_when_it_is_read",
    ),
    Defect(
        "a clock that is ahead makes the sum of freshness smaller",
        CLIENT,
        "observe(max(0, age_us) / 1e6)",
        "observe(age_us / 1e6)",
        CLIENT_TESTS + "test_freshness_is_the_age_of_the_stable_point_when_it_is_read",
    ),
    Defect(
        "a relay exports its reading side only",
        CLIENT,
        "                self.watch(relay.publisher)\n",
        "                pass\n",
        CLIENT_TESTS + "test_a_relay_exports_both_of_its_sides",
    ),
    Defect(
        "what a server has not merged is counted from what was sent",
        CLIENT,
        "link.lane.acked,",
        "publisher.outbox.published,",
        CLIENT_TESTS + "test_a_publisher_exports_what_each_server_has_merged",
    ),
    Defect(
        "a query that has ended keeps its series",
        "lmerge/spark/metrics.py",
        "                self._figures.pop(label, None)\n",
        "                pass\n",
        "tests/spark/test_spark_metrics.py::test_a_query_reports_its_batches_rows_and_watermark_and_goes_when_it_ends",
    ),
)
