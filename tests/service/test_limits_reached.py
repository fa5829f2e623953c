"""Every limit in ``Settings`` is reached by a test. A table names the test, and a field without one fails."""

from __future__ import annotations

import ast
from dataclasses import fields
from functools import cache
from pathlib import Path

import grpc
import pytest
from service_world import MERGE, World, ins, stable

from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

TESTS = Path(__file__).parent.parent

# The limits that end, refuse, drop or hold something: the test that reaches each.
REACHED = {
    "lead_max": "core/test_lead.py::test_a_stable_far_ahead_is_held_and_the_others_go_on",
    "lead_wait_s": "service/test_limits_reached.py::test_inputs_without_a_stable_are_waited_for_only_so_long",
    "compare_wait_s": "service/merge/test_wrong_replicas.py::test_quarantine_waits_for_a_late_input_only_so_long",
    "redundancy_lag_s": "service/merge/test_redundancy.py::test_an_input_has_the_lag_to_follow",
    "message_bytes": "service/test_bad_input.py::test_a_message_far_above_the_limit_ends_that_stream_alone",
    "payload_bytes": "service/test_bad_input.py::test_a_malformed_batch_ends_that_stream_alone",
    "batch_elements": "service/test_bad_input.py::test_a_malformed_batch_ends_that_stream_alone",
    "inputs_per_merge": "service/test_bad_input.py::test_inputs_and_merges_above_their_limits_are_refused",
    "merges_max": "service/test_bad_input.py::test_inputs_and_merges_above_their_limits_are_refused",
    "subscribers_per_merge": "service/calls/test_subscribe.py::test_subscribers_above_the_limit_are_refused",
    "waiting_subscribers": "service/calls/test_subscribe.py::test_waiting_subscribers_have_a_limit_and_give_their_place_back",
    "merge_queue_elements": "service/output/test_durable.py::test_a_full_store_holds_the_publishers_and_loses_nothing",
    "merge_queue_bytes": "service/calls/test_publish.py::test_publishers_wait_while_the_queue_is_full_and_nothing_is_lost",
    "subscriber_queue_bytes": "service/calls/test_subscribe.py::test_a_slow_subscriber_is_cut_off_by_name_and_a_fast_one_misses_nothing",
    "turn_elements": "service/calls/test_publish.py::test_a_batch_larger_than_a_turn_is_merged_whole_and_acked_once",
    "merge_threads": "service/merge/test_threads.py::test_a_merge_that_finds_no_free_thread_waits_for_one",
    "feedback_lag": "service/merge/test_lifecycle.py::test_a_lagging_input_gets_the_stable_point_of_the_merge",
    "evidence_bytes": "service/test_limits_reached.py::"
    "test_evidence_has_its_bound_and_reports_when_it_does_not_reach_back",
    "certify_open_max": "service/test_limits_reached.py::test_an_input_with_too_many_open_intervals_is_not_compared",
    "cutover_timeout_s": "service/admin/test_cutover.py::test_the_time_out_rolls_back",
    "attach_rate_per_s": "service/security/test_quota.py::"
    "test_a_name_that_attaches_too_often_is_refused_with_a_time_and_others_are_not_refused",
    "attach_burst": "service/security/test_quota.py::"
    "test_a_name_that_attaches_too_often_is_refused_with_a_time_and_others_are_not_refused",
    "peer_attach_rate_per_s": "service/security/test_quota.py::test_a_peer_that_attaches_too_often_is_refused",
    "peer_attach_burst": "service/security/test_quota.py::test_a_peer_that_attaches_too_often_is_refused",
    "refusal_rate_per_s": "service/security/test_quota.py::"
    "test_guessing_tokens_ends_in_silence_and_disturbs_no_holder_of_one",
    "refusal_burst": "service/security/test_quota.py::test_guessing_tokens_ends_in_silence_and_disturbs_no_holder_of_one",
    "connections_per_peer": "service/security/test_quota.py::test_one_address_cannot_hold_all_connections",
    "open_calls_per_peer": "service/security/test_quota.py::test_unidentified_callers_can_hold_few_calls_of_open_methods",
    "subscribers_per_identity": "service/security/test_quota.py::test_one_identity_cannot_take_all_subscriptions",
    "calls_per_connection": "service/test_limits_reached.py::test_one_call_more_on_a_connection_waits_for_a_place",
    "connections_max": "service/security/test_quota.py::test_more_connections_than_the_limit_are_dropped_and_those_inside_stay",
    "http_connections_max": "service/security/test_quota.py::test_more_http_connections_than_the_limit_close_those_that_wait_longest",
    "http_connections_per_peer": "service/admin/test_http.py::test_probes_answer_while_others_are_silent",
    "http_header_timeout_s": "service/admin/test_http.py::test_a_header_that_does_not_come_ends_its_connection",
    "metrics_subscribers_max": "service/admin/test_metrics.py::"
    "test_series_are_bounded_whoever_subscribes_and_the_page_counts_them_right",
    "page_viewers_max": "service/admin/test_status_page.py::"
    "test_one_viewer_more_than_the_limit_is_refused_and_comes_when_one_goes",
    "page_write_timeout_s": "service/admin/test_status_page.py::"
    "test_a_viewer_that_does_not_read_is_dropped_and_no_other_waits",
    "page_history_merges": "service/admin/test_status_page.py::"
    "test_only_so_many_histories_are_kept_and_those_that_are_watched_first",
    "page_history_samples": "service/admin/test_status_page.py::"
    "test_only_so_many_histories_are_kept_and_those_that_are_watched_first",
    "handshake_timeout_s": "service/security/test_quota.py::test_handshakes_that_never_end_are_ended_and_disturb_no_other",
    "live_events_max": "service/security/test_quota.py::test_an_input_that_fills_a_merge_is_ended_and_the_others_lose_nothing",
    "live_bytes_max": "service/merge/test_payload_limit.py::"
    "test_an_input_that_fills_a_merge_with_few_large_events_is_ended_and_the_others_go_on",
    "live_bytes_per_input": "service/merge/test_payload_limit.py::"
    "test_an_input_that_fills_a_merge_with_few_large_events_is_ended_and_the_others_go_on",
    "retain_bytes": "service/calls/test_resume.py::test_a_merge_too_large_to_be_retained_can_still_be_followed",
    "retain_time": "service/calls/test_resume.py::test_retention_by_time_forgets_what_is_older",
    "store_waiting_bytes": "service/output/test_durable.py::test_a_full_store_holds_the_publishers_and_loses_nothing",
    "gap_after_s": "service/calls/test_resume.py::test_a_stalled_merge_goes_on_behind_a_gap_and_reports_it",
    "staged_bytes_per_replica": "service/merge/test_staged_parts.py::test_a_part_that_alone_is_too_large_is_refused_and_forgotten",
    "staged_bytes": "service/merge/test_staged_parts.py::test_the_oldest_parts_make_room_those_of_the_replica_first",
    "staged_keep_s": "service/calls/test_staging_refused.py::test_parts_without_a_commit_are_dropped_after_a_while",
    "stage_timeout_s": "service/calls/test_staging_refused.py::test_a_call_that_does_not_come_to_an_end_is_ended",
    "stage_rate_per_s": "service/calls/test_staging_refused.py::test_calls_of_one_replica_are_bounded_in_rate_and_number",
    "stage_burst": "service/calls/test_staging_refused.py::test_calls_of_one_replica_are_bounded_in_rate_and_number",
    "stage_calls_per_replica": "service/calls/test_staging_refused.py::test_calls_of_one_replica_are_bounded_in_rate_and_number",
    "end_read_timeout_s": "service/test_input_ends.py::test_a_publisher_that_does_not_close_its_side_is_not_waited_for_for_ever",
    "attach_timeout_s": "service/test_bad_input.py::test_a_stream_without_an_attach_is_not_held_for_ever",
    "occurrences_remembered": "service/merge/test_occurrences.py::test_the_list_of_occurrences_is_bounded",
    "detached_remembered": "service/test_limits_reached.py::test_so_many_ended_inputs_are_remembered",
    "switches_remembered": "service/test_limits_reached.py::test_so_many_switches_are_remembered",
}
# Fields that bound nothing: addresses, paces, sizes of pieces, and timers of libraries that no test can expire.
PACES = {
    "port",
    "http_port",
    "shards",
    "turn_interval_s",
    "turn_interval_max_s",
    "turn_interval_per_subscriber_s",
    "ack_interval_s",
    "stable_ack_interval_s",
    "feedback_interval_s",
    "certify_interval",
    "cutover_intervals",
    "progress_interval_s",
    "check_interval_s",
    "segment_bytes",
    "page_interval_s",
    "store_retry_s",
    "store_threads",
    "keepalive_s",
    "keepalive_timeout_s",
    "idle_connection_s",
}


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text())
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("field", [f.name for f in fields(Settings) if f.type in ("int", "float", "int | None")])
def test_every_limit_has_a_test_that_reaches_it(field: str) -> None:
    assert (field in REACHED) != (field in PACES), f"{field}: name the test that reaches it"
    if field in REACHED:
        file, _, name = REACHED[field].partition("::")
        assert name in names_in(file), f"{field}: there is no test {REACHED[field]}"


