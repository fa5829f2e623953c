"""What happens to a merge is noted in order, in words for people, and the list is bounded."""

from __future__ import annotations

from service_world import MERGE, World, ins, stable

from lmerge.service.merge.occurrences import Occurrences
from lmerge.service.output.output_pauses import OutputPauses
from lmerge.wire.generated import lmerge_pb2 as pb


def occurrences_of(world: World) -> Occurrences:
    return world.server._registry.hubs[MERGE].state.occurrences


def kinds(world: World) -> list[tuple[str, str]]:
    return [(str(one.kind), one.input) for one in occurrences_of(world).recent]


async def test_a_leave_a_death_and_a_broken_promise_are_distinct() -> None:
    async with World() as world:
        leaves, dies, breaks = [await world.publisher(name) for name in ("leaves", "dies", "breaks")]
        await leaves.merged(ins("x", 1, 5), stable(4))
        await leaves.leave()
        dies.call.cancel()
        await world.described(lambda d: len(d.inputs) == 1)
        await breaks.merged(stable(4))
        await breaks.send(stable(1))
        await breaks.ending()
        assert sorted(kinds(world)[:3]) == [("attached", "breaks"), ("attached", "dies"), ("attached", "leaves")]
        assert kinds(world)[3:] == [("left", "leaves"), ("died", "dies"), ("ended", "breaks")]
        assert "promised" in occurrences_of(world).recent[-1].text or "stable" in occurrences_of(world).recent[-1].text


async def test_an_input_that_joins_is_noted_when_it_attaches_and_when_it_counts() -> None:
    async with World() as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 50), stable(4))
        await world.publisher("b", join_at=10)
        await a.merged(stable(12))
        assert kinds(world) == [("attached", "a"), ("attached", "b"), ("joined", "b")]
        assert [one.text for one in occurrences_of(world).recent] == [
            "incarnation 1 counts at once",
            "incarnation 1 joins at 10",
            "counts from now on",
        ]


async def test_a_new_incarnation_ends_the_one_before() -> None:
    async with World() as world:
        await world.publisher("a")
        await world.publisher("a", incarnation=2)
        assert kinds(world) == [("attached", "a"), ("left", "a"), ("attached", "a")]


async def test_inputs_that_differ_are_noted_by_name_and_interval() -> None:
    async with World(certify_interval=10) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(20))
        await b.merged(ins("y", 1, 5), stable(20))
        assert ("differed", "") in kinds(world)
        texts = [one.text for one in occurrences_of(world).recent if one.kind == "differed"]
        assert texts == ["a, b differ in [0, 10)"]


async def test_a_reset_is_noted_for_the_merge() -> None:
    async with World() as world:
        await world.publisher("a")
        await world.stub.ResetMerge(pb.ResetMergeRequest(merge=MERGE, reason="spoiled"))
        last = occurrences_of(world).recent[-1]
        assert (last.kind, last.input) == ("reset", "")
        assert "spoiled" in last.text


async def test_the_stages_of_a_cutover_are_noted_for_the_input_that_comes() -> None:
    async with World(certify_interval=10) as world:
        await world.publisher("a")
        request = pb.CutoverRequest(merge=MERGE, to="b", timeout_seconds=0.05)
        setattr(request, "from", "a")
        stages = [str(step.stage) async for step in world.stub.Cutover(request)]
        noted = [one for one in occurrences_of(world).recent if one.kind == "cutover"]
        assert [one.text.partition(":")[0] for one in noted] == stages == ["waiting", "rolled-back"]
        assert {one.input for one in noted} == {"b"}


async def test_the_list_of_occurrences_is_bounded() -> None:
    async with World(occurrences_remembered=3) as world:
        for incarnation in range(1, 5):
            await world.publisher("a", incarnation=incarnation)
        noted = occurrences_of(world)
        assert noted.count == 7
        assert [one.number for one in noted.recent] == [5, 6, 7]


def test_a_pause_is_the_longest_since_it_was_taken_and_one_that_goes_on_counts() -> None:
    pauses = OutputPauses()
    assert pauses.take(1.0) is None
    for now_s in (2.0, 2.5, 4.0, 4.25):
        pauses.note(now_s)
    assert pauses.take(4.5) == 1.5
    assert pauses.take(5.0) == 0.75
    assert pauses.take(7.25) == 3.0
    pauses.note(7.5)
    assert pauses.take(7.5) == 3.25
    assert pauses.take(7.75) == 0.25
