"""``lmerge certify``, ``cutover``, ``detach`` and ``release`` against a server in the same process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from typer.testing import CliRunner, Result

from lmerge.cli.main import app
from lmerge.client import Publisher
from lmerge.client.admin import cutover as cut_over
from lmerge.errors import PermissionDenied
from lmerge.service.server import Server
from lmerge.service.settings import Settings

INTERVAL = 10


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@contextmanager
def served() -> Iterator[str]:
    """A server in a thread of its own."""
    started, ports, stops = threading.Event(), [], []

    async def serve() -> None:
        server, stop = Server(Settings(http_port=None, certify_interval=INTERVAL)), asyncio.Event()
        await server.start()
        ports.append(server.port)
        stops.append((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await server.stop(1.0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    yield f"127.0.0.1:{ports[0]}"
    loop, stop = stops[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)


@pytest.fixture
def target() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture
def targets() -> Iterator[list[str]]:
    with served() as one, served() as other:
        yield [one, other]


def publish_event(publisher: Publisher, start: int, payload: str = "A") -> None:
    publisher.insert(payload, start, start + 5)
    publisher.stable(start + INTERVAL)
    publisher.flush()


def test_certify_shows_the_event_that_one_replica_lacks(target: str) -> None:
    with Publisher(target, "m", "a") as a, Publisher(target, "m", "b") as b:
        publish_event(a, 0)
        publish_event(b, 0)
        result = run("certify", "m", "--server", target)
        assert result.exit_code == 0, result.output
        assert "a equal over 1 interval" in result.output
        assert "no differences" in result.output
        publish_event(a, 10, "QF12")
        b.stable(20)
        b.flush()
        result = run("certify", "m", "--server", target)
        assert result.exit_code == 1
        assert "they differ in [10, 20): a 1 events, b 0 events" in result.output
        assert "QF12" in result.output
        report = json.loads(run("certify", "m", "--json", "--server", target).output)
        assert report["divergent"][0]["differences"][0]["absent"] == ["b"]


def test_cutover_prints_its_steps_and_its_exit_code_is_its_outcome(target: str) -> None:
    gone = pytest.raises(PermissionDenied, match="v2 has taken its place")
    with Publisher(target, "m", "v2") as v2, gone, Publisher(target, "m", "v1") as v1:
        for start in (0, 10):
            publish_event(v1, start)
            publish_event(v2, start)
        result = run("cutover", "m", "--from", "v1", "--to", "absent", "--timeout", "0.05", "--server", target)
        assert result.exit_code == 1
        assert "rolled-back  not done within 0.05 s; nothing has changed" in result.output
        result = run("cutover", "m", "--from", "v1", "--to", "v2", "--intervals", "2", "--server", target)
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[-1].startswith("done         v2 has taken over from v1")


def roles(target: str) -> dict[str, str]:
    """Return the roles of the inputs at a server."""
    inputs = json.loads(run("status", "m", "--json", "--server", target).output)["inputs"]
    return {found["replica"]: found["role"] for found in inputs}


def test_a_cutover_at_two_servers_ends_the_old_replica_when_the_new_one_counts_at_both(targets: list[str]) -> None:
    gone = pytest.raises(PermissionDenied, match="v2 has taken its place")
    with Publisher(targets, "m", "v2", role="observe") as v2, gone, Publisher(targets, "m", "v1") as v1:
        for start in (0, 10, 20):
            publish_event(v1, start)
            publish_event(v2, start)
        command = ("cutover", "m", "--from", "v1", "--to", "v2", "--intervals", "2", "--server", ",".join(targets))
        result = run(*command)
        assert result.exit_code == 0, result.output
        lines = result.output.splitlines()
        assert f"promoted     {targets[0]}: v2 counts beside v1" in lines
        assert lines[-1].startswith(f"done         {targets[1]}: v2 has taken over from v1")
        assert not any(line.startswith("leaving") and targets[0] in line for line in lines)
        assert roles(targets[1]) == {"v2": "ROLE_ACTIVE"}
        assert roles(targets[0])["v2"] == "ROLE_ACTIVE"  # v1 leaves it by itself


def test_a_cutover_that_one_server_rolls_back_is_undone_at_those_before_it(targets: list[str]) -> None:
    one, other = targets
    gone = pytest.raises(PermissionDenied, match="wrong prices")
    with (
        Publisher(targets, "m", "v1") as v1,
        Publisher(one, "m", "v2", role="observe") as v2,
        gone,
        Publisher(other, "m", "v2", role="observe") as v2_other,
    ):
        for start in (0, 10, 20):
            for publisher in (v1, v2, v2_other):
                publish_event(publisher, start)
        run("detach", "m", "v2", "--quarantine", "--reason", "wrong prices", "--server", other)
        command = ("cutover", "m", "--from", "v1", "--to", "v2", "--intervals", "2", "--server", ",".join(targets))
        result = run(*command)
        assert result.exit_code == 1, result.output
        assert f"promoted     {one}: v2 counts beside v1" in result.output
        last = result.output.splitlines()[-1]
        assert last.startswith(f"rolled-back  {other}: v2 is quarantined: wrong prices")
        assert last.endswith(f"v2 observes again at {one}")
        assert roles(other) == {"v1": "ROLE_ACTIVE"}


def test_a_cutover_that_is_left_while_the_old_replica_leaves_keeps_the_new_one(targets: list[str]) -> None:
    """The last server may have ended the old replica before its caller learns of it."""
    may_be_gone = suppress(PermissionDenied)
    with Publisher(targets, "m", "v2", role="observe") as v2, may_be_gone, Publisher(targets, "m", "v1") as v1:
        for start in (0, 10, 20):
            publish_event(v1, start)
            publish_event(v2, start)
        steps = cut_over(targets, "m", "v1", "v2", intervals=2)
        assert next(step.words for step in steps if step.stage == "leaving").startswith(targets[1])
        steps.close()
        assert roles(targets[0])["v2"] == "ROLE_ACTIVE"


def test_detach_and_release_print_what_they_have_done(target: str) -> None:
    gone = pytest.raises(PermissionDenied, match="wrong prices")
    with Publisher(target, "m", "a") as a, gone, Publisher(target, "m", "b"):
        publish_event(a, 0)
        result = run("detach", "m", "b", "--quarantine", "--reason", "wrong prices", "--server", target)
        assert result.output == "b is detached from m and quarantined\n"
        result = run("release", "m", "b", "--server", target)
        assert result.output == "m: b may attach again\n"
        result = run("release", "m", "b", "--server", target)
        assert "it is not quarantined" in str(result.exception)
