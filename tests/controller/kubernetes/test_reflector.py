"""A copy of objects stays right when the watch is cut, goes silent, is too old, is throttled or forbidden."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable
from typing import Any

import pytest
from aiohttp import web
from kube_world import KubeServer, api_of, grant, make_namespace, until
from kubernetes.aio import client as kubernetes_client
from tcp_proxy import TcpProxy

from lmerge_controller.kubernetes.api import CALL_S_MAX, Api, Resource
from lmerge_controller.kubernetes.object_cache import ObjectCache
from lmerge_controller.kubernetes.reflector import WATCH_S, Reflector

MAPS = Resource("", "v1", "configmaps", "ConfigMap")
STOPS = web.AppKey("stops", asyncio.Event)  # set when a scripted API server stops


def config_map(namespace: str, name: str, text: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"t": text},
    }


@asynccontextmanager
async def running(reflector: Reflector) -> AsyncIterator[Reflector]:
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


def names(reflector: Reflector) -> set[str]:
    return {one["metadata"]["name"] for one in reflector.cache} - {"kube-root-ca.crt"}


async def test_it_follows_what_is_made_changed_and_deleted_over_a_cut_connection(kube: KubeServer) -> None:
    async with (
        TcpProxy("127.0.0.1", kube.port) as proxy,
        await api_of(kube, port=proxy.port) as cut,
        await api_of(kube) as api,
    ):
        space = await make_namespace(api, "reflect-cut")
        seen: list[tuple[Any, Any]] = []
        await api.create(MAPS, config_map(space, "before"))
        async with running(Reflector(cut, MAPS, space, lambda old, new: seen.append((old, new)))) as reflector:
            await reflector.listed()
            assert names(reflector) == {"before"}
            made = await api.create(MAPS, config_map(space, "a"))
            await until(lambda: names(reflector) == {"before", "a"})
            proxy.cut()
            await api.merge_patch(MAPS, space, "a", {"data": {"t": "changed"}})
            await api.create(MAPS, config_map(space, "b"))
            await until(lambda: names(reflector) == {"before", "a", "b"})
            await until(lambda: (reflector.cache.get((space, "a")) or {})["data"]["t"] == "changed")
            await api.delete(MAPS, space, "a", uid=made["metadata"]["uid"])
            await until(lambda: names(reflector) == {"before", "b"})
            assert reflector.lists == 1, "a cut connection is no reason to list again"
            assert reflector.watches >= 2
        assert len(seen) >= 5


async def test_it_lists_again_when_it_is_asked_to(kube: KubeServer) -> None:
    async with await api_of(kube) as api:
        space = await make_namespace(api, "reflect-again")
        async with running(Reflector(api, MAPS, space, lambda old, new: None)) as reflector:
            await reflector.listed()
            reflector.relist()
            await reflector.listed()
            assert reflector.lists == 2


async def test_a_watch_that_is_given_up_waits_for_no_answer(kube: KubeServer) -> None:
    """A connection that waits for its peer to end it would outlive the event loop."""
    async with TcpProxy("127.0.0.1", kube.port) as proxy, await api_of(kube, port=proxy.port) as api:
        space = await make_namespace(api, "reflect-given-up")
        since = (await api.page(MAPS, space))["metadata"]["resourceVersion"]
        accepted = asyncio.Event()

        async def watch() -> None:
            async for _ in api.watch(MAPS, space, since, seconds=60, accepted=accepted.set):
                pass

        watching = asyncio.create_task(watch())
        await accepted.wait()
        before, proxy.is_frozen = proxy.live, True
        watching.cancel()
        await until(lambda: proxy.live < before)


async def test_a_right_that_is_missing_is_reported_and_its_grant_noticed(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmerge_controller.kubernetes.reflector.BACKOFF_S_MAX", 0.1)
    async with await api_of(kube) as admin, await api_of(kube, "narrow-token") as narrow:
        space = await make_namespace(admin, "reflect-narrow")
        async with running(Reflector(narrow, MAPS, space, lambda old, new: None)) as reflector:
            await until(lambda: reflector.problem)
            assert reflector.missing_right == "list configmaps"
            await grant(admin, space, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])
            await until(lambda: reflector.missing_right == "watch configmaps")


class ScriptedApiServer:
    """Answers lists and watches as a script has it, for answers that a real API server gives at no one's command."""

    def __init__(self, *answers: Callable[[web.Request], Any]) -> None:
        self._answers = list(answers)
        self.queries: list[dict[str, str]] = []
        self.times: list[float] = []
        self._stops = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Api]:
        app = web.Application()
        app[STOPS] = self._stops
        app.add_routes([web.get("/{path:.*}", self._answer)])
        runner = web.AppRunner(app, shutdown_timeout=0.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        settings = kubernetes_client.Configuration(host=f"http://127.0.0.1:{port}")
        try:
            async with Api(kubernetes_client.ApiClient(settings)) as api:
                yield api
        finally:
            self._stops.set()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        self.times.append(asyncio.get_running_loop().time())
        if not self._answers:
            await self._stops.wait()
            return web.Response()
        answer = self._answers.pop(0)(request)
        found: web.StreamResponse = await answer if isawaitable(answer) else answer
        return found


def listed(version: int, *items: tuple[str, int]) -> Callable[[web.Request], web.Response]:
    found = [{"metadata": {"name": name, "namespace": "n", "resourceVersion": str(at)}} for name, at in items]
    return lambda _: web.json_response({"metadata": {"resourceVersion": str(version)}, "items": found})


def watched(*lines: str) -> Callable[[web.Request], web.Response]:
    return lambda _: web.Response(text="".join(line + "\n" for line in lines))


def change(kind: str, name: str, version: int) -> str:
    return (
        f'{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}}}'
    )


GONE = '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}'


@pytest.mark.parametrize("gone", [watched(GONE), lambda _: web.json_response({"code": 410}, status=410)])
async def test_history_that_is_gone_is_listed_again(gone: Callable[[web.Request], Any]) -> None:
    server = ScriptedApiServer(listed(5, ("a", 3), ("b", 4)), gone, listed(9, ("b", 4), ("c", 8)))
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)) as reflector:
        await until(lambda: reflector.lists == 2)
        assert names(reflector) == {"b", "c"}


