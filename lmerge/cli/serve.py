"""``lmerge serve``: the merge server in the foreground."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from lmerge.addresses import DEFAULT_PORT
from lmerge.cli.arguments import (
    DEFAULT_HTTP_PORT,
    AlgorithmChoice,
    AlgorithmOption,
    AllowDowngradeOption,
    ClosingOption,
    EngineChoice,
    EngineOption,
    PolicyOption,
)
from lmerge.cli.connection import secured_server
from lmerge.cli.serve_options import comparing, keeping, on_cores, staging
from lmerge.errors import UsageError
from lmerge.files import PUBLIC_FILE, replace


class LogFormat(str, Enum):
    """Values of ``--log-format``."""

    TEXT = "text"
    JSON = "json"


@on_cores
@keeping
@staging
@comparing
@secured_server
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback it needs certificates and tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="gRPC port; 0: any free one.")] = DEFAULT_PORT,
    http_port: Annotated[
        int, typer.Option(help="Port of /status/, /metrics, /healthz, /readyz; 0: any free one; -1: none.")
    ] = DEFAULT_HTTP_PORT,
    merge: Annotated[list[str] | None, typer.Option(help="A merge to create at the start; repeatable.")] = None,
    no_create: Annotated[bool, typer.Option("--no-create", help="Publishers cannot create merges.")] = False,
    algorithm: AlgorithmOption = AlgorithmChoice.AUTO,
    policy: PolicyOption = "lazy",
    closing: ClosingOption = "all",
    engine: EngineOption = EngineChoice.AUTO,
    allow_downgrade: AllowDowngradeOption = False,
    feedback: Annotated[
        int | None, typer.Option(metavar="LAG", min=0, help="Send feedback to inputs that lag by more: fast-forward.")
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="FILE", help="Record what is merged; {merge} in FILE: a file for each merge.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write the bound ports to this file as JSON when the server is ready.")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Log lines for people or machines.")] = LogFormat.TEXT,
    *,
    running: Any,
    kept: Any,
    staged: Any,
    compared: Any,
    security: Any,
) -> None:
    """Run a merge server. Ctrl-C or SIGTERM drains it; a second one ends it at once.

    Example: lmerge serve --merge flights --policy eager
    """
    from lmerge.service.settings import Settings

    _log_to_standard_error(log_format)
    settings = Settings(
        host=host,
        port=port,
        http_port=None if http_port == -1 else http_port,
        algorithm=algorithm.value,
        policy=policy,
        closing=closing,
        allow_downgrade=allow_downgrade,
        allow_create=not no_create,
        feedback_lag=feedback,
        merges=tuple(merge or ()),
        record_path=record,
        engine=engine.value,
        **(running | kept | staged | compared | security),
    )
    if ready_file is not None and not ready_file.parent.is_dir():
        raise UsageError(f"cannot write the ready file {str(ready_file)!r}: there is no such folder")
    asyncio.run(_serve(settings, ready_file))


def _log_to_standard_error(log_format: LogFormat) -> None:
    from lmerge.service.log import JsonFormatter

    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else text)
    logging.raiseExceptions = False  # a log that cannot be written must not fill standard error with tracebacks
    logging.basicConfig(level=logging.INFO, handlers=[handler])


async def _serve(settings: object, ready_file: Path | None) -> None:
    from lmerge.service.server import DRAIN_S, Server
    from lmerge.service.settings import Settings

    assert isinstance(settings, Settings)
    server = Server(settings)
    await server.start()
    gc.collect()
    gc.freeze()  # the loaded modules stay: a collection that scans them takes 0.1 s and pauses every merge
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)  # the second signal ends it at once
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    if ready_file is not None:
        ports = {"port": server.port, "http_port": server.http_port, "pid": os.getpid()}
        try:  # a process that waits for the file never reads half of it
            replace(ready_file, (json.dumps(ports) + "\n").encode(), sync=False, mode=PUBLIC_FILE)
        except OSError as problem:
            await server.stop(0.0)
            raise UsageError(f"cannot write the ready file {str(ready_file)!r}: {problem.strerror}") from None
    stopped = asyncio.ensure_future(stop.wait())
    closed = asyncio.ensure_future(server.wait_closed())
    await asyncio.wait((stopped, closed), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    await server.stop(DRAIN_S)
    await closed
