"""Servers that refuse the controller: each reason is in what is observed, and so in the condition ServerUnreachable."""

from __future__ import annotations

import datetime
from pathlib import Path

from certificates import Authority
from secure_world import FORGED, SecureWorld
from service_world import MERGE

from lmerge.client.connection import channels
from lmerge.client.connection.security import Security
from lmerge_controller.observe.server_calls import ServerCalls

DAY = datetime.timedelta(days=1)


async def problem_at(world: SecureWorld, security: Security | None) -> str:
    """Return why the server of a world cannot be observed with these credentials; empty if it can."""
    async with ServerCalls(security, timeout_s=10.0) as servers:
        (found,) = await servers.observe((world.target,), MERGE)
    return found.problem


async def test_a_token_that_is_missing_wrong_or_too_narrow_is_named(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        narrow = world.token("narrow", ["status"], ["another"], [])
        ca = world.authority.path
        assert await problem_at(world, Security(ca=ca, token=world.keeper)) == ""
        assert "no credentials came" in await problem_at(world, Security(ca=ca))
        assert "the token is not in the access file" in await problem_at(world, Security(ca=ca, token=FORGED))
        assert "narrow" in await problem_at(world, Security(ca=ca, token=narrow))


async def test_a_server_whose_certificate_is_not_trusted_is_named(tmp_path: Path, client_transport: str) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with SecureWorld(tmp_path) as world:
        found = await problem_at(world, Security(ca=other.path, token=world.keeper))
    assert {channels.GRPC: "certificate signature failure", channels.NATIVE: "BadSignature"}[client_transport] in found


async def test_a_server_whose_certificate_has_expired_is_named(tmp_path: Path, client_transport: str) -> None:
    world = SecureWorld(tmp_path)
    world.authority.issue("server", hosts=("localhost",), age=2 * DAY, lifetime=DAY)
    async with world:
        found = await problem_at(world, Security(ca=world.authority.path, token=world.keeper))
    texts = {channels.GRPC: "certificate has expired", channels.NATIVE: "certificate expired"}
    assert texts[client_transport] in found
