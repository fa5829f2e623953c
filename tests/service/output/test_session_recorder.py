"""``serve --record``: a recorded session, replayed through the core, gives the output that the subscriber got."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from service_world import MERGE, World, adj, ins, replayed, stable

from lmerge.errors import UsageError
from lmerge.service.output.session_recorder import record_file
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import present, reference

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.parametrize("policy", ["lazy", "eager", "final-only"])
async def test_a_replayed_record_gives_the_output_that_was_sent(tmp_path: Path, policy: str) -> None:
    random = Random(11)
    events = reference(random, 200)
    streams = {name: present(random, events) for name in ("a", "b", "c")}
    record = tmp_path / "session.jsonl"
    async with World(merges=(MERGE,), record_path=str(record), policy=policy) as world:
        reader = await world.subscriber()
        publishers = {name: await world.publisher(name) for name in streams}
        while any(streams.values()):
            name = random.choice([name for name, rest in streams.items() if rest])
            count = random.randint(1, 9)
            await publishers[name].send(*streams[name][:count])
            del streams[name][:count]
        bad = await world.publisher("bad", join_at=0)
        await bad.send(ins("ok", 2**62, 2**62 + 1), ins("wrong", 9, 8), ins("never merged", 2**62, 2**62 + 1))
        assert (await bad.ending()).detached is not None
        for publisher in publishers.values():
            await publisher.leave()
        again = await world.publisher("a", join_at=0)
        await again.leave()
        await world.server.stop(5)
        await reader.ending()
        assert [e for e in reader.tdb.events() if e.payload != b"ok"] == events
        assert replayed(record, policy) == reader.elements
        assert "never merged" not in record.read_text(encoding="utf-8")


async def test_that_the_first_input_is_right_only_from_a_time_on_is_recorded(tmp_path: Path) -> None:
    record = tmp_path / "session.jsonl"
    async with World(record_path=str(record), merges=(MERGE,)) as world:
        late = await world.publisher("late", join_at=39)
        reader = await world.subscriber()
        lags = await world.publisher("lags")
        await lags.merged(ins("A", 26, 55), stable(27))
        await late.merged(stable(58))
        await world.server.stop(5)
        await reader.ending()
    assert reader.elements[-2:] == [adj("A", 26, 55, 27), stable(58)]
    assert replayed(record, "lazy") == reader.elements


async def test_each_merge_is_recorded_to_its_own_file(tmp_path: Path) -> None:
    template = str(tmp_path / "{merge}.jsonl")
    async with World(record_path=template) as world:
        for merge in ("flights", "a/b"):
            await (await world.publisher("a", merge=merge)).merged(stable(1))
        assert record_file(template, "a/b").name == "a%2Fb.jsonl"
        for merge in ("flights", "a/b"):
            assert record_file(template, merge).read_text(encoding="utf-8").count("\n") == 2


async def test_one_record_file_takes_one_merge(tmp_path: Path) -> None:
    async with World(record_path=str(tmp_path / "one.jsonl")) as world:
        await world.publisher("a")
        refused = await world.refused("a", merge="second")
        assert "takes several" in refused.details


async def test_a_record_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot record"):
        await Server(Settings(record_path=str(tmp_path), merges=(MERGE,), http_port=None)).start()


async def test_a_merge_that_begins_anew_behind_a_gap_is_another_session(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    async with World(record_path=str(record), gap_after_s=0.05) as world:
        a = await world.publisher("a")
        await a.merged(ins("half frozen", 1), stable(10))
        b = await world.publisher("b", join_at=50)
        await a.leave()
        await b.ending()
        b = await world.publisher("b", join_at=50, incarnation=2)
        await b.merged(ins("new", 40, 90), stable(60))
    assert replayed(record, "lazy") == [ins("half frozen", 1), stable(10)]
    assert replayed(tmp_path / "record.jsonl.1", "lazy") == [ins("new", 40, 90), stable(60)]
