"""The ladder R0 -> R1 -> R2 -> R3 -> R4 on a running server: no loss on any rung, and the status has every reason."""

from __future__ import annotations

from service_world import RawReader, World, adj, ins, stable

from lmerge.core.elements import INF, Event

EVERYTHING = ["insert-only", "strictly-ordered", "ordered", "deterministic-ties", "key"]
RUNGS = {
    "a": EVERYTHING,
    "b": ["insert-only", "ordered", "deterministic-ties", "key"],
    "c": ["insert-only", "ordered", "key"],
    "d": ["key"],
    "e": [],
}


async def rungs(w: World) -> list[str]:
    """Return the changes so far, as ``r0 -> r1``."""
    return [text.split(":")[0] for text in (await w.describe()).switches]


async def test_each_weaker_newcomer_takes_the_merge_one_rung_down_and_nothing_is_lost() -> None:
    async with World() as w:
        reader: RawReader | None = None
        publishers, events = {}, []
        for at, (name, promises) in enumerate(RUNGS.items()):
            publishers[name] = await w.publisher(name, properties=promises, join_at=10 * at if at else None)
            reader = reader or await w.subscriber()
            event = Event(10 * at + 1, b"A", 10 * at + 15)  # it is live when the next one comes
            events.append(event)
            for here in publishers.values():
                await here.merged(ins("A", event.vs, event.ve), stable(10 * at + 10))
            assert publishers[name].accepted.algorithm == f"r{at}"
        assert reader is not None
        for here in publishers.values():
            await here.merged(stable(INF))
        assert await reader.until_stable(INF) == events
        described = await w.describe()
        assert [text.split(":")[0] for text in described.switches] == ["r0 -> r1", "r1 -> r2", "r2 -> r3", "r3 -> r4"]
        for newcomer, text in zip("bcde", described.switches):
            assert f"not promised by '{newcomer}'" in text


async def test_each_broken_promise_takes_the_merge_one_rung_down_and_nothing_is_lost() -> None:
    async with World(allow_downgrade=True) as w:
        a, b = [await w.publisher(name, properties=EVERYTHING) for name in "ab"]
        reader = await w.subscriber()
        await a.merged(ins("A", 1, 9))
        await b.merged(ins("A", 1, 9))
        assert a.accepted.algorithm == "r0"
        await a.merged(ins("B", 2, 9), ins("C", 2, 9))  # two with one Vs
        assert await rungs(w) == ["r0 -> r1"]
        await b.merged(ins("C", 2, 9), ins("B", 2, 9))  # in another order than a
        assert await rungs(w) == ["r0 -> r1", "r1 -> r2"]
        await a.merged(ins("D", 3, 9), adj("D", 3, 9, 8))  # more than inserts
        assert await rungs(w) == ["r0 -> r1", "r1 -> r2", "r2 -> r3"]
        await b.merged(ins("D", 3, 8), ins("E", 4, 9), ins("E", 4, 9))  # no key
        assert await rungs(w) == ["r0 -> r1", "r1 -> r2", "r2 -> r3", "r3 -> r4"]
        await a.merged(ins("E", 4, 9), ins("E", 4, 9))
        for here in (a, b):
            await here.merged(stable(INF))
        assert await reader.until_stable(INF) == [
            Event(1, b"A", 9),
            Event(2, b"B", 9),
            Event(2, b"C", 9),
            Event(3, b"D", 8),
            Event(4, b"E", 9),
            Event(4, b"E", 9),
        ]
        described = await w.describe()
        assert not described.detached
        for broken, text in zip(("strictly-ordered", "deterministic-ties", "insert-only", "key"), described.switches):
            assert broken in text


async def test_without_leave_to_downgrade_the_input_ends_and_the_merge_stays_on_its_rung() -> None:
    async with World() as w:
        a, b = [await w.publisher(name, properties=EVERYTHING) for name in "ab"]
        await a.send(ins("B", 2, 9), ins("C", 2, 9))
        assert (await a.ending()).detached is not None
        described = await w.describe()
        assert (described.summary.algorithm, list(described.switches)) == ("r0", [])
        await b.merged(ins("B", 2, 9), stable(INF))
