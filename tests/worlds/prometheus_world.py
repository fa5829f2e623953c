"""A real Prometheus and a real Alertmanager on free ports, and a webhook that collects what Alertmanager sends."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import yaml
from aiohttp import web

from lmerge.demo.processes import bound
from monitoring.alerting.alert import Pace
from monitoring.alerting.catalogue import ALERTS
from monitoring.alerting.rules_file import rules_file

FAST = Pace(factor=1 / 120, evaluation_s=0.25, window_s_min=1.5)
"""The rules as they are, with every time 120 times shorter. A scrape is a quarter of a second apart."""
EVERY = f"{round(FAST.evaluation_s * 1000)}ms"


class ReceivedAlert(NamedTuple):
    """An alert in a message to the webhook. ``status``: ``firing`` or ``resolved``."""

    status: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Daemon:
    """A process that ends with the test, also if the test is killed; its log is a file."""

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                bound(command, signal.SIGKILL), stdin=subprocess.DEVNULL, stdout=file, stderr=file, **options
            )

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def logged(self, pattern: str) -> str:
        """Wait until a line of the log matches; return the first group."""
        while (found := re.search(pattern, self.log.read_text())) is None:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            await asyncio.sleep(0.005)
        return found[1]


class Watched:
    """Prometheus, Alertmanager and the webhook: ``async with Watched(program, folder, targets) as watched``.

    ``targets``: addresses of HTTP ports by job. ``token_file``: what Prometheus shows at each of them. ``authority``:
    the file of the authority that signed their certificates. ``textfile``: metrics that Prometheus reads there in a job
    ``node``, as node_exporter's textfile collector serves them.
    """

    def __init__(
        self,
        program: Callable[[str], str],
        folder: Path,
        targets: Mapping[str, list[str]],
        token_file: Path | None = None,
        pace: Pace = FAST,
        authority: str | None = None,
    ) -> None:
        self.received: list[ReceivedAlert] = []
        self._program, self._folder, self._targets, self._token_file = program, folder, targets, token_file
        self._pace, self._authority = pace, authority
        self.textfile = folder / "metrics.prom"
        self._daemons: list[Daemon] = []

    async def __aenter__(self) -> Watched:
        self._folder.mkdir(exist_ok=True)
        try:
            self._web = await self._listen()
            alertmanager = await self._start("prometheus-alertmanager", self._routes(), "--cluster.listen-address=")
            self._write_rules()
            self.prometheus = await self._start("prometheus", self._scrapes(alertmanager))
            await self._daemons[-1].logged("(Server is ready to receive web requests)")
        except BaseException:
            await self.__aexit__()
            raise
        self._session = aiohttp.ClientSession(f"http://{self.prometheus}")
        return self

    async def __aexit__(self, *_: object) -> None:
        for daemon in self._daemons:
            daemon.kill()
        if hasattr(self, "_session"):
            await self._session.close()
        await self._web.cleanup()

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an expression now: series with ``metric`` and ``value``. Raises on a wrong one."""
        return await self._result("/api/v1/query", query=expression)

    async def over(self, expression: str, begin_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression over a range of time, with ``metric`` and ``values``."""
        return await self._result("/api/v1/query_range", query=expression, start=begin_s, end=end_s, step=step_s)

    async def holds(self, expression: str) -> None:
        """Wait until an expression has a result."""
        while True:
            if await self.query(expression):
                return
            await asyncio.sleep(0.005)

    async def fires(self, name: str, **labels: str) -> ReceivedAlert:
        """Wait until the webhook has an alert that fires, with these labels; return it."""
        return await self._alert(name, "firing", labels, 0)

    async def is_resolved(self, name: str, **labels: str) -> None:
        """Wait until the last alert of this name and labels at the webhook is a resolved one."""
        last = max(i for i, alert in enumerate(self.received) if alert.name == name and alert.status == "firing")
        await self._alert(name, "resolved", labels, last)

    async def _alert(self, name: str, status: str, labels: Mapping[str, str], first: int) -> ReceivedAlert:
        while True:
            for found in self.received[first:]:
                if (found.name, found.status) == (name, status) and labels.items() <= found.labels.items():
                    return found
            await asyncio.sleep(0.005)

    async def _result(self, path: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self._session.get(path, params={key: str(value) for key, value in parameters.items()}) as answer:
            body = await answer.json()
        assert body["status"] == "success", (parameters, body.get("error"))
        return list(body["data"]["result"])

    async def _listen(self) -> web.AppRunner:
        async def take(request: web.Request) -> web.Response:
            for alert in (await request.json())["alerts"]:
                labels = alert["labels"]
                self.received.append(ReceivedAlert(alert["status"], labels["alertname"], labels, alert["annotations"]))
            return web.Response()

        async def show(_: web.Request) -> web.Response:
            return web.Response(text=_text_in(self.textfile))

        app = web.Application()
        app.add_routes([web.post("/", take), web.get("/metrics", show)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner

    async def _start(self, program: str, configuration: dict[str, Any], *options: str) -> str:
        """Start a program of Prometheus; return the address on which it listens."""
        file = self._folder / f"{program}.yaml"
        file.write_text(yaml.safe_dump(configuration))
        storage = "storage.tsdb.path" if program == "prometheus" else "storage.path"
        daemon = Daemon(
            [
                self._program(program),
                f"--config.file={file}",
                f"--{storage}={self._folder / program}",
                "--web.listen-address=127.0.0.1:0",
                *options,
            ],
            self._folder / f"{program}.log",
        )
        self._daemons.append(daemon)
        return await daemon.logged(r'"Listening on" address=(\S+)')

    def _write_rules(self) -> None:
        (self._folder / "rules.yaml").write_text(rules_file(ALERTS, self._pace))

    def _routes(self) -> dict[str, Any]:
        host, port = self._web.addresses[0][:2]
        route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": EVERY}
        receiver = {"name": "test", "webhook_configs": [{"url": f"http://{host}:{port}/", "send_resolved": True}]}
        return {"route": {**route, "repeat_interval": "1h"}, "receivers": [receiver]}

    def _scrapes(self, alertmanager: str) -> dict[str, Any]:
        host, port = self._web.addresses[0][:2]
        tls = {"scheme": "https", "tls_config": {"ca_file": self._authority}} if self._authority else {}
        shown = {"authorization": {"credentials_file": str(self._token_file)}} if self._token_file else {}
        return {
            "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
            "rule_files": [str(self._folder / "rules.yaml")],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [
                {"job_name": job, **shown, **tls, "static_configs": [{"targets": targets}]}
                for job, targets in self._targets.items()
            ]
            + [{"job_name": "node", "static_configs": [{"targets": [f"{host}:{port}"]}]}],
        }


def _text_in(file: Path) -> str:
    return file.read_text() if file.exists() else ""
