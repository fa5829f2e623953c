"""Publish: attaching, merging, acks, leaving, fencing; what docs/wire.md promises to each side."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import grpc
import msgpack
import pytest
from service_world import MERGE, World, adj, batch_message, ins, stable

from lmerge.client.connection import streams
from lmerge.core.elements import INF, NEG_INF, Element, Event
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

pytestmark = pytest.mark.usefixtures("engine")


async def test_an_attach_is_accepted_with_algorithm_stable_point_and_limits() -> None:
    async with World(payload_bytes=1_000) as world:
        accepted = (await world.publisher("a", properties=["insert-only", "strictly-ordered"])).accepted
        assert (accepted.algorithm, accepted.incarnation, accepted.joined) == ("r0", 1, True)
        assert accepted.stable_point == NEG_INF
        assert accepted.limits.payload_bytes == 1_000
        assert "strictly-ordered" in accepted.algorithm_reason


async def test_two_publishers_are_merged_into_one_stream() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), ins("y", 2, 9))
        await b.merged(ins("y", 2), ins("x", 1, 5), adj("y", 2, INF, 9), stable(10))
        assert await reader.until_stable(10) == [Event(1, b"x", 5), Event(2, b"y", 9)]


async def test_an_ack_names_the_last_merged_batch_and_the_stable_point() -> None:
    async with World() as world:
        a = await world.publisher("a")
        for at in range(1, 20):
            await a.send(ins("x", at, at + 1), stable(at))
        ack = await a.acked()
        assert (ack.sequence, ack.stable_point, ack.joined) == (19, 19, True)


async def test_a_quiet_input_gets_the_stable_point_that_others_move() -> None:
    async with World() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await b.merged(ins("x", 1, 5), stable(8))
        ack = await a.acked(stable_point=8)
        assert ack.sequence == 0


async def test_leaving_ends_the_stream_after_all_of_it_was_merged() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a = await world.publisher("a")
        for at in range(50):
            await a.send(ins("x", at, at + 1))
        await a.send(stable(60))
        assert (await a.leave()).code is grpc.StatusCode.OK
        assert a.last_ack.sequence == 51
        assert len(await reader.until_stable(60)) == 50
        described = await world.describe()
        assert not described.inputs
        assert described.detached[0].reason == "left"


async def test_half_closing_is_leaving() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.send(ins("x", 1, 2))
        await a.call.done_writing()
        assert (await a.ending()).code is grpc.StatusCode.OK
        assert a.last_ack.sequence == 1


async def test_a_connection_that_dies_detaches_its_input_and_the_rest_goes_on() -> None:
    async with World() as world:
        b = await world.publisher("b")
        channel = world.new_channel()
        a = await world.publisher("a", stub=pb_grpc.LmergeStub(channel))
        await a.merged(ins("x", 1, 5))
        reader = await world.subscriber()
        await channel.close()
        await world.described(lambda merge: [i.replica for i in merge.inputs] == ["b"])
        await b.merged(ins("x", 1, 5), stable(9))
        assert await reader.until_stable(9) == [Event(1, b"x", 5)]


async def test_a_newer_incarnation_fences_the_older() -> None:
    async with World() as world:
        old = await world.publisher("a", incarnation=7)
        await old.merged(ins("x", 1, 5), stable(3))
        new = await world.publisher("a", incarnation=8, join_at=3)
        assert new.accepted.joined
        ending = await old.ending()
        assert ending.code is grpc.StatusCode.ABORTED
        assert "incarnation 7 was replaced by incarnation 8" in ending.details
        await new.merged(ins("x", 1, 5), stable(6))
        assert (await world.describe()).inputs[0].incarnation == 8


async def test_a_second_live_replica_of_a_name_is_refused() -> None:
    async with World() as world:
        a = await world.publisher("a", incarnation=7)
        assert (await world.refused("a")).code is grpc.StatusCode.ALREADY_EXISTS
        assert (await world.refused("a", incarnation=7)).code is grpc.StatusCode.ALREADY_EXISTS
        assert (await world.refused("a", incarnation=6)).code is grpc.StatusCode.ABORTED
        assert (await a.merged(ins("x", 1))).sequence == 1


async def test_a_replica_that_comes_back_with_its_live_events_loses_nothing() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 20), ins("y", 2, 4), stable(5))
        await b.merged(ins("x", 1, 20), ins("y", 2, 4), stable(5))
        await a.leave()
        back = await world.publisher("a", join_at=5)
        assert (back.accepted.incarnation, back.accepted.joined) == (2, True)
        await back.merged(ins("x", 1, 20), stable(5), ins("z", 6, 7))
        await b.leave()
        await back.merged(stable(30))
        assert await reader.until_stable(30) == [Event(1, b"x", 20), Event(2, b"y", 4), Event(6, b"z", 7)]


async def test_an_input_that_joins_later_counts_once_the_output_has_reached_its_start() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(stable(1))
        late = await world.publisher("late", join_at=10)
        assert not late.accepted.joined
        assert not (await late.merged(ins("x", 12))).joined
        await a.merged(stable(10))
        while not late.last_ack.joined:
            await late.acked(stable_point=10)
            late.last_ack = late.last_ack if late.last_ack.joined else (await late.call.read()).ack


async def test_the_first_input_of_a_merge_without_output_starts_it_wherever_it_is() -> None:
    async with World() as world:
        first = await world.publisher("a", join_at=1_000)
        assert first.accepted.joined
        reader = await world.subscriber()
        await first.merged(ins("x", 990, 1_005), stable(1_010))
        assert await reader.until_stable(1_010) == [Event(990, b"x", 1_005)]


async def test_a_joining_input_is_not_stuck_when_the_first_one_goes_before_its_first_stable() -> None:
    """After a restart: no stable was emitted, and no input is left whose stable could let the other one join."""
    async with World() as world:
        first = await world.publisher("a")
        await first.merged(ins("x", 990, 1_005))
        late = await world.publisher("b", join_at=1_000)
        assert not late.accepted.joined
        reader = await world.subscriber()
        await late.merged(ins("x", 990, 1_005))
        await first.leave()
        await world.described(lambda merge: [i.state for i in merge.inputs] == ["joined"])
        ending = await reader.ending()
        assert (ending.code, "ended before 1000" in ending.details) == (grpc.StatusCode.UNAVAILABLE, True)
        reader = await world.subscriber()
        assert reader.begin.complete_from == 1_000
        await late.merged(stable(1_010))
        assert await reader.until_stable(1_010) == [Event(990, b"x", 1_005)]


async def test_an_observer_is_checked_and_never_shown() -> None:
    async with World() as world:
        observer = await world.publisher("new-plan", role=pb.ROLE_OBSERVE)
        await observer.merged(ins("wrong", 1, 2))
        a = await world.publisher("a")
        reader = await world.subscriber()
        await a.merged(ins("x", 1, 2), stable(5))
        assert await reader.until_stable(5) == [Event(1, b"x", 2)]
        await observer.send(stable(9), stable(3))
        assert (await observer.ending()).detached.code == "stable-backwards"


async def test_a_batch_larger_than_a_turn_is_merged_whole_and_acked_once() -> None:
    async with World(turn_elements=10) as world:
        a = await world.publisher("a")
        reader = await world.subscriber()
        assert (await a.merged(*(ins("x", at, at + 1) for at in range(105)), stable(200))).sequence == 1
        assert len(await reader.until_stable(200)) == 105


async def test_the_index_of_a_broken_promise_counts_from_the_start_of_its_batch() -> None:
    async with World(turn_elements=10) as world:
        a = await world.publisher("a")
        await a.merged(ins("w", 0, 1))
        await a.send(*(ins("x", at, at + 1) for at in range(25)), ins("x", 3, 9), ins("x", 99, 100))
        detached = (await a.ending()).detached
        assert (detached.code, detached.sequence, detached.index) == ("duplicate-key", 2, 25)
        assert (await world.describe()).emitted.inserts == 26


async def test_publishers_wait_while_the_queue_is_full_and_nothing_is_lost() -> None:
    limits = {"message_bytes": 4_096, "payload_bytes": 1_024, "merge_queue_bytes": 4_096}
    async with World(**limits, merge_queue_elements=8, turn_elements=4) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        reader = await world.subscriber()
        for at in range(300):
            await a.send(ins("x" * 900, at, at + 1), ins("y", at, at + 1))
            await b.send(ins("x" * 900, at, at + 1), ins("y", at, at + 1))
        await a.send(stable(500))
        await a.acked()
        await b.acked()
        assert len(await reader.until_stable(500)) == 600


async def test_a_message_with_fields_of_a_later_version_is_merged_like_any_other() -> None:
    """Unknown fields are skipped: the number 99, three bytes long."""
    async with World() as world:
        call = streams.publish(world.channel)
        attach = pb.Attach(merge=MERGE, replica="later", properties=["key"])
        await call.write(pb.PublishRequest(attach=attach).SerializeToString() + b"\x9a\x06\x03new")
        assert (await call.read()).WhichOneof("message") == "accepted"
        parts: list[list[Element]] = [[ins("x", 1, 5)], [ins("y", 2, 5), stable(3)]]
        for sequence, elements in enumerate(parts, 1):
            batch = pb.PublishRequest.SequencedBatch(sequence=sequence, batch=batch_message(elements))
            await call.write(pb.PublishRequest(batch=batch).SerializeToString() + b"\x9a\x06\x03new")
            ack = pb.PublishResponse.Ack()
            while ack.sequence < sequence:
                ack = (await call.read()).ack
        assert ack.stable_point == 3
        reader = await world.subscriber()
        assert reader.tdb.events() == [Event(1, b"x", 5), Event(2, b"y", 5)]


async def test_the_schema_of_the_first_publisher_holds_for_all() -> None:
    schema = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
    other = pb.Schema(columns=[pb.Schema.Column(name="id", type="string")])
    async with World() as world:
        await world.publisher("a", schema=schema)
        assert (await world.publisher("b", schema=schema)).accepted.joined
        assert (await world.publisher("c")).accepted.joined
        refused = await world.refused("d", schema=other)
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "declares columns id: string, but the merge has id: int" in refused.details
        optional = pb.Schema(columns=[pb.Schema.Column(name="id", type="int", nullable=True)])
        assert "declares columns id: int?, but" in (await world.refused("e", schema=optional)).details
        senseless = pb.Schema(columns=[pb.Schema.Column(name="id", type="word")])
        refused = await world.refused("f", schema=senseless)
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "the schema that it declares is invalid: column 'id': unknown type 'word'" in refused.details
        assert (await world.subscriber()).begin.schema == schema


async def test_an_observer_declares_no_schema_for_others() -> None:
    mine, theirs = [pb.Schema(columns=[pb.Schema.Column(name="id", type=kind)]) for kind in ("int", "string")]
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(stable(2))
        o = await world.publisher("o", role=pb.ROLE_OBSERVE, schema=theirs)
        await o.merged(ins("x", 3, 5), stable(4))
        assert not (await world.subscriber()).begin.HasField("schema")
        await world.publisher("b", schema=mine)
        assert (await world.subscriber()).begin.schema == mine
        assert "declares columns id: string" in (await world.refused("p", role=pb.ROLE_OBSERVE, schema=theirs)).details


SCHEMAS = [None, *(pb.Schema(columns=[pb.Schema.Column(name="id", type=kind)]) for kind in ("int", "string"))]


# A payload by the type of its column. The empty type: bytes that are no row at all.
PAYLOADS = {"int": msgpack.packb([7]), "string": msgpack.packb(["x"]), "": b"oops"}


class Declared(NamedTuple):
    """What is promised to the merge's readers, by the rules of docs/limits-and-names.md."""

    schema: pb.Schema | None = None
    has_events: bool = False

    def takes(self, kind: str) -> bool:
        """Whether an active input may deliver a payload of this kind."""
        return self.schema is None or self.schema.columns[0].type == kind

    def admits(self, schema: pb.Schema | None) -> bool:
        return schema in (None, self.schema) or (self.schema is None and not self.has_events)

    async def step(self, world: World, random: Random, merge: str, number: int) -> Declared:
        """Attach an input, which is refused or delivers one element; return what is promised then."""
        schema, role = random.choice(SCHEMAS), random.choice([pb.ROLE_ACTIVE, pb.ROLE_OBSERVE])
        name = f"i{number}"
        asked: dict[str, Any] = {"merge": merge, "role": role, "schema": schema}
        if not self.admits(schema):
            refused = await world.refused(name, **asked)
            assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
            has = "events without columns" if self.schema is None else "id: "
            assert f"but the merge has {has}" in refused.details
            return self
        publisher = await world.publisher(name, **asked)
        promised = self if role == pb.ROLE_OBSERVE else self._replace(schema=self.schema or schema)
        is_event, kind = random.random() < 0.6, random.choice(list(PAYLOADS))
        if is_event and role == pb.ROLE_ACTIVE and not promised.takes(kind):
            await publisher.send(stable(0), ins(PAYLOADS[kind], 1 + number))
            ended = await publisher.ending()
            assert ended.code is grpc.StatusCode.INVALID_ARGUMENT
            assert f"input '{name}' of merge '{merge}': batch 1, element 1 (Vs {1 + number}, Ve inf)" in ended.details
            return promised
        await publisher.merged(ins(PAYLOADS[kind], 1 + number) if is_event else stable(0))
        if role == pb.ROLE_OBSERVE:
            return self
        return promised._replace(has_events=self.has_events or is_event)


