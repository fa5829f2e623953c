"""A spool with damaged files is refused by name; a spool survives a death after every change of its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs
from spool_world import (
    APPENDS,
    META,
    UPDATES,
    DyingFiles,
    KeyedRow,
    Killed,
    attempt_at,
    commit_elements,
    events_of,
    files_in,
    forget_cached,
    keyed_batches,
    payload_of,
    rows_in,
    run,
    state_of,
)

from lmerge.core.elements import INF, Event, Insert
from lmerge.errors import LmergeError, StoreDamaged, StoreFull, UsageError
from lmerge.spark.spool import retention
from lmerge.spark.spool.files import SpoolFiles
from lmerge.spark.spool.spool import Spool

# Damage.


def damaged_spool(folder: Path) -> tuple[Spool, list[str]]:
    """Return a spool with a file of each kind, and the names of the committed files."""
    spool = Spool(str(folder))
    for batch in range(6):
        run(spool, batch, [[("a", batch, 50, 90), (f"k{batch}", 1, 60, INF)]], 10 + batch)
        spool.trim(10 + batch)
    names = files_in(folder)
    assert {name.split("/")[0] for name in names} >= {"batches", "said", "manifests", "live"}
    return spool, names


def use_all(folder: Path) -> None:
    forget_cached()
    state_of(Spool(str(folder)), 1)


def test_every_damaged_file_is_named(tmp_path: Path, eager: None) -> None:
    _, names = damaged_spool(tmp_path)
    for name in names:
        file = tmp_path / name
        good = file.read_bytes()
        for bad in (good[:-2], good[: len(good) // 2], b"", good[:-9] + b"~" + good[-8:], b"{}", b"[1]", b"\0" * 40):
            file.write_bytes(bad)
            with pytest.raises(StoreDamaged) as caught:
                use_all(tmp_path)
            assert name in str(caught.value)
        file.write_bytes(good)
    use_all(tmp_path)


def test_every_missing_file_is_named(tmp_path: Path, eager: None) -> None:
    spool, names = damaged_spool(tmp_path)
    newest = spool.record.newest
    assert newest is not None
    for name in names:
        if name == f"manifests/{newest.batch}.json":
            continue  # without that file there is no spool
        file = tmp_path / name
        good = file.read_bytes()
        file.unlink()
        with pytest.raises(LmergeError) as caught:
            use_all(tmp_path)
        assert name in str(caught.value) or "cannot continue with batch" in str(caught.value)
        file.write_bytes(good)


def test_a_newer_format_is_refused(tmp_path: Path, eager: None) -> None:
    _, names = damaged_spool(tmp_path)
    for name in names:
        file = tmp_path / name
        good = file.read_bytes()
        newer = good.replace(b'"format": 1', b'"format": 2').replace(b"lmerge-spool 1 ", b"lmerge-spool 2 ")
        assert newer != good
        file.write_bytes(newer)
        with pytest.raises(UsageError, match="was written by a newer lmerge: its format is 2"):
            use_all(tmp_path)
        file.write_bytes(good)


def test_a_manifest_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    commit_elements(spool, 0, [])
    shutil.copy(tmp_path / "manifests/0.json", tmp_path / "manifests/1.json")
    with pytest.raises(StoreDamaged, match=r"manifests/1.json .* it is that of batch 0"):
        Spool(str(tmp_path)).record.newest  # noqa: B018


def test_a_manifest_that_is_missing_in_between_is_found(tmp_path: Path) -> None:
    for batch in range(3):
        commit_elements(Spool(str(tmp_path)), batch, [])
    (tmp_path / "manifests/1.json").unlink()
    with pytest.raises(StoreDamaged, match=r"manifests/1.json .* it is missing, and there is a manifest of batch 2"):
        Spool(str(tmp_path)).live_before(3)


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(b"a file where the folder should be")
    with pytest.raises(StoreFull, match=r"cannot write .*manifests/0.json"):
        commit_elements(Spool(str(tmp_path / "spool")), 0, [])


def test_a_file_system_that_moves_onto_no_file_is_helped(tmp_path: Path) -> None:
    class Careful(DyingFiles):
        def move(self, src: str, dest: str) -> None:
            if Path(dest).exists():
                raise OSError(f"{dest} exists")
            super().move(src, dest)

    files = Careful().at(tmp_path)
    commit_elements(Spool(files), 0, [Insert(b"old", 1, 5)])
    commit_elements(Spool(files), 0, [Insert(b"new", 1, 5)])
    assert events_of(Spool(str(tmp_path)).live_before(1)) == [Event(1, b"new", 5)]
    assert not [name for name in files_in(tmp_path) if ".tmp-" in name]


def test_manifests_are_json_for_people(tmp_path: Path) -> None:
    commit_elements(Spool(str(tmp_path)), 0, [Insert(b"a", 1, INF)], 1)
    body = json.loads((tmp_path / "manifests/0.json").read_bytes())
    assert body["format"] == 1
    assert body["manifest"]["meta"] == META
    assert body["manifest"]["parts"][0]["largest_end"] == INF


# Death after every change.


def commit_next(spool: Spool) -> None:
    run(spool, 6, rows_in(6), 80)


def commit_again(spool: Spool) -> None:
    run(spool, 5, [[("a", 99, 90, 95)], rows_in(5)[1]], 70, attempt=1)


def roll_back(spool: Spool) -> None:
    run(spool, 4, [[("a", 98, 90, 95)], rows_in(4)[1]], 60, attempt=1)


def trim(spool: Spool) -> None:
    spool.trim(58)


@pytest.mark.parametrize(
    ("prepare", "operation"),
    [
        (lambda spool: keyed_batches(spool, 6), commit_next),
        (lambda spool: keyed_batches(spool, 6), commit_again),
        (lambda spool: keyed_batches(spool, 6), roll_back),
        (lambda spool: keyed_batches(spool, 6), trim),
        (lambda spool: [commit_elements(spool, b, [Insert(b"x", 10 * b, 10 * b + 4)], 10 * b) for b in range(9)], trim),
    ],
    ids=["commit", "again", "roll back", "trim", "drop"],
)
def test_whoever_opens_it_after_a_death_finds_it_as_before_or_as_after(
    tmp_path: Path, eager: None, prepare: Callable[[Spool], object], operation: Callable[[Spool], None]
) -> None:
    start = tmp_path / "start"
    start.mkdir()
    prepare(Spool(str(start)))
    allowed = [state_of(Spool(str(start)))]
    if operation is roll_back:  # batch 5 is removed first, while 4 is not written again: the old state is also valid
        keyed_batches(Spool(str(tmp_path / "older")), 5)
        allowed.append(state_of(Spool(str(tmp_path / "older"))))
    whole = DyingFiles()
    shutil.copytree(start, tmp_path / "whole")
    operation(Spool(whole.at(tmp_path / "whole")))
    forget_cached()
    after = state_of(Spool(str(tmp_path / "whole")))
    for dies_at in range(1, whole.changes + 1):
        folder = tmp_path / str(dies_at)
        shutil.copytree(start, folder)
        with pytest.raises(Killed):
            operation(Spool(DyingFiles(dies_at).at(folder)))
        forget_cached()
        found = state_of(Spool(str(folder)))
        assert found in [*allowed, after], f"after {dies_at} of {whole.changes} changes"
        operation(Spool(str(folder)))
        forget_cached()
        assert state_of(Spool(str(folder))) == after


def test_a_death_in_a_trim_leaves_nothing_for_ever(tmp_path: Path, eager: None) -> None:
    start = tmp_path / "start"
    keyed_batches(Spool(str(start)), 6)
    whole = DyingFiles()
    shutil.copytree(start, tmp_path / "whole")
    trim(Spool(whole.at(tmp_path / "whole")))
    for dies_at in range(1, whole.changes + 1):
        folder = tmp_path / str(dies_at)
        shutil.copytree(start, folder)
        with pytest.raises(Killed):
            trim(Spool(DyingFiles(dies_at).at(folder)))
        trim(Spool(str(folder)))
        left = {name.split("/")[0]: 0 for name in files_in(folder)}
        for name in files_in(folder):
            left[name.split("/")[0]] += 1
        # Two batches with two parts each, their manifests and the snapshot.
        assert (left["batches"], left["manifests"], left["live"]) == (4, 2, 1)


def test_a_worker_that_was_given_up_harms_nothing(tmp_path: Path) -> None:
    """Its attempt has the number of one in an earlier life, and still writes files of its own."""
    spool = Spool(str(tmp_path))
    won = attempt_at(spool, 0, 0, [("a", 1, 1, 5)]).part
    spool.commit(0, [won], None, META)
    zombie = attempt_at(Spool(str(tmp_path)), 0, 0, [("a", 2, 1, 5)]).part
    assert zombie.name != won.name
    assert events_of(Spool(str(tmp_path)).live_before(1)) == [Event(1, payload_of("a", 1), 5)]


def test_appends_publish_the_same_from_a_spool_that_was_trimmed_or_not(tmp_path: Path, eager: None) -> None:
    trimmed, kept = Spool(str(tmp_path / "trimmed")), Spool(str(tmp_path / "kept"))
    for batch in range(30):
        partitions: list[list[KeyedRow]] = [[(f"k{i}", i, 10 * batch + i, 10 * batch + 3 * i + 1) for i in range(9)]]
        for spool in (trimmed, kept):
            run(spool, batch, partitions, 10 * batch, plan=APPENDS)
        trimmed.trim(10 * batch - 25)
        for at in range(max(batch - 1, 0), batch + 2):
            from_ = trimmed.complete_from(at)
            assert events_of(trimmed.live_before(at), from_) == events_of(kept.live_before(at), from_)
    assert len(files_in(tmp_path / "trimmed")) < 25


def test_everything_is_let_go_of_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers as they are: files grow by no more than a constant."""
    monkeypatch.setattr(retention, "DEAD_ELEMENTS_MIN", 500)
    spool, most = Spool(str(tmp_path)), 0
    for batch in range(150):
        run(spool, batch, [[(f"k{batch % 40}", batch, 10 * batch, 10 * batch + 30)]], 10 * batch - 5, plan=UPDATES)
        spool.trim(10 * batch - 9)
        most = max(most, len(files_in(tmp_path)))
    assert most < 3 * 80


def test_the_local_files_are_what_they_are() -> None:
    assert isinstance(SpoolFiles.at("file:///x").filesystem, fs.LocalFileSystem)
    assert SpoolFiles.at("file:///x/y/").path("z") == "/x/y/z"