async def test_a_watch_goes_on_from_the_last_bookmark() -> None:
    bookmark = '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"77"}}}'
    server = ScriptedApiServer(listed(5), watched(change("ADDED", "a", 6), bookmark), watched())
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)):
        await until(lambda: len(server.queries) >= 3)
    assert [query.get("resourceVersion") for query in server.queries[:3]] == [None, "5", "77"]
    assert server.queries[1]["allowWatchBookmarks"] == "true"


async def test_a_server_that_is_too_busy_is_given_the_time_that_it_asks_for() -> None:
    busy = web.json_response({"reason": "TooManyRequests"}, status=429, headers={"Retry-After": "1"})
    server = ScriptedApiServer(lambda _: busy, listed(5))
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)) as reflector:
        await reflector.listed()
    assert server.times[1] - server.times[0] >= 0.8


async def test_a_list_of_several_pages_is_taken_in_whole() -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": []}
    server = ScriptedApiServer(lambda _: web.json_response(first), listed(5, ("a", 3)))
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)) as reflector:
        await reflector.listed()
        assert names(reflector) == {"a"}
    assert server.queries[1]["continue"] == "more"


async def quiet(request: web.Request) -> web.StreamResponse:
    """Begin a watch that has nothing to send, not even bookmarks, and end it after the time that was asked for."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(request.app[STOPS].wait(), float(request.query["timeoutSeconds"]))
    return response


async def test_a_quiet_watch_is_ended_by_the_server_and_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmerge_controller.kubernetes.reflector.WATCH_S", (1, 1))
    monkeypatch.setattr("lmerge_controller.kubernetes.api.CALL_S_MAX", 0.5)
    problems: list[str] = []
    server = ScriptedApiServer(listed(5), quiet, quiet, quiet)
    async with server.serving() as api:
        reflector = Reflector(api, MAPS, "n", lambda old, new: None)
        reflector._problem_changed = lambda: problems.append(reflector.problem)
        async with running(reflector):
            await until(lambda: reflector.watches >= 3)
    assert problems == []
    assert [query.get("timeoutSeconds") for query in server.queries[1:3]] == ["1", "1"]
    assert reflector.lists == 1


async def test_a_quiet_watch_after_a_problem_is_current() -> None:
    away = web.json_response({"reason": "ServiceUnavailable"}, status=503)
    server = ScriptedApiServer(listed(5), lambda _: away, quiet)
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)) as reflector:
        await until(lambda: reflector.problem)
        await until(lambda: not reflector.problem)
        assert reflector.lists == 1


def test_a_watch_ends_well_before_the_longest_time_that_a_lost_connection_may_stay_unnoticed() -> None:
    assert max(WATCH_S) + CALL_S_MAX <= 60.0


async def test_a_lost_connection_is_noticed_and_a_quiet_watch_after_it_is_current(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmerge_controller.kubernetes.reflector.WATCH_S", (2, 2))
    monkeypatch.setattr("lmerge_controller.kubernetes.api.CALL_S_MAX", 1.0)
    async with (
        TcpProxy("127.0.0.1", kube.port) as proxy,
        await api_of(kube, port=proxy.port) as cut,
        await api_of(kube) as api,
    ):
        space = await make_namespace(api, "reflect-lost")
        async with running(Reflector(cut, MAPS, space, lambda old, new: None)) as reflector:
            await until(lambda: reflector.watches)
            proxy.is_frozen = True
            await until(lambda: "no answer" in reflector.problem)
            proxy.is_frozen = False
            await until(lambda: not reflector.problem)
            assert reflector.lists == 1, "nothing has changed, and no history was lost"


async def test_watches_that_end_at_once_are_begun_again_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmerge_controller.kubernetes.reflector.BACKOFF_S", 0.05)
    server = ScriptedApiServer(listed(5), *(watched() for _ in range(5)))
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)):
        await until(lambda: len(server.times) == 6)
    pauses = [later - earlier for earlier, later in zip(server.times[1:], server.times[2:], strict=False)]
    assert pauses[-1] > 4 * pauses[0] * 0.8 / 1.2


async def test_a_line_that_is_no_change_ends_the_watch_and_not_the_reflector() -> None:
    server = ScriptedApiServer(listed(5), watched("no JSON"), watched(change("ADDED", "a", 6)))
    async with server.serving() as api, running(Reflector(api, MAPS, "n", lambda old, new: None)) as reflector:
        await until(lambda: names(reflector) == {"a"})


def stored(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}


def test_an_older_event_does_not_undo_an_own_write() -> None:
    cache = ObjectCache(lambda old, new: None)
    assert cache.put(stored("a", 9))
    assert not cache.put(stored("a", 5))
    assert not cache.put(stored("a", 9))
    cache.remove(stored("a", 7))
    assert cache.get(("n", "a")) == stored("a", 9)


def test_the_late_answer_to_a_write_does_not_bring_a_deleted_object_back() -> None:
    cache = ObjectCache(lambda old, new: None)
    cache.put(stored("a", 5))
    cache.remove(stored("a", 8))
    assert not cache.put(stored("a", 7))
    assert cache.put(stored("a", 9)), "one that was made again is another"


def test_a_list_removes_what_is_gone_and_keeps_what_is_newer_than_itself() -> None:
    gone: list[str] = []
    cache = ObjectCache(lambda old, new: gone.append(old["metadata"]["name"]) if new is None else None)
    for name, version in (("a", 3), ("b", 4), ("own", 20)):
        cache.put(stored(name, version))
    cache.replace([stored("b", 4)], 10)
    assert (gone, len(cache)) == (["a"], 2)
    assert not cache.put(stored("a", 9))
