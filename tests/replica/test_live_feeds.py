"""A thread that reads a live source: what waits is taken at once, positions stay right, and memory is bounded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from lmerge.core.elements import INF
from lmerge.errors import InvalidRow
from lmerge.replica import MergeStream, PythonItems
from lmerge.replica.feeds import READ_AHEAD_ITEMS, SourceFeed, ThreadedFeed, feed_of, opened_at
from lmerge.replica.sources.declared import Chunk, PhysicalSource, Position, SourceContext, SourceReader
from lmerge.replica.sources.iterables import ITEMS_PER_CHUNK
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"x": "int"})


def insert(at: int) -> Change:
    return Change((at,), at, at, at + 1)


def read_ahead(source: PhysicalSource, position: Any = None, reader: SourceReader | None = None) -> SourceFeed:
    """Return a feed whose thread has read all of its source."""
    made = reader or source.open(SourceContext("numbers", SCHEMA), opened_at(source, position)[0])
    feed = feed_of("numbers", source, made, position, threading.Event())
    assert isinstance(feed, ThreadedFeed)
    feed.thread.join(60)
    return feed


def taken_at_once(feed: SourceFeed, limit: int = 10_000) -> list[Item]:
    assert feed.next_release() is not None
    found = feed.take(limit, None)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("releases", [None, lambda item: int(item.vs)])
def test_items_that_wait_are_taken_at_once(releases: Any) -> None:
    items = [insert(at) for at in range(300)]
    source = PythonItems(items=items, is_waiting=True, releases=releases)
    with closing(read_ahead(source)) as feed:
        assert taken_at_once(feed)[:300] == items


@pytest.mark.parametrize("taken", [0, 1, 150, 300])
def test_a_restart_goes_on_in_the_middle_of_what_was_taken_at_once(taken: int) -> None:
    items = [insert(at) for at in range(300)]
    source = PythonItems(items=items, is_waiting=True)
    with closing(read_ahead(source)) as feed:
        before = taken_at_once(feed, taken) if taken else []
        position = json.loads(json.dumps(feed.position))
    with closing(read_ahead(source, position)) as feed:
        assert before + taken_at_once(feed) == [*items, INF]


class ChunkReader(SourceReader):
    """Reads chunks that a test has made."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def chunks(self) -> Iterator[Chunk]:
        return iter(self._chunks)


def chunk(at: int, begin: Position, end: Position, **more: Any) -> Chunk:
    return Chunk([insert(at)], begin, end, **more)


@pytest.mark.parametrize(
    ("chunks", "first"),
    [
        ([chunk(1, None, None), chunk(2, None, None)], 2),
        ([chunk(1, [5, 0], [5, 0]), chunk(2, [5, 0], [5, 0])], 2),
        ([chunk(1, [5, 0], [5, 0]), chunk(2, [9, 0], [9, 0])], 1),
        ([chunk(1, None, None), chunk(2, None, None, latest=7)], 1),
        ([chunk(1, None, None), chunk(2, None, None, releases=[4])], 1),
    ],
    ids=["no place", "one place", "a seek", "left out", "released otherwise"],
)
def test_what_a_restart_would_confuse_is_taken_one_by_one(chunks: list[Chunk], first: int) -> None:
    source = MergeStream(servers="nowhere:7171", merge="m")
    with closing(read_ahead(source, reader=ChunkReader(chunks))) as feed:
        assert len(taken_at_once(feed)) == first


def test_a_thread_reads_no_more_ahead_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits with one item in its hand, or else asks for the next one."""
    read, waits = 0, threading.Event()
    has_room = ThreadedFeed._has_room

    def noted(feed: ThreadedFeed) -> bool:
        found = has_room(feed)
        if not found:
            waits.set()
        return found

    def items() -> Iterator[Change]:
        nonlocal read
        for read in count():
            if read > READ_AHEAD_ITEMS:
                waits.set()
            yield insert(read)

    monkeypatch.setattr(ThreadedFeed, "_has_room", noted)
    source = PythonItems(items=items, is_waiting=True)
    feed = feed_of("numbers", source, source.open(SourceContext("numbers", SCHEMA), None), None, threading.Event())
    with closing(feed):
        assert waits.wait(60)
        assert read == READ_AHEAD_ITEMS
        assert len(taken_at_once(feed)) == READ_AHEAD_ITEMS


def test_what_ends_a_reader_comes_behind_what_it_has_read() -> None:
    def items() -> Iterator[Change]:
        yield insert(1)
        raise ValueError("broken")

    with closing(read_ahead(PythonItems(items=items, is_waiting=True))) as feed:
        assert taken_at_once(feed) == [insert(1)]
        with pytest.raises(InvalidRow, match="item 1: it raised ValueError: broken"):
            feed.next_release()


class Connection:
    """An asynchronous stream of a user, and the thread in which it has cleaned up."""

    def __init__(self, *items: Any) -> None:
        self._items = items
        self.waits = threading.Event()
        self.closed_by: threading.Thread | None = None

    async def stream(self) -> AsyncIterator[Any]:
        """Yield the items, and wait for what never comes."""
        try:
            for item in self._items:
                yield item
            self.waits.set()
            await asyncio.Event().wait()
        finally:
            self.closed_by = threading.current_thread()


def test_an_asynchronous_stream_with_a_bad_item_is_closed_by_the_thread_that_reads() -> None:
    connection = Connection(insert(1), "no item")
    with closing(read_ahead(PythonItems(items=connection.stream, is_waiting=True))) as feed:
        assert taken_at_once(feed) == [insert(1)]
        with pytest.raises(InvalidRow, match="item 1: 'no item' is no row"):
            feed.next_release()
        assert isinstance(feed, ThreadedFeed)
        assert connection.closed_by is feed.thread  # the error holds all frames, so the garbage collector cannot


def test_an_asynchronous_stream_that_waits_is_ended_when_its_source_is_closed() -> None:
    connection = Connection(insert(1))
    source = PythonItems(items=connection.stream, is_waiting=True)
    reader = source.open(SourceContext("numbers", SCHEMA), None)
    read: list[Chunk] = []
    thread = threading.Thread(target=lambda: read.extend(reader.chunks()), daemon=True)
    thread.start()
    assert connection.waits.wait(60)
    reader.close()
    thread.join(60)
    assert connection.closed_by is thread
    assert [chunk.items for chunk in read] == [[insert(1)]]  # and no end of the stream


def test_an_asynchronous_stream_that_is_read_directly_is_closed_with_its_source() -> None:
    items = [insert(at) for at in range(2 * ITEMS_PER_CHUNK)]
    connection = Connection(*items)
    source = PythonItems(items=connection.stream)
    feed = feed_of("numbers", source, source.open(SourceContext("numbers", SCHEMA), None), None, threading.Event())
    assert taken_at_once(feed) == items[:ITEMS_PER_CHUNK]
    feed.close()
    assert connection.closed_by is threading.current_thread()
