"""The states of an input, the losses a merge survives, and fast-forward (II, V.B, V.D): pure, then on a real server."""

from __future__ import annotations

import grpc
import pytest
from service_world import MERGE, World, ins, stable

from lmerge.core.elements import INF, NEG_INF, Event
from lmerge.core.inputs import InputRole, JoinState
from lmerge.core.merge import InputStatus
from lmerge.service.merge.lifecycle import InputLifecycle, to_fast_forward
from lmerge.wire.generated import lmerge_pb2 as pb


def status(
    name: str = "a",
    state: str = "joined",
    stable_point: int = 0,
    join_at: int | None = None,
    role: InputRole = InputRole.ACTIVE,
) -> InputStatus:
    return InputStatus(name, 1, (), role, JoinState(state), join_at, stable_point, 0, 0, 0, 0, 0)


class TestTheStateOfAnInput:
    def test_it_is_joining_then_joined_then_leaving(self) -> None:
        life = InputLifecycle()
        assert life.state(status(state="joining")) == "joining"
        assert life.state(status()) == "joined"
        life.leaving = True
        assert life.state(status()) == "leaving"

    def test_an_observer_observes(self) -> None:
        assert InputLifecycle().state(status(role=InputRole.OBSERVE)) == "observing"

    def test_it_skips_until_its_own_stable_point_has_come_so_far(self) -> None:
        life = InputLifecycle(skipped_until=10)
        assert life.state(status(stable_point=9)) == "skipping"
        assert life.state(status(stable_point=10)) == "joined"

    def test_a_joining_input_that_skips_is_still_joining(self) -> None:
        assert InputLifecycle(skipped_until=10).state(status(state="joining")) == "joining"

    @pytest.mark.parametrize(("until", "may"), [(8, True), (9, False)])
    def test_it_may_skip_what_the_merge_has_passed(self, until: int, may: bool) -> None:
        assert InputLifecycle().may_skip(until, status(), stable_point=8) is may

    def test_a_joining_one_may_skip_what_ends_before_its_join_at(self) -> None:
        joining = status(state="joining", join_at=20)
        assert InputLifecycle().may_skip(20, joining, stable_point=8)
        assert not InputLifecycle().may_skip(21, joining, stable_point=8)

    def test_one_that_has_joined_is_counted_on_whatever_its_join_at_was(self) -> None:
        assert not InputLifecycle().may_skip(20, status(join_at=20), stable_point=8)


class TestWhichInputsGetFeedback:
    def test_those_that_lag_more_than_the_bound(self) -> None:
        lives = [(status("a", stable_point=89), InputLifecycle()), (status("b", stable_point=90), InputLifecycle())]
        assert to_fast_forward(lives, 100, 10) == ["a"]

    def test_one_that_has_delivered_no_stable_lags(self) -> None:
        assert to_fast_forward([(status(stable_point=NEG_INF), InputLifecycle())], 100, 10) == ["a"]

    def test_no_input_gets_the_same_feedback_twice(self) -> None:
        lagging = status(stable_point=0)
        assert not to_fast_forward([(lagging, InputLifecycle(fast_forwarded_to=100))], 100, 10)
        assert to_fast_forward([(lagging, InputLifecycle(fast_forwarded_to=99))], 100, 10) == ["a"]

    def test_neither_observers_nor_leaving_ones(self) -> None:
        lives = [(status(role=InputRole.OBSERVE), InputLifecycle()), (status("b"), InputLifecycle(leaving=True))]
        assert not to_fast_forward(lives, 100, 10)

    @pytest.mark.parametrize("stable_point", [NEG_INF, INF])
    def test_none_before_the_first_stable_and_after_the_last(self, stable_point: int) -> None:
        assert not to_fast_forward([(status(stable_point=NEG_INF), InputLifecycle())], stable_point, 10)


async def test_a_skipping_input_is_not_redundant_until_it_has_come_so_far() -> None:
    async with World() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(10))
        await b.merged(stable(5))
        assert (await world.describe()).survives_losses == 1
        await b.write(skip=pb.PublishRequest.Skip(until=10))
        await b.merged(ins("y", 12, 15))
        described = await world.describe()
        assert (described.inputs[1].state, described.inputs[1].skipped_until) == ("skipping", 10)
        assert described.survives_losses == 0
        await b.merged(stable(10))
        described = await world.describe()
        assert (described.inputs[1].state, described.survives_losses) == ("joined", 1)


async def test_a_skip_beyond_the_merge_is_refused_and_disturbs_no_other_input() -> None:
    async with World(merges=(MERGE,)) as world:
        reader = await world.subscriber()
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(10))
        await b.write(skip=pb.PublishRequest.Skip(until=11))
        ending = await b.ending()
        assert ending.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "'b'" in ending.details
        assert "skip to 11" in ending.details
        assert "only at 10" in ending.details
        await a.merged(stable(20))
        assert await reader.until_stable(20) == [Event(1, b"x", 5)]


async def test_a_lagging_input_gets_the_stable_point_of_the_merge() -> None:
    async with World(feedback_lag=5, feedback_interval_s=0.0) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(10))
        await world.described(lambda d: d.inputs[1].fast_forwarded_to == 10)
        await b.merged(ins("x", 1, 5), stable(2))
        assert b.fast_forwards == [10]
        described = await world.describe()
        assert described.inputs[1].fast_forwarded_to == 10
        assert not described.inputs[0].HasField("fast_forwarded_to")


async def test_an_input_that_attaches_behind_a_stalled_merge_gets_feedback() -> None:
    async with World(feedback_lag=5, feedback_interval_s=0.0) as world:
        a = await world.publisher("a")
        await a.merged(ins("x", 1, 5), stable(10))
        await world.publisher("b")
        await world.described(lambda d: d.inputs[1].fast_forwarded_to == 10)


async def test_without_a_bound_no_input_gets_feedback() -> None:
    async with World(feedback_interval_s=0.0) as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(ins("x", 1, 5), stable(10))
        await b.merged(ins("x", 1, 5), stable(2))
        await b.acked(stable_point=10)
        assert not b.fast_forwards
        assert not any(i.HasField("fast_forwarded_to") for i in (await world.describe()).inputs)


async def test_an_input_that_leaves_with_batches_to_merge_counts_no_more() -> None:
    async with World() as world:
        a, b = await world.publisher("a"), await world.publisher("b")
        await a.merged(stable(1))
        await b.merged(stable(1))
        hub = world.server._registry.hubs[MERGE]
        session = hub.state.inputs["b"].session
        hub.inputs.leaving(session)
        described = await world.describe()
        assert ([i.state for i in described.inputs], described.survives_losses) == (["joined", "leaving"], 0)
