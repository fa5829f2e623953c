"""A server runs its merges on the chosen engine, and reports it in its log, its metrics and its descriptions."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from service_world import MERGE, World, ins

from lmerge.core.engines import selection
from lmerge.errors import UsageError
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb


async def test_metrics_and_descriptions_name_the_engine_that_runs(engine: str) -> None:
    async with World(engine=engine, http_port=0) as world:
        publisher = await world.publisher("a")
        await publisher.merged(ins("A", 6, 7))
        assert (await world.describe(MERGE)).engine == engine
        assert (await world.stub.DescribeServer(pb.DescribeServerRequest())).engine == engine
        url = f"http://127.0.0.1:{world.server.http_port}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            text = await response.text()
    assert f'lmerge_engine_info{{engine="{engine}"}} 1.0' in text.splitlines()


async def test_auto_is_the_best_engine_there_is() -> None:
    async with World() as world:
        assert (await world.stub.DescribeServer(pb.DescribeServerRequest())).engine == selection.best()


async def test_the_log_reports_which_engine_was_chosen_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lmerge.service")
    async with World(engine="python"):
        pass
    (fields,) = (vars(r)["fields"] for r in caplog.records if getattr(r, "event", "") == "engine chosen")
    assert fields == {"engine": "python", "asked": "python", "reason": "asked for"}


def test_an_engine_that_is_not_here_is_refused_before_the_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "native_problem", lambda: "No module named 'lmerge._native'")
    Settings(engine="auto").validate()
    with pytest.raises(UsageError, match=r"native engine cannot be used: No module named 'lmerge\._native'"):
        Settings(engine="native").validate()
    with pytest.raises(UsageError, match="unknown engine 'fast'"):
        Settings(engine="fast").validate()


def test_serve_passes_the_engine_on_and_logs_it(engine: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "lmerge", "serve", "--port", "0", "--http-port", "-1", "--log-format", "json"]
    process = subprocess.Popen(
        [*command, "--engine", engine, "--ready-file", str(ready)], stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not ready.exists():
        os.sched_yield()
    process.terminate()
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 0, log
    events = {event["event"]: event for event in map(json.loads, log.splitlines())}
    assert (events["engine chosen"]["engine"], events["engine chosen"]["reason"]) == (engine, "asked for")