@pytest.mark.parametrize("seed", range(4))
async def test_what_subscribers_get_fits_the_columns_that_were_declared_first(seed: int, tmp_path: Path) -> None:
    """Inputs of both roles, with and without columns, attach and deliver rows, others' rows or no rows in any order;
    the server is started again. No input declares columns for events that others delivered without.
    """
    random = Random(seed)
    merges = {f"m{number}": Declared() for number in range(8)}
    decoded = 0
    for life in range(2):
        async with World(store=str(tmp_path), store_sync="normal") as world:
            for merge in merges:
                for number in range(5 * life, 5 * life + random.randint(1, 5)):
                    expected = merges[merge] = await merges[merge].step(world, random, merge, number)
                    reader = await world.subscriber(merge, wait=True)
                    begin = reader.begin
                    assert (begin.schema if begin.HasField("schema") else None) == expected.schema
                    if expected.schema is not None:
                        codec = RowCodec(Schema.from_message(expected.schema))
                        decoded += len([codec.decode(event.payload) for event in reader.tdb.events()])
    assert decoded


INT = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
ADVICE = {
    None: "declare the merge's and deliver rows of it, or begin the merge anew with lmerge reset",
    "id": "encode the rows by the schema that it declares, or begin the merge anew with lmerge reset",
}