def test_the_table_names_no_field_that_is_gone() -> None:
    assert {*REACHED, *PACES} <= {f.name for f in fields(Settings)}


async def test_inputs_without_a_stable_are_waited_for_only_so_long() -> None:
    async with World(lead_max=60, lead_wait_s=0.05) as world:
        a, mute = await world.publisher("a"), await world.publisher("mute")
        await a.merged(ins("x", 1, 5), stable(10))
        described = await world.describe()
        assert [i.state for i in described.inputs] == ["held", "joined"]
        assert described.inputs[0].lacks.startswith("its stable point is held")
        await a.acked(stable_point=10)
        await mute.merged(stable(8))
        await a.merged(stable(100))
        assert (await world.describe()).summary.stable_point == 10
        released = await world.stub.ReleaseInput(pb.ReleaseInputRequest(merge=MERGE, replica="a"))
        assert released.words == "the stable of a is not held any more"
        await a.acked(stable_point=100)


async def test_evidence_has_its_bound_and_reports_when_it_does_not_reach_back() -> None:
    async with World(evidence_bytes=60, certify_interval=10) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x" * 500, 1, 5), stable(10))
        await b.merged(ins("y" * 500, 1, 5), stable(10))
        report = await world.stub.CertifyMerge(pb.CertifyMergeRequest(merge=MERGE))
        assert "no longer kept" in report.divergent[0].missing


