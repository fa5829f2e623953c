"""The election over a real API server: killed, frozen, cut off; the Lease deleted; several candidates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from kube_world import KubeServer, api_of, grant, make_namespace, until
from tcp_proxy import TcpProxy

from lmerge_controller.kubernetes.api import LEASES, Api
from lmerge_controller.kubernetes.election import Election, LeadershipLost
from lmerge_controller.kubernetes.lease_rules import LeaseTimes, term_of

TIMES = LeaseTimes(lease_s=1.5, renew_s=1.0, retry_s=0.2)
NAME = "lmerge-controller"


@dataclass
class Acts:
    """What leaders have done: (term, identity), and whether two ever led at one moment."""

    terms: list[tuple[int, str]] = field(default_factory=list)
    members: list[Election] = field(default_factory=list)
    overlaps: int = 0

    def check(self) -> None:
        self.overlaps += sum(member.term > 0 for member in self.members) > 1

    def leader(self) -> Election | None:
        self.check()
        return next((member for member in self.members if member.term), None)


@asynccontextmanager
async def member(
    api: Api, namespace: str, name: str, acts: Acts, floor: int = 0, version: str = "1.0"
) -> AsyncIterator[Election]:
    """Run a candidate that acts all the time while it leads."""

    async def lead(term: int) -> None:
        acts.terms.append((term, name))
        while True:
            election.guard()
            acts.check()
            await asyncio.sleep(0.005)

    async def highest() -> int:
        return max([floor, *(term for term, _ in acts.terms)])  # like the stamps of the objects on which a leader acted

    election = Election(api, namespace, NAME, name, lead=lead, floor=highest, times=TIMES, version=version)
    acts.members.append(election)
    running = asyncio.create_task(election.run())
    try:
        yield election
    finally:
        election.stop()
        await running
        acts.members.remove(election)


@asynccontextmanager
async def clients(kube: KubeServer, *ports: int | None) -> AsyncIterator[list[Api]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(await api_of(kube, port=port)) for port in ports]


async def test_one_of_three_leads_and_one_that_stops_hands_over_at_once(kube: KubeServer) -> None:
    acts = Acts()
    async with clients(kube, None) as (api,):
        space = await make_namespace(api, "elect-three")
        async with member(api, space, "a", acts), member(api, space, "b", acts), member(api, space, "c", acts):
            await until(acts.leader)
            first = acts.leader()
            assert first is not None
            first.stop()
            took = await until(lambda: len(acts.terms) == 2 and acts.leader())
            assert took < TIMES.lease_s
    assert [term for term, _ in acts.terms] == [1, 2]
    assert len({name for _, name in acts.terms}) == 2
    assert acts.overlaps == 0


async def test_the_same_candidate_leads_again_in_a_new_term(kube: KubeServer) -> None:
    acts = Acts()
    async with clients(kube, None) as (api,):
        space = await make_namespace(api, "elect-again")
        for _ in range(3):
            async with member(api, space, "a", acts):
                await until(acts.leader)
        lease = await api.get(LEASES, space, NAME)
    assert acts.terms == [(1, "a"), (2, "a"), (3, "a")]
    assert term_of(lease) == 3
    assert lease["spec"]["holderIdentity"] == ""


async def test_a_lease_that_was_deleted_ends_the_leadership_and_the_term_rises(kube: KubeServer) -> None:
    acts = Acts()
    async with clients(kube, None) as (api,):
        space = await make_namespace(api, "elect-deleted")
        async with member(api, space, "a", acts, floor=40), member(api, space, "b", acts, floor=40):
            await until(acts.leader)
            lease = await api.get(LEASES, space, NAME)
            await api.delete(LEASES, space, NAME, uid=lease["metadata"]["uid"])
            await until(lambda: len(acts.terms) == 2 and acts.leader())
    assert [term for term, _ in acts.terms] == [41, 42]
    assert acts.overlaps == 0


async def test_a_leader_that_is_cut_off_stops_before_another_leads(kube: KubeServer) -> None:
    acts = Acts()
    async with TcpProxy("127.0.0.1", kube.port) as proxy, clients(kube, proxy.port, None) as (cut, api):
        space = await make_namespace(api, "elect-cut")
        async with member(cut, space, "a", acts):
            await until(acts.leader)
            async with member(api, space, "b", acts):
                proxy.is_frozen = True
                await until(lambda: acts.members[0].term == 0)
                assert await until(lambda: acts.members[1].term) <= TIMES.lease_s
                proxy.is_frozen = False
                await until(lambda: acts.members[0].losses == 1)
    assert acts.terms[:2] == [(1, "a"), (2, "b")]
    assert acts.overlaps == 0


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_candidates_outlive_the_api_server(own_kube: KubeServer, fault: str) -> None:
    acts = Acts()
    async with clients(own_kube, None, None) as (one, two):
        space = await make_namespace(one, "elect-fault")
        async with member(one, space, "a", acts), member(two, space, "b", acts):
            await until(acts.leader)
            if fault == "killed":
                own_kube.kill_api_server()
            else:
                own_kube.freeze_api_server()
            await until(lambda: not any(each.term for each in acts.members))
            if fault == "killed":
                await asyncio.to_thread(own_kube.start_api_server)
            else:
                own_kube.thaw_api_server()
            await until(lambda: acts.leader() and len(acts.terms) >= 2, 30.0)
    numbers = [term for term, _ in acts.terms]
    assert numbers == sorted(set(numbers))
    assert acts.overlaps == 0


async def test_a_leader_that_fails_gives_the_lead_up(kube: KubeServer, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(term: int) -> None:
        raise ValueError(f"broken in {term}")

    async def floor() -> int:
        return 0

    async with clients(kube, None) as (api,):
        space = await make_namespace(api, "elect-fails")
        election = Election(api, space, NAME, "a", lead=fail, floor=floor, times=TIMES)
        running = asyncio.create_task(election.run())
        await until(lambda: election.losses)
        with pytest.raises(LeadershipLost):
            election.guard()
        election.stop()
        await running
    assert "failed as the leader of term 1" in caplog.text


async def test_a_right_that_is_missing_is_named(kube: KubeServer, caplog: pytest.LogCaptureFixture) -> None:
    async with clients(kube, None) as (admin,):
        space = await make_namespace(admin, "elect-narrow")
        await grant(admin, space, [{"apiGroups": [LEASES.group], "resources": ["leases"], "verbs": ["get"]}])
        acts = Acts()
        async with await api_of(kube, "narrow-token") as narrow, member(narrow, space, "a", acts):
            await until(lambda: "create leases" in caplog.text)
    assert acts.terms == []
    assert caplog.text.count("create leases") == 1, "a problem that lasts is logged once"


async def test_of_two_versions_one_leads_and_the_other_names_it(
    kube: KubeServer, caplog: pytest.LogCaptureFixture
) -> None:
    acts = Acts()
    async with clients(kube, None) as (api,):
        space = await make_namespace(api, "elect-versions")
        async with member(api, space, "old", acts, version="1.0"):
            await until(acts.leader)
            async with member(api, space, "new", acts, version="2.0"):
                await until(lambda: "version 1.0 leads, and new has version 2.0" in caplog.text)
                lease = await api.get(LEASES, space, NAME)
                assert lease["metadata"]["annotations"]["lmerge.dev/version"] == "1.0"
                acts.members[0].stop()
                await until(lambda: acts.members[1].term)
                lease = await api.get(LEASES, space, NAME)
    assert lease["metadata"]["annotations"]["lmerge.dev/version"] == "2.0"
    assert acts.terms == [(1, "old"), (2, "new")]
    assert acts.overlaps == 0
    assert caplog.text.count("version 1.0 leads") == 1
