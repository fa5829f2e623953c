"""The file of a merge: damage is found and named, a full disk harms nothing, and other merges are not affected."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import grpc
import pytest
from service_world import MERGE, World, ins, stable

from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Insert, Stable
from lmerge.errors import AddressInUse, StoreDamaged, StoreFull, StoreInUse, SubscriberTooSlow
from lmerge.service.output.durable_merges import DurableOutput
from lmerge.service.output.fanout import Message
from lmerge.service.output.journal import History, Journal, Segment
from lmerge.service.output.store import LoadedStore, Store
from lmerge.service.output.transaction import Changes
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.wire.frames import PYTHON_FRAMES
from lmerge.wire.limits import DEFAULT_LIMITS


def message(at: int) -> Message:
    return Message(PYTHON_FRAMES.encode_subscribe([Batch.of([Insert(b"x" * 100, at, at + 9), Stable(at)])]), 2, 1)


def write(store: Store, count: int, *, each: int = 10) -> None:
    """Write messages 1 to ``count``, ``each`` messages a commit."""
    changes = Changes()
    journal = Journal(10**6, None, 2_000, changes)
    journal.begin(Batch.of([]), NEG_INF, NEG_INF)
    changes.facts["name"] = b"m"
    changes.incarnations["a"] = 2**64 - 1
    for at in range(1, count + 1):
        journal.append(message(at))
        if journal.needs_segment(at):
            journal.begin(Batch.of([Insert(b"live", at, at + 9), Stable(at)]), at, NEG_INF)
        if at % each == 0 or at == count:
            store.commit([changes.take()], PYTHON_FRAMES, DEFAULT_LIMITS)


def loaded(path: Path) -> LoadedStore:
    store = Store(path)
    try:
        return store.load()
    finally:
        store.close()


def test_a_closed_store_is_not_opened_again_by_what_comes_late(tmp_path: Path) -> None:
    """A forced stop can leave a commit in its thread. Another server may have the file by then."""
    store = Store(tmp_path / "a.lmerge")
    write(store, 3)
    store.close()
    with pytest.raises(StoreInUse, match="it was closed"):
        write(store, 3)
    for late in (lambda: store.read(None, 0, 3, 100), lambda: store.holds(0)):
        with pytest.raises(StoreInUse, match="it was closed"):
            late()
    assert loaded(store.path).facts["name"] == b"m"


async def test_a_server_that_could_not_start_has_nothing_to_stop(tmp_path: Path) -> None:
    async with World(store=str(tmp_path / "a")) as world:
        for store, port in (("a", 0), ("b", world.server.port)):  # another server has the store, or the port
            server = Server(Settings(store=str(tmp_path / store), port=port, http_port=None))
            with pytest.raises((StoreInUse, AddressInUse)):
                await server.start()
            await server.stop()


def loaded_again(store: Store) -> list[Segment]:
    """Close an open store and load it again; return its segments."""
    store.close()
    return store.load().segments


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m-1.lmerge"


def test_what_was_written_is_found(path: Path) -> None:
    store = Store(path)
    write(store, 100)
    store.close()
    found = loaded(path)
    assert (found.facts, found.incarnations) == ({"name": b"m"}, {"a": 2**64 - 1})
    assert [s.first for s in found.segments[:1]] == [1]
    assert len(found.segments) > 4
    assert found.segments[-1].next == 101
    assert [found.last[-1]] == [message(100).data]


def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(path: Path) -> None:
    store = Store(path)
    write(store, 60)
    store.close()
    whole, reference = path.read_bytes(), loaded(path)
    random, found = Random(1), []
    used = [at for at, byte in enumerate(whole) if byte]  # free room of pages, where no bit matters, is skipped
    for at in random.sample(used, 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << random.randrange(8))]) + whole[at + 1 :])
        try:
            store = Store(path)
            now = store.load()
        except StoreDamaged as damage:
            found.append(str(damage))
        else:
            assert (now.facts, now.incarnations, now.last) == (reference.facts, reference.incarnations, reference.last)
        finally:
            store.close()
    assert len(found) > 30  # the rest are bytes of SQLite's own bookkeeping
    assert all(str(path) in text and "put back a whole copy" in text for text in found)


@pytest.mark.parametrize("keep", [0.95, 0.5, 0.1, 0.01])
def test_a_truncated_file_is_refused(path: Path, keep: float) -> None:
    store = Store(path)
    write(store, 300)
    store.close()
    os.truncate(path, int(path.stat().st_size * keep))
    with pytest.raises(StoreDamaged, match=r"m-1\.lmerge is damaged"):
        Store(path).load()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "gone"])
def test_a_log_that_has_lost_its_end_is_refused_as_output_was_shown_from_it(path: Path, damage: str) -> None:
    """As after a kill: the log is not in the file yet."""
    store = Store(path)
    write(store, 50)
    log = path.with_name(path.name + "-wal")
    copy = path.with_name("copy.lmerge")
    wal, data = log.read_bytes(), path.read_bytes()
    copy.with_name("copy.mark").write_bytes(store.mark.read_bytes())
    copy.write_bytes(data)
    if damage == "truncated":
        copy.with_name("copy.lmerge-wal").write_bytes(wal[: len(wal) - 5_000])
    elif damage == "flipped":
        at = len(wal) * 2 // 3
        copy.with_name("copy.lmerge-wal").write_bytes(wal[:at] + bytes([wal[at] ^ 4]) + wal[at + 1 :])
    with pytest.raises(StoreDamaged, match=r"copy\.lmerge"):
        Store(copy).load()
    copy.write_bytes(data)
    copy.with_name("copy.lmerge-wal").write_bytes(wal)
    assert loaded(copy).segments[-1].next == 51
    store.close()


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(StoreDamaged, match="not a store of version 1"):
        Store(path).load()
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StoreDamaged):
        Store(path).load()


def test_missing_messages_are_found(path: Path) -> None:
    for delete in ("number = 20", "number = 1", "segment = 2"):
        path.unlink(missing_ok=True)
        store = Store(path)
        write(store, 60)
        store.close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"DELETE FROM message WHERE {delete}")
            connection.commit()
        with pytest.raises(StoreDamaged):
            Store(path).load()


@pytest.mark.parametrize("change", ["elements = elements + 1", "data = substr(data, 2)", "crc = crc + 1"])
def test_a_row_that_does_not_fit_its_checksum_is_refused(path: Path, change: str) -> None:
    store = Store(path)
    write(store, 20)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE message SET {change} WHERE number = 5")
        connection.commit()
    with pytest.raises(StoreDamaged, match="message 5: wrong checksum"):
        Store(path).load()


async def test_a_past_that_was_forgotten_while_it_was_read_ends_the_reader_instead_of_skipping(path: Path) -> None:
    store = Store(path)
    write(store, 60)
    segments = [segment.number for segment in loaded_again(store)]
    changes = Changes()
    changes.forgotten.append(segments[0])
    store.commit([changes], PYTHON_FRAMES, DEFAULT_LIMITS)
    assert not store.holds(segments[0])
    assert store.holds(segments[1])
    assert store.read(None, 1, 60, 10**6) == []
    with ThreadPoolExecutor(1) as executor:
        durable = DurableOutput(store, "m", executor, Settings())
        for number in segments[:2]:
            past = History(NEG_INF, 0, None, [], number, 1, 60)
            with pytest.raises(SubscriberTooSlow, match="not retained any more"):
                assert [message async for message in durable.past(past)] != []
    store.close()


def test_a_full_file_takes_nothing_of_a_commit_and_goes_on_when_there_is_room(path: Path) -> None:
    store = Store(path, pages_max=20)
    with pytest.raises(StoreFull, match="the disk is full"):
        write(store, 5_000, each=100)
    store.close()
    found = Store(path)
    kept = found.load().segments[-1].next - 1
    assert 0 < kept < 5_000
    assert kept % 100 == 0
    found.close()


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store import write
from lmerge.errors import StoreFull
from lmerge.service.output.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_600_000, resource.RLIM_INFINITY))
store = Store(Path(sys.argv[1]))
try:
    write(store, 40_000, each=100)
except StoreFull as full:
    print(full)
else:
    raise SystemExit("nothing was full")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
from lmerge.service.output.transaction import Changes
from lmerge.wire.frames import PYTHON_FRAMES
from lmerge.wire.limits import DEFAULT_LIMITS
store.commit([Changes(facts={"later": b"1"})], PYTHON_FRAMES, DEFAULT_LIMITS)
store.close()
"""


