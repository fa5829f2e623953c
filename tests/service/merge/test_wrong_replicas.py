"""The promises of docs/divergence.md as an oracle: wrong replicas of every kind, under every policy, with losses.

One input is wrong, the others are right; each delivers in random slices. The policy's promise is checked after every
step. The merge, its comparison and its gate are the server's; only the network is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element, Event, Insert, Stable
from lmerge.core.inputs import InputRole
from lmerge.core.merge import InputStatus, Outcome
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.service.merge.divergence_policy import Certifier
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.settings import Settings
from lmerge.testing.streams.merge_inputs import present, reference

INTERVAL = 10
LEAD = 40
FAR = 10**12
KINDS = ("ahead", "payload", "lost", "end", "extra")

pytestmark = pytest.mark.usefixtures("engine")


class PolicySession:
    """A merge, and what the hub does around it. ``wrong``: the name of the wrong input. It is attached from the
    beginning, or later if it ``comes_late``.
    """

    def __init__(
        self, seed: int, divergence: str, kind: str, good: int, *, comes_late: bool = False, **settings: object
    ) -> None:
        self.random = random = Random(f"{seed} {divergence} {kind} {good}")
        self.events = [Event(vs, p, min(ve, vs + 25)) for vs, p, ve in reference(random, 40)]
        chosen: dict[str, Any] = {"divergence": divergence, "certify_interval": INTERVAL, "closing": "any"} | settings
        known = Settings(**chosen)
        self.merge = known.new_merge()
        self.certifier = Certifier("m", self.merge, known)
        self.output = Tdb("output")
        self.names = [*(f"good{number}" for number in range(good)), "wrong"]
        self.random.shuffle(self.names)
        self.streams: dict[str, list[Element]] = {n: present(random, self.events) for n in self.names}
        self.streams["wrong"] = ruined(random, self.events, kind)
        self.tdbs = {name: Tdb(name) for name in self.names}
        self.disputed: int | None = None  # the start of the first interval in which two attached inputs differed
        for name in self.names:
            if not (comes_late and name == "wrong"):
                self.attach(name)

    def attach(self, name: str) -> None:
        self._absorb(self.merge.attach(name, ("key",)))
        self.certifier.attached(name, 1, InputRole.ACTIVE, None)

    @property
    def alive(self) -> list[str]:
        return [status.name for status in self.merge.inputs()]

    def lives(self) -> list[tuple[InputStatus, InputLifecycle]]:
        return [(status, InputLifecycle()) for status in self.merge.inputs()]

    def deliver(self, name: str, elements: Sequence[Element]) -> None:
        for element in elements:
            try:
                self.tdbs[name].apply(element)
            except InputViolation:
                break
        if self.merge.is_attached(name):
            self._absorb(self.certifier.apply(name, Batch.of(elements), 1))
        self._note_dispute()
        self.settle()

    def lose(self, name: str) -> None:
        self.streams[name] = []
        if self.merge.is_attached(name):
            self._absorb(self.merge.detach(name, "left"))
            self.settle()

    def settle(self) -> None:
        for name, expulsion in self.certifier.settle(self.lives):
            self._absorb(self.merge.detach(name, expulsion.reason, expulsion.cause))
        has_joined = True
        while has_joined:
            outcomes = [give() for give in self.certifier.releases(self.lives)]
            for outcome in outcomes:
                self._absorb(outcome)
            has_joined = any(outcome.joined for outcome in outcomes)
        self.certifier.wait_for_late(self.lives)
        if self.certifier.is_due:
            self.settle()

    def step(self) -> bool:
        """Deliver one slice of one input that is not far ahead of the slowest. False: all is delivered."""
        left = [name for name in self.alive if self.streams[name]]
        if not left:
            return False
        right = [name for name in left if name != "wrong"]
        low = min((self.tdbs[name].stable_point for name in right), default=NEG_INF)
        near = [name for name in left if name == "wrong" or self.tdbs[name].stable_point - low <= LEAD // 2]
        name = self.random.choice([*near, *[n for n in right if self.tdbs[n].stable_point == low]])
        count = self.random.randint(1, 4)
        slice_, self.streams[name] = self.streams[name][:count], self.streams[name][count:]
        self.deliver(name, slice_)
        return True

    def _absorb(self, outcome: Outcome) -> None:
        self.output.apply_batch(outcome.batch)
        for gone in outcome.detached:
            self.certifier.gone(gone)

    def _note_dispute(self) -> None:
        """Note the interval that two attached inputs have completed, if they differ in its events or starts."""
        alive = [self.tdbs[name] for name in self.alive]
        for start in range(0, 200, INTERVAL):
            done = [tdb for tdb in alive if tdb.stable_point >= start + INTERVAL]
            if len({tuple(within(tdb, start)) for tdb in done}) > 1:
                self.disputed = start if self.disputed is None else min(self.disputed, start)
                return


def within(tdb: Tdb, start: int) -> list[Event]:
    end = start + INTERVAL
    ends = [e for e in tdb.events() if start <= e.ve < end]
    begins = [Event(e.vs, e.payload, 0) for e in tdb.events() if start <= e.vs < end]
    return [*ends, Event(0, b"", 0), *begins]


def ruined(random: Random, events: list[Event], kind: str) -> list[Element]:
    """Return the stream of a wrong replica."""
    if kind == "ahead":
        stream = [e for e in present(random, events)[: random.randrange(1, 30)] if e != Stable(INF)]
        return [*stream, Stable(FAR)]
    at = random.randrange(len(events))
    vs, payload, ve = events[at]
    changed = {
        "payload": [Event(vs, b"wrong", ve)],
        "lost": [],
        "end": [Event(vs, payload, ve + random.randint(1, 9))],
        "extra": [events[at], Event(vs, b"made up", ve)],
    }[kind]
    return present(random, sorted([*events[:at], *changed, *events[at + 1 :]]))


def hurry(session: PolicySession) -> None:
    """Deliver the wrong input first: the worst order."""
    wrong, session.streams["wrong"] = session.streams["wrong"], []
    session.deliver("wrong", wrong)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["majority", "quarantine"])
async def test_a_minority_that_is_wrong_changes_nothing(
    policy: str, kind: str, seeds_of: Callable[[int, int], range]
) -> None:
    """Also if one of the right inputs is lost, as long as the remaining ones are more than half."""
    for seed in seeds_of(12, 2):
        session = PolicySession(seed, policy, kind, good=3)
        dies_at, steps = session.random.randint(0, 40), 0
        if session.random.random() < 0.5:
            hurry(session)
        while session.step():
            steps += 1
            if steps == dies_at:
                session.lose(session.random.choice([n for n in session.names if n != "wrong"]))
        assert session.output.events() == session.events, (seed, policy, kind)
        assert session.output.stable_point == INF


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["majority", "quarantine", "hold"])
async def test_one_that_comes_late_changes_nothing_that_was_agreed_on_and_waits(
    policy: str, kind: str, seeds_of: Callable[[int, int], range]
) -> None:
    """Two have delivered more than the third, perhaps all. What they agreed on is not frozen: the end waits for the
    third, or the policy's lag has not passed.
    """
    for seed in seeds_of(10, 2):
        more = {"policy": f"lazy+lag:{3 * INTERVAL}"} if seed % 3 == 0 else {}
        session = PolicySession(seed, policy, kind, good=3, comes_late=True, closing="all", **more)
        fast = [name for name in session.alive if name != "good0"]
        for name in fast:
            count = len(session.streams[name]) if seed % 4 else session.random.randrange(20, 60)
            elements, session.streams[name] = session.streams[name][:count], session.streams[name][count:]
            session.deliver(name, elements)
        session.attach("wrong")
        if seed % 5:  # the end of one alone freezes nothing
            del session.streams["wrong"][-session.random.randrange(1, 30) :]
        hurry(session)
        while session.step():
            pass
        session.lose("wrong")
        assert session.output.events() == session.events, (seed, policy, kind)
        assert session.output.stable_point == INF


@pytest.mark.parametrize("policy", ["none", "alarm"])
async def test_with_a_bound_of_the_lead_a_stable_far_ahead_ruins_nothing(policy: str) -> None:
    for seed in range(25):
        session = PolicySession(seed, policy, "ahead", good=2, lead_max=LEAD)
        if seed % 2:
            hurry(session)
        while session.step():
            right = max(session.tdbs[name].stable_point for name in session.names if name != "wrong")
            assert session.output.stable_point <= max(NEG_INF, right + LEAD)
        assert session.output.events() == session.events, (seed, policy)


async def test_without_it_alarm_is_only_an_alarm() -> None:
    """The control: without protection the damage does happen."""
    ruined_ones = 0
    for seed in range(10):
        session = PolicySession(seed, "alarm", "ahead", good=2)
        hurry(session)
        while session.step():
            pass
        ruined_ones += session.output.events() != session.events
    assert ruined_ones > 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("good", [1, 2])
async def test_hold_never_passes_what_is_disputed_though_all_but_one_die(kind: str, good: int) -> None:
    disputes = 0
    for seed in range(12):
        session = PolicySession(seed, "hold", kind, good)
        dead = 0
        while session.step():
            if "wrong" not in session.alive and len(session.alive) > 1:
                break  # two inputs that agree have decided it
            if session.disputed is not None:
                assert session.output.stable_point <= session.disputed, seed
                if dead < good and session.random.random() < 0.2:
                    dead += 1
                    session.lose(session.random.choice(session.alive))
        if session.disputed is None or len(session.alive) != 1:
            continue
        disputes += 1
        assert session.output.stable_point <= session.disputed
        (survivor,) = session.alive
        assert session.certifier.decide_disputes_by(survivor)
        session.settle()
        assert session.output.stable_point > session.disputed
    assert disputes > 1 or kind == "ahead"


async def test_hold_goes_on_with_the_survivor_if_that_is_set() -> None:
    session = PolicySession(1, "hold", "payload", 1, hold_survivor_wins=True)
    while session.step():
        pass
    assert session.disputed is not None
    before = session.output.stable_point
    assert before <= session.disputed
    session.lose("wrong")
    assert session.output.events() == session.events


async def test_a_dispute_outlives_the_server() -> None:
    kept: dict[str, str] = {}
    settings = Settings(divergence="hold", certify_interval=INTERVAL)
    merge = settings.new_merge()
    certifier = Certifier("m", merge, settings, save=kept.__setitem__)
    lives = lambda: [(status, InputLifecycle()) for status in merge.inputs()]  # noqa: E731
    for name, payload in (("a", b"x"), ("b", b"y")):
        merge.attach(name, ("key",))
        certifier.attached(name, 1, InputRole.ACTIVE, None)
        certifier.apply(name, Batch.of([Insert(payload, 1, 3), Stable(20)]), 1)
        certifier.settle(lives)
    assert certifier.disputed == ["[0, 10)"]
    merge = settings.new_merge()
    after = Certifier("m", merge, settings, kept)
    merge.attach("a", ("key",))
    after.attached("a", 1, InputRole.ACTIVE, None)
    after.apply("a", Batch.of([Insert(b"x", 1, 3), Stable(20)]), 1)
    after.settle(lives)
    assert [list(give().batch.elements()) for give in after.releases(lives)] == [[Stable(0)]]
    assert after.decide_disputes_by("a")
    assert [list(give().batch.elements()) for give in after.releases(lives)] == [[Stable(20)]]


async def test_quarantine_of_two_that_differ_only_alarms_once_both_have_delivered() -> None:
    for seed in range(10):
        session = PolicySession(seed, "quarantine", "payload", good=1)
        while session.step():
            pass
        assert session.output.stable_point == INF
        assert sorted(session.alive) == ["good0", "wrong"]
        assert session.certifier.divergences


async def test_quarantine_waits_for_a_late_input_only_so_long() -> None:
    session = PolicySession(3, "quarantine", "payload", good=1, compare_wait_s=0.0)
    asked: list[Any] = []
    session.certifier._again = asked.append
    hurry(session)
    assert session.output.stable_point < INTERVAL * 2
    while not asked:  # noqa: ASYNC110 - the timer of the loop
        await asyncio.sleep(0)
    asked[0]()
    session.settle()
    assert session.output.stable_point == INF