async def test_an_input_with_too_many_open_intervals_is_not_compared() -> None:
    async with World(certify_open_max=3, certify_interval=10) as world:
        a = await world.publisher("a")
        await a.merged(*(ins("x", 1 + at, 10 * at + 5) for at in range(1, 6)))
        report = await world.stub.CertifyMerge(pb.CertifyMergeRequest(merge=MERGE))
        assert "more than 3 intervals of 10 were open at once" in report.inputs[0].words


async def test_one_call_more_on_a_connection_waits_for_a_place() -> None:
    async with World(calls_per_connection=2, merges=(MERGE,)) as world:
        first, _second = await world.subscriber(), await world.subscriber()
        third = world.subscribe()
        described = pb.DescribeMergeRequest(merge=MERGE)
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            await world.stub.DescribeMerge(described, timeout=0.2)
        first.call.cancel()
        assert (await third.read()).WhichOneof("message") == "snapshot_begin"


async def test_so_many_ended_inputs_are_remembered() -> None:
    async with World(detached_remembered=2) as world:
        await world.publisher("stays")
        for name in "abc":
            await (await world.publisher(name)).leave()
        assert [gone.replica for gone in (await world.describe()).detached] == ["c", "b"]


async def test_so_many_switches_are_remembered() -> None:
    async with World(switches_remembered=1) as world:
        a = await world.publisher("a", properties=["insert-only", "strictly-ordered"])
        await a.merged(ins("x", 1, 5))
        await world.publisher("b", properties=["key"])
        await world.publisher("c", properties=[])
        (switch,) = (await world.describe()).switches
        assert switch.startswith("r3 -> r4")
