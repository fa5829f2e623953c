"""Bad input gets a clear error on its own stream: another publisher goes on, and the subscriber loses nothing."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from service_world import MERGE, Ending, RawPublisher, World, adj, batch_message, ins, stable

from lmerge.core.elements import Event
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("engine")

Fault = Callable[[RawPublisher], Awaitable[None]]


def elements(*sent_elements: Any) -> Fault:
    async def send(publisher: RawPublisher) -> None:
        await publisher.send(*sent_elements)

    return send


def raw(**columns: Any) -> Fault:
    async def send(publisher: RawPublisher) -> None:
        message = batch_message([ins("p", 6, 7), ins("q", 7, 8)])
        for name, value in columns.items():
            setattr(message, name, value)
        await publisher.send_message(message)

    return send


def sequence(number: int) -> Fault:
    async def send(publisher: RawPublisher) -> None:
        await publisher.send_message(batch_message([ins("p", 6, 7)]), sequence=number)

    return send


async def attach_again(publisher: RawPublisher) -> None:
    await publisher.attach("bad", MERGE)


BROKEN_PROMISES = {
    "end-before-start": elements(ins("p", 9, 8)),
    "insert-below-stable": elements(ins("p", 1, 9)),
    "adjust-below-stable": elements(adj("x", 1, 20, 2)),
    "unknown-event": elements(adj("nobody", 6, 8, 9)),
    "duplicate-key": elements(ins("p", 6, 7), ins("p", 6, 8)),
    "stable-backwards": elements(stable(2)),
}

MALFORMED: dict[str, tuple[Fault, grpc.StatusCode, str]] = {
    "sequence gap": (sequence(5), grpc.StatusCode.INVALID_ARGUMENT, "batch 5 came where batch 2 was due"),
    "sequence again": (sequence(1), grpc.StatusCode.INVALID_ARGUMENT, "batch 1 came where batch 2 was due"),
    "short column": (raw(vs=b"12345678"), grpc.StatusCode.INVALID_ARGUMENT, "column vs has 8 bytes"),
    "unknown kind": (raw(kinds=b"\x00\x07"), grpc.StatusCode.INVALID_ARGUMENT, "element 1: unknown kind 7"),
    "payload ends": (
        raw(payload_ends=array("I", [2, 1]).tobytes()),
        grpc.StatusCode.INVALID_ARGUMENT,
        "column payload_ends, element 1",
    ),
    "payload too large": (
        elements(ins("p", 6, 7), ins(b"p" * 2_000, 6, 7)),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "element 1: 2000 bytes are above the limit of 1000",
    ),
    "too many elements": (
        elements(*(ins("p", 6 + at, 99) for at in range(51))),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "51 elements is above the limit of 50",
    ),
    "message too large": (
        elements(*(ins(b"p" * 999, 6 + at, 99) for at in range(11))),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "bytes is above the limit of 10000",
    ),
    "attach again": (attach_again, grpc.StatusCode.INVALID_ARGUMENT, "second attach"),
}

LIMITS = {"message_bytes": 10_000, "payload_bytes": 1_000, "batch_elements": 50}


async def fault_beside_a_good_publisher(fault: Fault) -> Ending:
    """Let ``bad`` commit ``fault`` while ``good`` publishes and a subscriber reads; return how ``bad`` ended."""
    async with World(**LIMITS, merges=(MERGE,)) as world:
        reader = await world.subscriber()
        good, bad = await world.publisher("good"), await world.publisher("bad")
        await bad.merged(ins("x", 1, 20), stable(5))
        await good.merged(ins("x", 1, 20))
        await fault(bad)
        ending = await bad.ending()
        assert bad.last_ack.sequence == 1
        await good.merged(ins("y", 8, 9), stable(30))
        events = await reader.until_stable(30)
        assert [e for e in events if e.payload in b"xy"] == [Event(1, b"x", 20), Event(8, b"y", 9)]
        described = await world.describe()
        assert [i.replica for i in described.inputs] == ["good"]
        assert described.detached[0].replica == "bad"
        return ending


@pytest.mark.parametrize("code", BROKEN_PROMISES)
async def test_a_broken_promise_ends_that_input_alone(code: str) -> None:
    ending = await fault_beside_a_good_publisher(BROKEN_PROMISES[code])
    assert ending.code is grpc.StatusCode.FAILED_PRECONDITION
    assert ending.detached is not None
    assert (ending.detached.code, ending.detached.sequence) == (code, 2)
    assert ending.detached.message == ending.details
    assert "'bad'" in ending.details


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_batch_ends_that_stream_alone(name: str) -> None:
    fault, code, message = MALFORMED[name]
    ending = await fault_beside_a_good_publisher(fault)
    assert (ending.code, ending.detached) == (code, None)
    assert message in ending.details
    assert "input 'bad' of merge 'flights'" in ending.details


async def test_a_message_far_above_the_limit_ends_that_stream_alone() -> None:
    ending = await fault_beside_a_good_publisher(elements(*(ins(b"p" * 5_000, 6 + at, 99) for at in range(11))))
    assert ending.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_broken_order_promise_ends_that_input_alone() -> None:
    async with World() as world:
        attach: dict[str, Any] = {"properties": ["insert-only", "ordered", "key"]}
        good, bad = await world.publisher("good", **attach), await world.publisher("bad", **attach)
        await bad.merged(ins("x", 5, 6))
        await bad.send(ins("y", 4, 6))
        ending = await bad.ending()
        assert ending.code is grpc.StatusCode.FAILED_PRECONDITION
        assert "ordered" in ending.details or "Vs" in ending.details
        assert (await good.merged(ins("x", 5, 6))).sequence == 1


async def test_bytes_that_are_no_message_are_refused() -> None:
    async with World() as world:
        call: Any = world.channel.stream_stream("/lmerge.v1.Lmerge/Publish")()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.RpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a PublishRequest" in caught.value.details()


REFUSED_ATTACHES: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "unknown property": ({"properties": ["sorted"]}, grpc.StatusCode.INVALID_ARGUMENT, "unknown property 'sorted'"),
    "unknown role": ({"role": 9}, grpc.StatusCode.INVALID_ARGUMENT, "unknown role 9"),
    "no name": ({"replica": ""}, grpc.StatusCode.INVALID_ARGUMENT, "name of a replica must not be empty"),
    "no merge": ({"merge": ""}, grpc.StatusCode.INVALID_ARGUMENT, "name of a merge must not be empty"),
    "long name": ({"replica": "é" * 101}, grpc.StatusCode.INVALID_ARGUMENT, "202 bytes"),
    "odd name": ({"replica": "a\nb"}, grpc.StatusCode.INVALID_ARGUMENT, "printable"),
    "undeclared merge": ({"merge": "other"}, grpc.StatusCode.NOT_FOUND, "no merge 'other'"),
    "weak promise": ({"properties": ["key"]}, grpc.StatusCode.FAILED_PRECONDITION, "fixed to r2"),
}


@pytest.mark.parametrize("name", REFUSED_ATTACHES)
async def test_an_attach_that_cannot_be_is_refused_and_changes_nothing(name: str) -> None:
    attach, code, message = REFUSED_ATTACHES[name]
    async with World(merges=(MERGE,), allow_create=False, algorithm="r2") as world:
        ending = await world.refused(**{"replica": "a", **attach})
        assert ending.code is code
        assert message in ending.details
        assert not (await world.describe()).inputs


async def test_a_stream_that_does_not_begin_with_an_attach_is_refused() -> None:
    async with World() as world:
        publisher = RawPublisher(world.stub.Publish())
        await publisher.send(ins("x", 1, 2))
        assert (await publisher.ending()).code is grpc.StatusCode.INVALID_ARGUMENT
        silent = RawPublisher(world.stub.Publish())
        await silent.call.done_writing()
        assert "before an attach came" in (await silent.ending()).details


async def test_a_stream_without_an_attach_is_not_held_for_ever() -> None:
    async with World(attach_timeout_s=0.05) as world:
        ending = await RawPublisher(world.stub.Publish()).ending()
        assert ending.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "no attach came within" in ending.details


async def test_inputs_and_merges_above_their_limits_are_refused() -> None:
    async with World(inputs_per_merge=2, merges_max=1) as world:
        first, _ = await world.publisher("a"), await world.publisher("b")
        third = await world.refused("c")
        other = await world.refused("a", merge="other")
        assert third.code is other.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "it has 2 inputs, the limit" in third.details
        await first.leave()
        assert (await world.publisher("c")).accepted.joined


async def test_a_refused_first_attach_makes_no_merge() -> None:
    async with World(algorithm="r2") as world:
        assert (await world.refused("a", properties=["key"])).code is grpc.StatusCode.FAILED_PRECONDITION
        assert not (await world.stub.ListMerges(pb.ListMergesRequest())).merges
