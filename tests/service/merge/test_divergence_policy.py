"""Divergence in a server: alarm, quarantine, majority and hold work as docs/divergence.md defines; hazard 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from service_world import MERGE, RawPublisher, RawReader, World, ins, stable

from lmerge.core.elements import INF, Event, show_payload
from lmerge.errors import UsageError
from lmerge.service.merge.divergence_policy import Certifier
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

INTERVAL = 10
OBSERVE = pb.ROLE_OBSERVE
GOOD = Event(1, b"good", 8)


def world(divergence: str, **more: Any) -> World:
    return World(divergence=divergence, certify_interval=INTERVAL, **more)


async def certified(world: World) -> pb.CertifyMergeResponse:
    return await world.stub.CertifyMerge(pb.CertifyMergeRequest(merge=MERGE))


async def three(world: World) -> list[RawPublisher]:
    return [await world.publisher(name) for name in "abc"]


async def fast_but_wrong(world: World) -> tuple[list[RawPublisher], RawReader]:
    """Hazard 1: b has lost an event, and its stable comes first."""
    publishers = await three(world)
    reader = await world.subscriber()
    a, b, c = publishers
    await a.merged(ins("good", 1, 8))
    await c.merged(ins("good", 1, 8))
    await b.merged(ins("other", 2, 30), stable(10))
    return publishers, reader


async def test_alarm_lets_a_fast_but_wrong_replica_erase_good_output() -> None:
    async with world("alarm") as w:
        (a, _b, c), reader = await fast_but_wrong(w)
        assert GOOD not in await reader.until_stable(10)
        await a.merged(ins("other", 2, 30), stable(10))
        await c.merged(ins("other", 2, 30), stable(10))
        report = await certified(w)
        assert [(d.start, d.end) for d in report.divergent] == [(0, 10)]
        (difference,) = report.divergent[0].differences
        assert (difference.payload, difference.vs, difference.ve) == (b"good", 1, 8)
        assert (list(difference.present), list(difference.absent)) == (["a", "c"], ["b"])
        assert len((await w.describe()).inputs) == 3


async def test_majority_prevents_it_and_quarantines_the_minority() -> None:
    async with world("majority") as w:
        (a, b, c), reader = await fast_but_wrong(w)
        await a.merged(ins("other", 2, 30), stable(10))
        await c.merged(ins("other", 2, 30), stable(10))
        ending = await b.ending()
        assert ending.code is grpc.StatusCode.PERMISSION_DENIED
        assert "differs from more than half of the inputs in [0, 10)" in ending.details
        assert "good [1, 8): a, c with it, b without it" in ending.details
        assert GOOD in await reader.until_stable(10)


async def test_hold_emits_no_stable_while_inputs_differ_and_goes_on_when_one_is_detached() -> None:
    async with world("hold") as w:
        (a, _b, c), reader = await fast_but_wrong(w)
        for good in (a, c):
            await good.merged(ins("other", 2, 30), stable(10))
        assert (await w.describe()).summary.stable_point < 10
        await w.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="b", reason="it is wrong"))
        assert GOOD in await reader.until_stable(10)


async def test_quarantine_refuses_the_name_until_it_is_released() -> None:
    async with world("quarantine") as w:
        publishers = await three(w)
        for name, publisher in zip("abc", publishers):
            await publisher.send(ins("wrong" if name == "c" else "right", 1, 5), stable(10))
        ending = await publishers[2].ending()
        assert ending.code is grpc.StatusCode.PERMISSION_DENIED
        refused = await w.refused("c")
        assert refused.code is grpc.StatusCode.PERMISSION_DENIED
        assert "lmerge release flights c" in refused.details
        await w.stub.ReleaseInput(pb.ReleaseInputRequest(merge=MERGE, replica="c"))
        again = await w.publisher("c", join_at=10)
        await again.merged(ins("right", 11, 15), stable(20))


async def test_quarantine_of_two_that_differ_is_an_alarm_only() -> None:
    async with world("quarantine") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        await a.merged(ins("A", 1, 5), stable(10))
        await b.merged(ins("B", 1, 5), stable(10))
        assert len((await certified(w)).divergent) == 1
        assert [i.replica for i in (await w.describe()).inputs] == ["a", "b"]


async def test_an_observer_is_never_part_of_a_majority_and_never_quarantined() -> None:
    async with world("quarantine") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        observers = [await w.publisher(name, role=OBSERVE) for name in "op"]
        await a.merged(ins("A", 1, 5), stable(10))
        for publisher in (b, *observers):
            await publisher.merged(ins("B", 1, 5), stable(10))
        assert [i.replica for i in (await w.describe()).inputs] == ["a", "b", "o", "p"]
        assert {i.replica: i.equal for i in (await certified(w)).inputs} == {"a": 0, "b": 0, "o": 0, "p": 0}


async def test_an_observer_that_differs_is_seen_beside_one_active_input() -> None:
    async with world("alarm") as w:
        a, o = await w.publisher("a"), await w.publisher("o", role=OBSERVE)
        for start, payload in ((0, "A"), (10, "B"), (20, "A")):
            await a.merged(ins("A", start, start + 5), stable(start + 10))
            await o.merged(ins(payload, start, start + 5), stable(start + 10))
        texts = {i.replica: i.words for i in (await certified(w)).inputs}
        assert texts == {"a": "a equal over 3 intervals", "o": "o equal over the last 1 interval, different in 1 of 3"}


@pytest.mark.parametrize("policy", ["majority", "hold"])
async def test_a_single_input_goes_on_unchecked(policy: str) -> None:
    async with world(policy) as w:
        a = await w.publisher("a")
        reader = await w.subscriber()
        await a.merged(ins("A", 1, 5), stable(17))
        assert await reader.until_stable(10) == [Event(1, b"A", 5)]
        await a.merged(stable(INF))
        await reader.until_stable(INF)


@pytest.mark.parametrize("policy", ["majority", "hold"])
async def test_the_stable_waits_for_the_second_of_two_and_goes_on_when_it_dies(policy: str) -> None:
    async with world(policy) as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        reader = await w.subscriber()
        await a.merged(ins("A", 1, 5), ins("A", 12, 15), stable(20))
        await b.merged(ins("A", 1, 5), stable(10))
        assert await reader.until_stable(10) == [Event(1, b"A", 5), Event(12, b"A", 15)]
        await b.leave()
        await reader.until_stable(20)


@pytest.mark.parametrize("policy", ["majority", "hold"])
async def test_a_newcomer_counts_from_its_join_on(policy: str) -> None:
    async with world(policy) as w:
        a = await w.publisher("a")
        reader = await w.subscriber()
        await a.merged(ins("A", 1, 5), stable(20))
        b = await w.publisher("b", join_at=25)
        await a.merged(ins("A", 21, 33), stable(30))
        await reader.until_stable(30)
        await a.merged(stable(40))
        await w.described(lambda d: {i.replica: i.state for i in d.inputs}["b"] == "joined")
        assert reader.tdb.stable_point == 30
        await b.merged(ins("A", 21, 33), stable(40))
        await reader.until_stable(40)


@pytest.mark.parametrize("policy", ["majority", "hold"])
async def test_a_promise_broken_against_a_withheld_stable_ends_the_input_as_ever(policy: str) -> None:
    async with world(policy) as w:
        a = await w.publisher("a")
        await w.publisher("b")
        await a.send(ins("A", 11, 15), stable(10), ins("B", 12, 13), ins("late", 5, 30), ins("C", 12, 13))
        ending = await a.ending()
        assert ending.detached is not None
        assert (ending.detached.code, ending.detached.index) == ("insert-below-stable", 3)
        assert ending.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_violation_that_the_merge_finds_has_its_place_in_the_batch_as_it_came() -> None:
    async with world("majority") as w:
        a = await w.publisher("a")
        await a.send(ins("A", 11, 15), stable(5), stable(6), ins("A", 11, 19))
        ending = await a.ending()
        assert ending.detached is not None
        assert (ending.detached.code, ending.detached.index) == ("duplicate-key", 3)


async def test_majority_keeps_an_event_whose_end_lies_far_ahead() -> None:
    """The existence of an event is frozen by its start: b lacks an event that ends in a later interval."""
    async with world("majority") as w:
        a, b, c = await three(w)
        reader = await w.subscriber()
        for good in (a, c):
            await good.merged(ins("long", 1, 500), stable(10))
        await b.send(stable(10))
        assert (await b.ending()).code is grpc.StatusCode.PERMISSION_DENIED
        assert await reader.until_stable(10) == [Event(1, b"long", 500)]


async def test_a_reconnect_with_its_live_events_raises_no_alarm() -> None:
    async with world("alarm") as w:
        a, b = await w.publisher("a", incarnation=1), await w.publisher("b")
        await a.merged(ins("A", 1, 5), ins("L", 2, 35), stable(10))
        await b.merged(ins("A", 1, 5), ins("L", 2, 35), stable(10))
        again = await w.publisher("a", incarnation=2, join_at=10)
        await again.merged(ins("L", 2, 35), stable(10))
        for publisher in (again, b):
            await publisher.merged(stable(40))
        report = await certified(w)
        assert not report.divergent
        assert {i.replica: i.equal_in_row for i in report.inputs} == {"a": 2, "b": 2}


async def test_the_first_input_of_a_fresh_merge_is_not_compared_before_its_join_at() -> None:
    async with world("alarm") as w:
        a, b = await w.publisher("a", join_at=20), await w.publisher("b")
        await a.merged(ins("A", 21, 25), stable(30))
        await b.merged(ins("old", 1, 5), ins("A", 21, 25), stable(30))
        assert not (await certified(w)).divergent


async def test_skipped_intervals_are_not_compared() -> None:
    async with world("alarm") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        await a.merged(ins("A", 1, 5), ins("A", 11, 15), ins("A", 21, 25), stable(30))
        await b.write(skip=pb.PublishRequest.Skip(until=20))
        await b.merged(ins("A", 21, 25), stable(30))
        report = await certified(w)
        assert not report.divergent
        assert {i.replica: i.compared for i in report.inputs} == {"a": 1, "b": 1}


async def test_none_compares_nothing() -> None:
    async with world("none") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        await a.merged(ins("A", 1, 5), stable(10))
        await b.merged(ins("B", 1, 5), stable(10))
        report = await certified(w)
        assert (report.policy, report.interval, list(report.divergent)) == ("none", 0, [])


async def test_the_input_of_another_algorithm_than_r3_is_compared_too() -> None:
    async with world("alarm") as w:
        promises = ["insert-only", "strictly-ordered"]
        a, b = await w.publisher("a", properties=promises), await w.publisher("b", properties=promises)
        assert a.accepted.algorithm == "r0"
        await a.merged(ins("A", 1, 5), stable(10))
        await b.merged(ins("A", 1, 6), stable(10))
        assert len((await certified(w)).divergent) == 1


async def test_majority_runs_r3_at_least_since_the_others_cannot_take_back() -> None:
    async with world("majority") as w:
        a = await w.publisher("a", properties=["insert-only", "strictly-ordered"])
        assert a.accepted.algorithm == "r3"
        assert "inputs could agree on" in a.accepted.algorithm_reason


async def test_majority_with_final_only_never_shows_an_event_that_one_input_made_up() -> None:
    async with world("majority", policy="final-only") as w:
        a, b, c = await three(w)
        reader = await w.subscriber()
        await b.merged(ins("made up", 1, 5), stable(10))
        for good in (a, c):
            await good.merged(ins("A", 2, 6), stable(10))
        assert await reader.until_stable(10) == [Event(2, b"A", 6)]
        assert [e for e in reader.elements if getattr(e, "payload", b"") == b"made up"] == []


async def test_status_reports_the_policy_the_divergences_and_the_quarantined_inputs() -> None:
    async with world("quarantine") as w:
        for name, publisher in zip("abc", await three(w)):
            await publisher.send(ins("wrong" if name == "c" else "right", 1, 5), stable(10))
        await w.described(lambda d: list(d.quarantined) == ["c"])
        described = await w.describe()
        assert (described.divergence_policy, described.divergences) == ("quarantine", 1)
        assert {i.replica: i.equal_intervals for i in described.inputs} == {"a": 1, "b": 1}
        assert described.detached[0].reason.startswith("quarantined: differs from more than half")


async def test_quarantined_names_survive_a_restart_of_a_server_with_a_store(tmp_path: Path) -> None:
    async with world("alarm", store=str(tmp_path)) as w:
        a = await w.publisher("a")
        await w.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="b", quarantine=True, reason="old build"))
        await a.merged(ins("A", 1, 5), stable(10))
    async with world("alarm", store=str(tmp_path)) as w:
        assert "old build" in (await w.refused("b")).details


def test_majority_with_a_fixed_algorithm_that_cannot_take_back_is_refused() -> None:
    with pytest.raises(UsageError, match="divergence hold needs r3 or r4"):
        Settings(divergence="hold", algorithm="r1").validate()
    with pytest.raises(UsageError, match="unknown divergence policy 'maybe'"):
        Settings(divergence="maybe").validate()


def test_quarantined_names_are_handed_to_the_store_and_come_back() -> None:
    settings = Settings(divergence="alarm")
    kept: dict[str, str] = {}
    before = Certifier("flights", settings.new_merge(), settings, save=kept.__setitem__)
    before.quarantine("b", "wrong prices")
    after = Certifier("flights", settings.new_merge(), settings, kept)
    with pytest.raises(UsageError, match="wrong prices"):
        after.check("b")


FLIGHTS = parse_schema({"flight": "string", "gate": "int"})


@pytest.mark.parametrize("declared", [True, False])
async def test_rows_that_differ_are_shown_by_their_columns_in_reasons_and_in_the_log(
    declared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With a schema, the columns are shown, escaped. Without one, the payload is shown as everywhere."""
    schema = FLIGHTS.to_message() if declared else None
    row = RowCodec(FLIGHTS).encode({"flight": "LH\x1b[31m", "gate": 7})
    shown = r"flight=LH\x1b[31m, gate=7" if declared else show_payload(row)
    expected = f"{shown} [1, 5): c with it, a, b without"
    async with world("quarantine") as w:
        publishers = [await w.publisher(name, schema=schema) for name in "abc"]
        for name, publisher in zip("abc", publishers):
            await publisher.send(*([ins(row, 1, 5)] if name == "c" else []), stable(10))
        ending = await publishers[2].ending()
        assert expected in ending.details
        assert expected in (await w.refused("c")).details, "also when the reason was kept"
    (alarm,) = [vars(record)["fields"] for record in caplog.records if getattr(record, "event", "") == "inputs differ"]
    assert expected in alarm["differences"]