@pytest.mark.parametrize("declared", [None, INT])
async def test_bytes_that_are_no_row_end_their_input_alone_and_none_of_that_batch_is_merged(
    declared: pb.Schema | None,
) -> None:
    """``a`` has delivered nothing yet. The rows of another input are merged, also in the same turn."""
    row = PAYLOADS["int"]
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a = await world.publisher("a", schema=INT)
        b = await world.publisher("b", schema=declared)
        await b.merged(ins(row, 1, 5))
        await b.send(ins(row, 2, 5), ins("oops", 3, 7))
        ended = await b.ending()
        assert ended.code is grpc.StatusCode.INVALID_ARGUMENT
        assert ended.details.startswith(
            "input 'b' of merge 'flights': batch 2, element 1 (Vs 3, Ve 7) is no row of the merge's columns (id: int): "
            "row 1: the payload is not MessagePack"
        )
        assert ended.details.endswith(ADVICE["id" if declared else None])
        await a.merged(ins(row, 1, 5), stable(9))
        assert await reader.until_stable(9) == [Event(1, row, 5)]
        described = await world.describe()
        assert described.detached[0].reason.startswith("invalid-row ")


@pytest.mark.parametrize("declared", [None, INT])
async def test_an_adjust_carries_a_payload_that_is_checked_like_that_of_an_insert(declared: pb.Schema | None) -> None:
    async with World() as world:
        await world.publisher("a", schema=INT)
        b = await world.publisher("b", schema=declared)
        await b.send(ins(PAYLOADS["int"], 1, 5), adj("oops", 1, 5, 6))
        ended = await b.ending()
        assert ended.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "element 1 (Vs 1, Ve 6) is no row" in ended.details


async def test_after_a_reset_columns_can_be_declared_again() -> None:
    schema = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5))
        refused = await world.refused("b", schema=schema)
        assert "it declares columns id: int, but the merge has events without columns" in refused.details
        await world.stub.ResetMerge(pb.ResetMergeRequest(merge=MERGE))
        await world.publisher("b", schema=schema)
        assert (await world.subscriber()).begin.schema == schema


@pytest.mark.parametrize("closing", ["all", "any"])
async def test_closing_requires_the_agreement_that_was_set(closing: str) -> None:
    async with World(closing=closing) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 2), stable(INF))
        ack = await b.merged(ins("x", 1, 2))
        assert (ack.stable_point == INF) == (closing == "any")