def test_a_file_system_that_takes_no_more_harms_nothing(path: Path) -> None:
    """The operating system refuses to let the file grow, and then lets it again."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the disk" in done.stdout
    found = loaded(path)
    assert found.facts["later"] == b"1"
    assert found.segments[-1].next > 1


FULL_AT_FIRST = """
import os, resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store import write
from lmerge.errors import StoreFull
from lmerge.service.output.durable_merges import StoreFolder
from lmerge.service.settings import Settings
from lmerge.service.output.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = StoreFolder(Settings(store=sys.argv[1]))
path = folder.path_of("flights")
for room in map(int, sys.argv[3:]):
    for life in range(3):
        if not os.fork():
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            found = folder.recover()
            assert (found, folder.damaged) == ([], {}), folder.damaged
            try:
                write(folder.store_of("flights"), 1)
            except StoreFull:
                os._exit(os.EX_OK)  # as if it were killed: nothing is closed
            os._exit(os.EX_SOFTWARE)
        assert os.wait()[1] == os.EX_OK, (room, life)
assert (folder.recover(), folder.damaged) == ([], {}), folder.damaged
write(folder.store_of("flights"), 1)
"""


def test_a_disk_that_is_full_from_the_first_file_on_is_no_damage_over_restarts(tmp_path: Path) -> None:
    """A server cannot make the file, is killed, and finds the rest of it while the disk is still full."""
    rooms = ["0", "1", "4096", "32768", "32800", "65536", "98304"]
    done = subprocess.run(
        [sys.executable, "-c", FULL_AT_FIRST, str(tmp_path), str(Path(__file__).parent), *rooms],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def spoilt(folder: Path) -> Path:
    """The file of the merge, with a bit flipped in its name."""
    file = next(folder.glob("flights-*.lmerge"))
    data = bytearray(file.read_bytes())
    data[data.rindex(b"flights")] ^= 1
    file.write_bytes(data)
    return file


def move_away(file: Path) -> None:
    for path in file.parent.glob(f"{file.stem}.*"):
        path.unlink()


async def test_a_damaged_merge_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async with World(store=str(tmp_path)) as world:
        for merge in (MERGE, "whole"):
            await (await world.publisher("a", merge=merge)).merged(ins("x", 1, 9), stable(5))
    file = spoilt(tmp_path)
    async with World(store=str(tmp_path), merges=(MERGE,)) as world:
        ending = await world.refused("b")
        assert ending.code is grpc.StatusCode.DATA_LOSS
        assert str(file) in ending.details
        with pytest.raises(grpc.RpcError) as refused:
            await world.subscriber()
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS
        assert (await world.publisher("b", merge="whole", join_at=5)).accepted.joined
        assert (await world.subscriber("whole")).begin.events == 1
    move_away(file)
    async with World(store=str(tmp_path)) as world:
        assert (await world.publisher("b")).accepted.stable_point == NEG_INF
