"""Every end of an input is logged once and counted once, under the label of its cause, whatever ended it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from service_world import MERGE, RawPublisher, World, ins, stable

from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("engine")

ROWS = pb.Schema(columns=[pb.Schema.Column(name="id", type="int")])
Ends = Callable[[World, RawPublisher], Awaitable[object]]


async def leaves(_world: World, a: RawPublisher) -> None:
    await a.leave()


async def loses_its_connection(world: World, a: RawPublisher) -> None:
    a.call.cancel()
    await world.described(lambda merge: len(merge.inputs) == 1)


async def is_replaced(world: World, a: RawPublisher) -> None:
    newer = await world.publisher("a", incarnation=7)
    await a.ending()
    await newer.merged(ins("y", 5, 9))


async def breaks_a_promise(_world: World, a: RawPublisher) -> None:
    await a.send(ins("bad", 9, 8))
    await a.ending()


async def breaks_its_stable(_world: World, a: RawPublisher) -> None:
    await a.send(stable(10), ins("late", 1, 2))
    await a.ending()


async def breaks_the_protocol(_world: World, a: RawPublisher) -> None:
    await a.write(attach=pb.Attach(merge=MERGE, replica="a"))
    await a.ending()


async def delivers_no_rows(_world: World, a: RawPublisher) -> None:
    await a.send(ins("no row", 1, 2))
    await a.ending()


async def is_detached(world: World, a: RawPublisher) -> None:
    await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", reason="maintenance"))
    await a.ending()


async def is_quarantined(world: World, a: RawPublisher) -> None:
    await world.stub.DetachInput(pb.DetachInputRequest(merge=MERGE, replica="a", quarantine=True))
    await a.ending()


@pytest.mark.parametrize("divergence", ["none", "majority"])
@pytest.mark.parametrize(
    ("end", "label"),
    [
        (leaves, "left"),
        (loses_its_connection, "connection-ended"),
        (is_replaced, "replaced"),
        (breaks_a_promise, "end-before-start"),
        (breaks_its_stable, "insert-below-stable"),
        (breaks_the_protocol, "refused"),
        (delivers_no_rows, "invalid-row"),
        (is_detached, "detached"),
        (is_quarantined, "quarantined"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_an_end_is_logged_once_and_counted_once_by_its_cause(
    end: Ends, label: str, divergence: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lmerge.service")
    schema = ROWS if end is delivers_no_rows else None
    async with World(divergence=divergence) as world:
        a, _ = await world.publisher("a", schema=schema), await world.publisher("b")
        await end(world, a)
        described = await world.describe()
        ends: list[dict[str, Any]] = [
            vars(record)["fields"] for record in caplog.records if getattr(record, "event", "") == "input detached"
        ]
        assert [fields["input"] for fields in ends] == ["a"]
        assert world.server._registry.get(MERGE).state.detached_counts == {label: 1}
        (gone,) = described.detached
        assert (gone.replica, gone.reason) == ("a", ends[0]["reason"])
