"""Limits count bytes: what a merge holds, which input brought it, which one is ended above the limit; others go on."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from service_world import MERGE, World, ins, stable

from lmerge.cli import lines
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Element, Stable
from lmerge.core.merge import Merge
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import MalformedLine
from lmerge.service.merge.payload_limit import PayloadLimit
from lmerge.testing.streams.merge_inputs import present, reference

KIB = 1024


def of_live_events(merge: Merge) -> int:
    """Compute ``Merge.live_bytes`` from all live events."""
    batch = merge.live_events()
    return len(b"".join({(vs, payload): payload for _, vs, _, _, payload in batch.rows()}.values()))


@pytest.mark.parametrize("properties", [("insert-only", "strictly-ordered"), ("key",), ()])
def test_a_merge_counts_the_bytes_that_it_holds(properties: tuple[str, ...], engine: str) -> None:
    random = Random(7)
    events = reference(random, 60, strict=True)
    merge = Merge()
    for name in "ab":
        merge.attach(name, properties)
    stream: list[Element] = (
        present(random, events)
        if properties != ("insert-only", "strictly-ordered")
        else [*(ins(e.payload, e.vs, e.ve) for e in events), Stable(INF)]
    )
    seen = set()
    for element in stream:
        merge.apply("a", Batch.of([element]))
        if element != Stable(INF):  # events that never end stay in the index of R3 and R4
            assert merge.live_bytes >= of_live_events(merge)
            seen.add(merge.live_bytes)
    assert max(seen) > 5
    merge.detach("a")


def test_what_waits_for_an_input_to_join_is_counted(engine: str) -> None:
    merge = Merge()
    merge.attach("a", ("insert-only", "strictly-ordered"))
    merge.apply("a", Batch.of([ins("x", 1, 2), stable(3)]))
    merge.attach("b", ("insert-only", "strictly-ordered"), join_at=100)
    before = merge.live_bytes
    merge.apply("b", Batch.of([ins("y" * KIB, 100, 101)]))
    assert merge.live_bytes == before + KIB
    assert restored(snapshot_of(merge)).live_bytes == merge.live_bytes
    merge.apply("a", Batch.of([stable(200)]))
    assert merge.live_bytes == 0


def test_the_input_that_makes_it_grow_is_charged_and_all_shrink_together() -> None:
    weight = PayloadLimit(1000, 1000)
    weight.note(("a", 1), 300)
    weight.note(("b", 1), 400)
    weight.note(("a", 1), 200)
    assert (weight.share(("a", 1)), weight.share(("b", 1))) == (150, 50)


def test_the_heaviest_is_ended_once_and_the_next_only_for_growth_of_its_own() -> None:
    weight = PayloadLimit(1000, 1000)
    weight.note(("good", 1), 200)
    weight.note(("flood", 1), 1001)
    name, error = weight.too_much(0) or ("", None)
    assert name == "flood"
    assert str(error) == (
        "input 'flood' was ended: the merge holds 1001 bytes, above the limit of 1000, and this input has brought "
        "the most of it, 801 bytes"
    )
    weight.gone(("flood", 1), 1001)
    assert weight.too_much(0) is None
    weight.note(("good", 1), 1100)
    assert weight.too_much(0) is None
    weight.note(("good", 1), 1200)
    assert (weight.too_much(0) or ("",))[0] == "good"


def test_one_input_has_a_limit_of_its_own() -> None:
    weight = PayloadLimit(1000, 100)
    weight.note(("a", 1), 100)
    assert weight.too_much(0) is None
    weight.note(("a", 1), 101)
    name, error = weight.too_much(0) or ("", "")
    assert name == "a"
    assert "it has brought 101 live bytes, above the limit of 100 bytes for one input" in str(error)


def test_what_waits_in_the_inbox_counts() -> None:
    weight = PayloadLimit(1000, 1000)
    weight.note(("a", 1), 900)
    assert weight.too_much(100) is None
    assert weight.too_much(101) is not None


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("limit", "message"), [("live_bytes_max", "above the limit of 262144"), ("live_bytes_per_input", "for one input")]
)
async def test_an_input_that_fills_a_merge_with_few_large_events_is_ended_and_the_others_go_on(
    limit: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with World(**{limit: 256 * KIB}) as world:
        good, flood = await world.publisher("good"), await world.publisher("flood")
        reader = await world.subscriber()
        for vs in range(1, 5):
            for publisher in (good, flood):
                await publisher.merged(ins("x", vs, vs + 2), stable(vs))

        async def publish() -> None:
            for at in range(400):
                await flood.send(ins(b"%04d" % at * KIB, 100 + at, 10_000_000))

        publishing = asyncio.create_task(publish())
        ending = await flood.ending()
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        assert message in caplog.text
        if ending.detached is not None:  # gRPC may drop it, and the status, where a write fails at that moment
            assert ending.detached.code == "limit-exceeded"
            assert message in ending.detached.message
        described = await world.describe()
        assert described.live_bytes < 512 * KIB
        await good.merged(ins("x", 50, 52), stable(1_000_000))
        events = await reader.until_stable(1_000_000)
        assert [event.vs for event in events if event.payload == b"x"] == [1, 2, 3, 4, 50]
        assert (await world.describe()).live_bytes == 0


async def test_status_and_the_share_of_each_input() -> None:
    async with World() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x" * 100, 1, 50))
        await b.merged(ins("x" * 100, 1, 50), ins("y" * 300, 2, 50))
        described = await world.describe(MERGE)
        assert described.live_bytes == 400
        assert [i.live_bytes for i in described.inputs] == [100, 300]


def test_a_line_that_is_too_long_is_refused_with_its_number_and_not_read_whole(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 100)
    path = Path(str(tmp_path)) / "stream"
    path.write_bytes(b'{"op":"stable","vc":1}\n' + b"x" * 10_000 + b"\n")
    with path.open("rb") as source:
        found = lines.read_lines(source)
        assert next(found)[0] == 1
        with pytest.raises(MalformedLine, match=r"^line 2: longer than 100 bytes, the limit of a line$"):
            next(found)
        assert source.tell() < 200
