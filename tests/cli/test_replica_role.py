"""`lmerge replica run` attaches in the role that its option or its environment gives."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cli_world import LMERGE, READY_S_MAX, Served, run

from lmerge.client import describe_merge
from lmerge.errors import UnknownMerge
from lmerge.wire.generated import lmerge_pb2 as pb


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("name", "options", "env", "role"),
    [
        ("option", ["--role", "observe"], {}, pb.ROLE_OBSERVE),
        ("variable", [], {"LMERGE_ROLE": "observe"}, pb.ROLE_OBSERVE),
        ("neither", [], {}, pb.ROLE_ACTIVE),
    ],
)
def test_a_replica_attaches_in_its_role(
    name: str, options: list[str], env: dict[str, str], role: int, served: Served
) -> None:
    command = [*LMERGE, "replica", "run", "conservative", "-s", served.target, "-m", name, "--last", "2013-01-01"]
    process = subprocess.Popen([*command, "--speed", "1", *options], env=os.environ | env, stderr=subprocess.PIPE)
    try:
        deadline, roles = time.monotonic() + READY_S_MAX, list[int]()
        while not roles:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            with suppress(UnknownMerge):
                roles = [found.role for found in describe_merge(served.target, name).inputs]
            os.sched_yield()
        assert roles == [role]
    finally:
        process.kill()
        process.communicate()


def test_an_unknown_role_is_refused(served: Served) -> None:
    ended = run("replica", "run", "conservative", "-s", served.target, "--role", "boss")
    assert ended.returncode == 2
    assert "'boss' is not one of 'active', 'observe'" in ended.stderr
