"""Marks: a subscriber that requests them gets the number of inputs that have each event; the others get none."""

from __future__ import annotations

from service_world import MERGE, RawReader, World, ins, stable

from lmerge.wire.generated import lmerge_pb2 as pb


async def test_marks_follow_the_batch_that_they_belong_to_and_only_where_they_were_asked_for() -> None:
    async with World(policy="final-only") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        marked = RawReader(w.stub.Subscribe(pb.SubscribeRequest(merge=MERGE, marks=True)))
        plain = await w.subscriber()
        await marked.read_snapshot()
        await b.merged(ins("A", 1, 5))
        await a.merged(ins("A", 1, 5), stable(10))
        assert [await marked.read(), await marked.read()] == ["batch", "marks"]
        await a.merged(ins("B", 11, 15), stable(20))
        assert [await plain.read(), await plain.read()] == ["batch", "batch"]


async def test_under_quorum_the_marks_count_the_inputs_that_were_waited_for() -> None:
    async with World(policy="quorum:2") as w:
        a, b = await w.publisher("a"), await w.publisher("b")
        marked = RawReader(w.stub.Subscribe(pb.SubscribeRequest(merge=MERGE, marks=True)))
        await marked.read_snapshot()
        await a.merged(ins("A", 1, 5))
        await b.merged(ins("A", 1, 5))
        assert await marked.read() == "batch"
        message = await marked.call.read()
        assert list(message.marks.supporters) == [2]


async def test_a_batch_without_inserts_has_no_marks() -> None:
    async with World() as w:
        a = await w.publisher("a")
        marked = RawReader(w.stub.Subscribe(pb.SubscribeRequest(merge=MERGE, marks=True)))
        await marked.read_snapshot()
        await a.merged(stable(5))
        await a.merged(ins("A", 6, 9))
        assert [await marked.read(), await marked.read(), await marked.read()] == ["batch", "batch", "marks"]
