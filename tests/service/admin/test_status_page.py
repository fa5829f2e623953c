"""The status page's data and event streams, on a real server over HTTP: what they report, and whom they cannot harm."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from page_world import fetched, page_of, page_world, settled, url_of, viewing
from secure_world import SecureWorld
from service_world import MERGE, ins, stable

from lmerge.core.elements import INF
from lmerge.service.admin.status_bundle import read_bundle
from lmerge.service.choices import AccessRole
from lmerge.service.security import tokens
from lmerge.service.security.guard import OPEN_PATHS

PUBLISH, SUBSCRIBE, STATUS, ADMIN = AccessRole
HOSTILE = "<script>alert(1)</script>"


def input_of(report: Any, name: str) -> Any:
    return next(one for one in report["inputs"] if one["name"] == name)


# What is reported.


async def test_the_list_has_every_merge_with_its_health() -> None:
    async with page_world(merges=("idle",)) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(20))
        await b.merged(ins("x", 1, 5), stable(20))
        status, text, headers = await fetched(world, "data")
        rows = {row["name"]: row for row in json.loads(text)["rows"]}
        assert (status, headers["Cache-Control"]) == (200, "no-store")
        assert (rows[MERGE]["health"], rows[MERGE]["text"], rows[MERGE]["survives"]) == ("ok", "Survives 1 loss", 1)
        assert (rows["idle"]["health"], rows["idle"]["inputs"]) == ("critical", 0)
        await b.leave()
        row = json.loads((await fetched(world, "data"))[1])["rows"][-1]
        assert (row["health"], row["survives"], row["inputs"]) == ("warning", 0, 1)
        assert row["text"].startswith("Not redundant")


async def test_a_merge_whose_stream_has_ended_is_no_problem() -> None:
    async with page_world() as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(INF))
        await a.leave()
        row = json.loads((await fetched(world, "data"))[1])["rows"][0]
        assert (row["health"], row["text"], row["stable"]) == ("ok", "Closed: the stream has ended", "inf")


async def test_a_list_that_is_watched_shows_new_merges_changes_and_those_that_have_gone() -> None:
    async with page_world() as world, viewing(world, None) as viewer:
        assert (await viewer.until("merges"))["rows"] == []
        a = await world.publisher("a")
        rows = (await viewer.until("merges", lambda data: data["rows"]))["rows"]
        assert [row["name"] for row in rows] == [MERGE]
        await a.merged(*(ins(f"{at}", at, at + 1) for at in range(100)), stable(200))
        await viewer.until("merges", lambda data: any(row["rate"] for row in data["rows"]))
        await world.server._registry.hubs.pop(MERGE).close()
        assert (await viewer.until("merges", lambda data: data["gone"]))["gone"] == [MERGE]


async def test_a_merge_is_reported_with_its_inputs_subscribers_and_what_occurred() -> None:
    async with page_world() as world:
        a = await world.publisher("a")
        await world.publisher("b", role="ROLE_OBSERVE")
        reader = await world.subscriber(name="board")
        await a.merged(ins("x", 1, 5), stable(20))
        await reader.until_stable(20)
        async with viewing(world) as viewer:
            first = await viewer.until("merge")
            report = first["merge"]
            assert first["whole"]
            assert [one["name"] for one in report["inputs"]] == ["a", "b"]
            assert (input_of(report, "a")["state"], input_of(report, "b")["state"]) == ("joined", "observing")
            assert (input_of(report, "a")["lag"], input_of(report, "b")["lacks"]) == ("0", "it only observes")
            assert [one["name"] for one in report["subscribers"]] == ["board"]
            assert [(one["kind"], one["input"]) for one in first["occurrences"]] == [
                ("attached", "a"),
                ("attached", "b"),
            ]
            assert report["stable"] == "20"


async def test_rates_shares_and_pauses_are_sampled_without_a_viewer() -> None:
    async with page_world() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        feed = page_of(world)._feed
        await settled(lambda: MERGE in feed.histories and feed.histories[MERGE].count > 1)
        events = [ins(f"{at}", at, at + 1) for at in range(1000)]
        await a.merged(*events)
        await b.merged(*events[:10])
        taken = feed.histories[MERGE].count
        await settled(lambda: feed.histories[MERGE].count > taken + 1)
        history = json.loads((await fetched(world, f"data?merge={MERGE}"))[1])["history"]
        assert len(history["at_ms"]) == len(history["out"]) == len(history["inputs"]["a"]["won"])
        assert max(rate or 0 for rate in history["inputs"]["a"]["won"]) > 1000
        assert not any(history["inputs"]["b"]["won"])
        assert max(rate or 0 for rate in history["inputs"]["b"]["in"]) > 0
        assert history["pause_ms"][0] is None
        assert history["pause_ms"][-1] is not None


async def test_a_later_message_has_only_what_is_new_and_a_viewer_that_was_slow_gets_all() -> None:
    async with page_world() as world:
        await world.publisher("a")
        async with viewing(world) as viewer:
            assert (await viewer.until("merge"))["whole"]
            later = await viewer.until("merge", lambda data: not data["whole"])
            assert later["occurrences"] == []
            assert len(later["history"]["at_ms"]) <= 2
            feed = page_of(world)._feed
            topic = feed._topics[MERGE]
            await settled(lambda: feed.histories[MERGE].count > 5)
            assert topic.message_after(topic.version - 1) is topic.changed
            whole = json.loads(topic.message_after(topic.version - 2).decode().partition("data: ")[2])
            assert whole["whole"]
            assert len(whole["history"]["at_ms"]) > len(later["history"]["at_ms"])
            assert topic.message_after(None) is topic.message_after(0), "a whole report is made once for all"


async def test_a_death_is_reported_between_two_samples() -> None:
    async with page_world(page_interval_s=5.0) as world:
        await world.publisher("a")
        b = await world.publisher("b")
        async with viewing(world) as viewer:
            await viewer.merge(lambda report: len(report["inputs"]) == 2)
            samples = page_of(world)._feed.histories[MERGE].count
            b.call.cancel()
            dead = await viewer.until("merge", lambda data: len(data["merge"]["inputs"]) == 1)
            assert [(one["kind"], one["input"]) for one in dead["occurrences"]][-1:] == [("died", "b")]
            assert page_of(world)._feed.histories[MERGE].count == samples


async def test_a_merge_that_is_not_there_is_watched_until_it_comes() -> None:
    async with page_world() as world, viewing(world, "later") as viewer:
        assert (await viewer.until("merge"))["merge"] is None
        await world.publisher("a", merge="later")
        assert (await viewer.merge(lambda report: True))["name"] == "later"


async def test_events_that_differ_are_shown_escaped() -> None:
    async with page_world() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        async with viewing(world) as viewer:
            assert (await viewer.until("differences"))["intervals"] == []
            for publisher, payload in ((a, HOSTILE), (b, "x\x1b[2J\u202e")):
                await publisher.merged(ins(payload, 1, 5))
            for publisher in (a, b):
                await publisher.merged(stable(20))
            shown = await viewer.until("differences", lambda data: data["count"] == 1)
            interval = shown["intervals"][0]
            assert (interval["start"], interval["end"]) == ("0", "10")
            payloads = {event["payload"]: event["present"] for event in interval["events"]}
            assert payloads == {HOSTILE: ["a"], "x\\x1b[2J\\u202e": ["b"]}
            report = await viewer.merge(lambda report: report["divergences"] == 1)
            assert (report["health"], report["text"]) == ("warning", "Survives 1 loss, but inputs differ")


async def test_only_so_many_histories_are_kept_and_those_that_are_watched_first() -> None:
    async with page_world(page_history_merges=2, page_history_samples=3) as world:
        for name in ("m1", "m2", "m3"):
            await world.publisher("a", merge=name)
        feed = page_of(world)._feed
        await settled(lambda: len(feed.histories) == 2)
        assert sorted(feed.histories) == ["m1", "m2"]
        async with viewing(world, "m3") as viewer:
            await viewer.until("merge", lambda data: data["history"] is not None and data["history"]["from"] > 2)
            assert sorted(feed.histories) == ["m2", "m3"]
            assert feed.histories["m3"].count - feed.histories["m3"].first == 3


# Whom it cannot harm.


async def test_one_viewer_more_than_the_limit_is_refused_and_comes_when_one_goes() -> None:
    async with page_world(page_viewers_max=1) as world:
        async with viewing(world) as viewer:
            await viewer.until("merge")
            status, text, _ = await fetched(world, "live")
            assert (status, text) == (429, "1 status pages are open on this server, the limit; close one\n")
        await settled(lambda: page_of(world)._feed.viewers == 0)
        async with viewing(world, None) as viewer:
            await viewer.until("merges")


async def test_a_viewer_that_does_not_read_is_dropped_and_no_other_waits() -> None:
    async with page_world(page_interval_s=0.01, page_write_timeout_s=0.5) as world:
        for at in range(40):
            await world.publisher(f"input {at} {'x' * 150}")
        mute = socket.socket()
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.connect(("127.0.0.1", world.server.http_port))
        with mute:
            mute.sendall(f"GET /status/live?merge={MERGE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            async with viewing(world) as viewer:
                while not page_of(world).dropped:
                    await viewer.until("merge")
                assert page_of(world)._feed.viewers == 1


async def test_a_server_that_stops_ends_its_viewers_at_once() -> None:
    async with page_world() as world, viewing(world) as viewer:
        await viewer.until("merge")
        await asyncio.wait_for(world.server.stop(1.0), 10.0)
        while await viewer.read() is not None:
            pass


async def test_a_viewer_that_comes_while_the_server_stops_does_not_hold_it_up() -> None:
    async with page_world() as world, aiohttp.ClientSession() as http:
        async with http.get(url_of(world, "data")) as response:
            await response.read()  # the connection stays
        await page_of(world).stop()
        async with http.get(url_of(world, "live")) as response:
            assert await asyncio.wait_for(response.read(), 10.0) == b""
        await asyncio.wait_for(world.server.stop(1.0), 10.0)


async def test_a_viewer_whose_write_ends_as_the_server_stops_does_not_delay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with page_world(page_interval_s=0.01) as world, viewing(world) as viewer:
        await viewer.until("merge")
        loop, page, write = asyncio.get_running_loop(), page_of(world), web.StreamResponse.write
        stopping: list[asyncio.Task[None]] = []

        async def last_write(response: web.StreamResponse, data: bytes) -> None:
            await write(response, data)
            if not stopping:
                loop.call_soon(lambda: stopping.append(loop.create_task(page.stop())))  # before what waits goes on

        monkeypatch.setattr(web.StreamResponse, "write", last_write)
        while await viewer.read() is not None:
            pass
        await asyncio.wait_for(world.server.stop(1.0), 10.0)


@pytest.mark.parametrize("merge", ["", " x", "x" * 201, "a\x1bb"])
async def test_a_name_that_no_merge_can_have_is_refused(merge: str) -> None:
    async with page_world() as world:
        status, text, _ = await fetched(world, "live", params={"merge": merge})
        assert status == 400
        assert text.startswith("the name of a merge")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_written(method: str) -> None:
    async with page_world() as world, aiohttp.ClientSession() as http:
        for path in ("", "data", "live"):
            async with http.request(method, url_of(world, path)) as response:
                assert response.status == 405


async def test_a_page_of_another_site_cannot_read_a_local_server_under_its_own_name() -> None:
    async with page_world() as world:
        for host in ("localhost", "[::1]", "127.0.0.1", "evil.example"):
            for path in ("data", f"data?merge={MERGE}"):
                status, text, _ = await fetched(world, path, headers={"Host": host})
                assert status == (403 if host == "evil.example" else 200), text


# The doors.


async def asked(world: SecureWorld, path: str, token: str | None) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=world.authority.path)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    url = f"https://localhost:{world.server.http_port}/status/{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers, ssl=context) as response:
        return response.status, await response.text()


async def test_data_are_behind_the_guard_and_the_bundle_is_not(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, refusal_burst=1000) as world:
        few = world.token("few", [STATUS, ADMIN], [MERGE])
        reader = world.token("reader", [PUBLISH, SUBSCRIBE], ["*"])
        watcher = world.token("watcher", [STATUS], ["*"])
        for path in ("data", "live", f"data?merge={MERGE}", f"live?merge={MERGE}", "nothing", "page.css/"):
            assert [(await asked(world, path, token))[0] for token in (None, few, reader)] == [401, 403, 403], path
        assert (await asked(world, "data", watcher))[0] == 200
        assert (await asked(world, "nothing", watcher))[0] == 404
        assert (await asked(world, "", None))[0] == 200


@pytest.mark.parametrize(
    ("roles", "merges", "sees"), [([STATUS], ["*"], False), ([STATUS, SUBSCRIBE], ["*"], True), ([ADMIN], ["*"], True)]
)
async def test_payloads_come_only_to_those_who_may_read_them(
    roles: list[str], merges: list[str], sees: bool, tmp_path: Path
) -> None:
    async with SecureWorld(tmp_path, http_port=0, certify_interval=10) as world:
        stub = world.stub_of(world.keeper)
        publishers = [await world.publisher(name, stub=stub) for name in "ab"]
        for name, publisher in zip("ab", publishers):
            await publisher.merged(ins(f"secret of {name}", 1, 5))
        for publisher in publishers:
            await publisher.merged(stable(20))
        status, text = await asked(world, f"data?merge={MERGE}", world.token("viewer", roles, merges))
        differences = json.loads(text)["differences"]
        assert (status, differences["count"], differences["withheld"]) == (200, 1, not sees)
        assert ("secret of" in text) is sees


@pytest.mark.parametrize("change", ["revoked", "expired"])
async def test_a_stream_ends_with_its_access(change: str, tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, page_interval_s=0.05) as world:
        watcher = world.token("watcher", [STATUS], ["*"])
        context = ssl.create_default_context(cafile=world.authority.path)
        url = f"https://localhost:{world.server.http_port}/status/live"
        headers = {"Authorization": f"Bearer {watcher}"}
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers, ssl=context) as response:
            assert response.status == 200
            await response.content.readline()
            if change == "revoked":
                tokens.revoke(world.access_path, "watcher")
            else:
                entries = json.loads(world.access_path.read_text())
                for entry in entries["entries"]:
                    if entry["name"] == "watcher":
                        entry["expires"] = "2020-01-01T00:00:00Z"
                world.access_path.write_text(json.dumps(entries))
            rest = (await response.content.read()).decode()
        assert change in rest.partition("event: ended")[2]
        await settled(lambda: page_of(world)._feed.viewers == 0)


# The bundle.


def test_the_guard_opens_the_files_of_the_bundle_and_nothing_else() -> None:
    assert {path for path in OPEN_PATHS if path.startswith("/status/")} == set(read_bundle())


@pytest.mark.parametrize(
    ("accepts", "is_compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("*", True), ("", False), ("gzip;q=0", False), ("gzip; q=0.0", False)],
)
async def test_files_are_compressed_where_that_is_accepted_and_never_sent_twice(
    accepts: str, is_compressed: bool
) -> None:
    async with page_world() as world, aiohttp.ClientSession(auto_decompress=False) as http:
        for path, asset in read_bundle().items():
            url = url_of(world, path.removeprefix("/status/"))
            async with http.get(url, headers={"Accept-Encoding": accepts}) as response:
                body = await response.read()
                assert ("Content-Encoding" in response.headers) is is_compressed
                assert (gzip.decompress(body) if is_compressed else body) == asset.body
                etag = response.headers["ETag"]
            again = {"Accept-Encoding": accepts, "If-None-Match": f'"other", W/{etag}'}
            async with http.get(url, headers=again) as response:
                assert (response.status, await response.read()) == (304, b"")


async def test_every_answer_forbids_what_the_page_does_not_use() -> None:
    async with page_world() as world:
        for path in ("", "data"):
            headers = (await fetched(world, path))[2]
            policy = headers["Content-Security-Policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
            assert not any("unsafe" in part or "http" in part for part in policy)
            assert headers["X-Content-Type-Options"] == "nosniff"
        async with viewing(world) as viewer:
            assert viewer.response.headers["Content-Type"].startswith("text/event-stream")
            assert viewer.response.headers["Cache-Control"] == "no-store"
            assert viewer.response.headers["X-Accel-Buffering"] == "no", "a proxy would hold messages back"


def test_the_bundle_is_small_and_refers_to_no_other_host() -> None:
    bundle = read_bundle()
    assert sum(len(asset.compressed) for asset in bundle.values()) < 40_000
    for path, asset in bundle.items():
        text = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in "".join(line.split("// ")[0] for line in text.splitlines() if "http" in line), path
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
            assert unsafe not in text, f"{path}: {unsafe}"
