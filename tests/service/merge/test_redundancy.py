"""The losses a merge survives: only inputs that could carry the output count, and each other one has a reason."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from service_world import World, ins, stable

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Insert, Stable
from lmerge.core.inputs import InputRole, JoinState
from lmerge.core.merge import InputStatus, Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.errors import MergeReset, Unavailable
from lmerge.service.merge.attachments import AttachRequest
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.redundancy import Redundancy
from lmerge.service.settings import Settings
from lmerge.testing.oracle import Follow
from lmerge.testing.sim.loop import later, run_virtual
from lmerge.testing.streams.merge_inputs import present, reference

LAG_S = 30.0


def status(name: str = "a", stable_point: int = 0, **more: object) -> InputStatus:
    known: dict[str, Any] = {"state": "joined", "role": InputRole.ACTIVE, "join_at": None, "inserts": 1} | more
    return InputStatus(
        name,
        1,
        (),
        known.pop("role"),
        JoinState(known.pop("state")),
        known.pop("join_at"),
        stable_point,
        known.pop("inserts"),
        0,
        0,
        0,
        0,
        **known,
    )


def at(*moments: tuple[float, int]) -> Redundancy:
    """Return the redundancy of an output that reached these stable points at these times."""
    redundancy = Redundancy(LAG_S)
    for now_s, point in moments:
        redundancy.note(now_s, point)
    return redundancy


@pytest.mark.parametrize(
    ("lacking", "life", "reason"),
    [
        (status(stable_point=NEG_INF, inserts=0), InputLifecycle(), "it has delivered nothing"),
        (status(stable_point=NEG_INF), InputLifecycle(), "it has delivered no stable point"),
        (status(state="joining"), InputLifecycle(), "it is joining"),
        (status(stable_point=100, role=InputRole.OBSERVE), InputLifecycle(), "it only observes"),
        (status(stable_point=100), InputLifecycle(leaving=True), "it is leaving"),
        (status(stable_point=100), InputLifecycle(skipped_until=101), "it is skipping"),
        (status(stable_point=10**12, held=True), InputLifecycle(), "its stable point is held"),
        (status(stable_point=100, excused=True), InputLifecycle(), "it was excused"),
        (status(stable_point=99), InputLifecycle(), "it lags: it is at 99, and the output was at 100 already 30 s ago"),
    ],
)
def test_inputs_that_cannot_carry_the_output_do_not_count_with_the_reason(
    lacking: InputStatus, life: InputLifecycle, reason: str
) -> None:
    redundancy = at((0.0, 100))
    lives = [(status("x", 100), InputLifecycle()), (status("y", 100), InputLifecycle()), (lacking, life)]
    assert redundancy.lacks(lacking, life, LAG_S).startswith(reason)
    assert redundancy.survives(lives, LAG_S) == 1


@pytest.mark.parametrize("count", [0, 1])
def test_it_is_never_below_zero(count: int) -> None:
    assert at((0.0, 0)).survives([(status(), InputLifecycle())] * count, LAG_S) == 0


def test_an_input_has_the_lag_to_follow() -> None:
    redundancy = at((0.0, 10), (100.0, 20), (110.0, 30))
    assert [redundancy.reached(now_s) for now_s in (29.0, 30.0, 129.0, 130.0, 139.0, 140.0)] == [
        NEG_INF,
        10,
        10,
        20,
        20,
        30,
    ]


def test_before_the_first_stable_any_element_counts() -> None:
    assert not at().lacks(status(stable_point=NEG_INF), InputLifecycle(), 0.0)
    assert at().lacks(status(stable_point=NEG_INF, inserts=0), InputLifecycle(), 0.0)


def test_the_past_takes_a_bounded_room() -> None:
    redundancy = Redundancy(LAG_S)
    for turn in range(100_000):
        redundancy.note(turn * 0.002, turn)
    assert len(redundancy._past) <= 20
    assert abs(redundancy.reached(200.0) * 0.002 - (200.0 - LAG_S)) <= LAG_S / 16 + 0.01


def survivors_carry(seed: int) -> int:
    """Run inputs at random paces; some deliver nothing, and some stop for good. At a random moment lose any number of
    them up to ``survives_losses``. The rest must bring the output to its end, with the same events."""
    random = Random(seed)
    events = reference(random, 30)
    names = [f"i{number}" for number in range(random.randint(1, 6))]
    streams = {name: present(random, events) for name in names}
    for name in names[1:]:
        fate = random.random()
        cut = 0 if fate < 0.25 else random.randrange(len(streams[name])) if fate < 0.5 else len(streams[name])
        streams[name] = streams[name][:cut]
    ends = {name: len(streams[name]) == 0 or streams[name][-1] != Stable(INF) for name in names}
    follow = Follow(Merge(MergeConfig("r3", closing="any")), compatible=False)
    redundancy = Redundancy(LAG_S)
    for name in names:
        follow.attach(name, ("key",))
    now_s = 0.0
    for _ in range(random.randint(0, 60)):
        name = random.choice(names)
        if Stable(INF) in streams[name][:3]:
            break
        step_elements, streams[name] = streams[name][:3], streams[name][3:]
        if step_elements:
            follow.merge.apply(name, Batch.of(step_elements))
        now_s += 5.0
        redundancy.note(now_s, follow.merge.stable_point)
    now_s += LAG_S + 1  # those that have stopped for good have been silent for the lag
    statuses = follow.merge.inputs()
    survivable = redundancy.survives([(s, InputLifecycle()) for s in statuses], now_s)
    carriers = [s.name for s in statuses if not redundancy.lacks(s, InputLifecycle(), now_s)]
    assert survivable == max(0, len(carriers) - 1)
    lost = random.sample(names, min(survivable, len(names)))
    left = [name for name in carriers if name not in lost]
    if carriers:
        assert left, "the last one that could carry the output was among those that may be lost"
    if any(ends[name] for name in left):
        return 0  # it carries the output now and stops later, which cannot be predicted
    for name in lost:
        follow.merge.detach(name)
    for name in left:
        follow.merge.apply(name, Batch.of(streams[name]))
    if left:
        assert follow.merge.stable_point == INF
    return survivable


def test_any_so_many_inputs_can_be_lost_and_the_output_comes_to_its_end() -> None:
    assert sum(survivors_carry(seed) > 0 for seed in range(400)) > 20


async def test_sixty_three_that_have_delivered_nothing_are_no_redundancy() -> None:
    async with World() as world:
        a = await world.publisher("a")
        mute = [await world.publisher(f"mute{number}") for number in range(7)]
        await a.merged(ins("x", 1, 5), stable(10))
        described = await world.describe()
        assert described.survives_losses == 0
        assert [i.lacks for i in described.inputs] == ["", *["it has delivered nothing"] * 7]
        await mute[0].merged(ins("x", 1, 5), stable(10))
        assert (await world.describe()).survives_losses == 1


class EndedSession:
    """A session that keeps the error with which it ends."""

    error: Exception | None = None

    def end(self, error: Exception, detached: object = None) -> None:
        self.error = error

    def acknowledge(self, *_: object) -> None:
        pass

    fast_forward = change_role = acknowledge


async def survivors_of_a_new_epoch() -> int:
    """Let two inputs reach a far stable, reset after the lag, and let both deliver below that stable."""
    hub = Hub("flights", Settings(http_port=None, engine="python"))
    hub.start(lambda bug: None)
    for epoch, point in ((0, 10**12), (7, 10)):
        if epoch:
            await later(2 * LAG_S)
            await hub.task.settled(lambda: hub.beginnings.reset(7, MergeReset("begun"), Unavailable("again")))
        for name in ("a", "b"):
            session = EndedSession()
            request = AttachRequest(name, None, frozenset({"key"}), None, InputRole.ACTIVE, None)
            await hub.inputs.attach(session, request)
            await hub.put(session, 1, Batch.of([Insert(b"x", 1, 5), Stable(point)]), 64, received_s=0.0)
    await hub.task.settled(lambda: None)
    survives = hub.state.survives_losses
    await hub.close()
    return survives


def test_a_merge_that_begins_anew_has_no_past() -> None:
    assert run_virtual(survivors_of_a_new_epoch()) == 1
