"""The laws of the election: in random worlds of candidates, delays, lost answers, freezes and deletions."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge_controller.kubernetes.lease_rules import TERM, VERSION, Candidacy, Leadership, LeaseTimes, term_of

TIMES = LeaseTimes(lease_s=3.0, renew_s=2.0, retry_s=0.5)


@dataclass
class OneLease:
    """The Lease as an API server keeps it: a write applies only if nothing has changed since it was read."""

    lease: dict[str, Any] | None = None
    version: int = 0
    terms: list[tuple[int, str]] = field(default_factory=list)

    def write(self, body: dict[str, Any]) -> dict[str, Any] | None:
        expected = body["metadata"].get("resourceVersion")
        actual = self.lease["metadata"]["resourceVersion"] if self.lease is not None else None
        if expected != actual:
            return None
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"] |= {
            "resourceVersion": str(self.version),
            "uid": body["metadata"].get("uid", self.version),
        }
        term, holder = term_of(body), body["spec"]["holderIdentity"]
        if holder and (term, holder) not in self.terms:
            self.terms.append((term, holder))
        return copy.deepcopy(self.lease)


class Member:
    """A candidate with a clock of its own rate, that reads, thinks and writes with delays between."""

    def __init__(self, name: str, world: OneLease, rng: random.Random) -> None:
        self.rules = Candidacy(name, TIMES)
        self.rate, self.start = rng.uniform(0.9, 1.1), rng.uniform(0, 1e6)
        self.world, self.rng = world, rng
        self.next_at = 0.0
        self.lease: dict[str, Any] | None = None
        self.step = self._steps()

    def clock(self, at: float) -> float:
        return self.start + at * self.rate

    def acts(self, at: float) -> Leadership | None:
        """Return the leadership in which this member would act at a moment of true time."""
        held = self.rules.leadership
        return held if held is not None and held.is_confirmed and self.clock(at) < held.until else None

    def run(self, at: float) -> None:
        try:
            self.next_at = at + self.step.send(at)
        except StopIteration:
            raise AssertionError("a member never ends") from None

    def _delay(self) -> float:
        return self.rng.choice([0.001, 0.01, 0.3, 4.0 if self.rng.random() < 0.2 else 0.05])

    def _steps(self) -> Any:
        at = yield 0.0
        while True:
            rules = self.rules
            if rules.leadership is None:
                sent = self.clock(at)
                at = yield self._delay()  # the read is under way
                lease = copy.deepcopy(self.world.lease)
                at = yield self._delay()  # its answer is under way
                rules.observe(lease, sent, self.clock(at))
                if rules.may_acquire(lease, self.clock(at)):
                    floor = max((term for term, _ in self.world.terms), default=0)
                    body, _ = rules.acquisition(lease, floor, "now")
                    at = yield from self._write(body, at)
            else:
                assert self.lease is not None
                body = rules.renewal(copy.deepcopy(self.lease), "now")
                at = yield from self._write(body, at)
            rules.expire(self.clock(at))
            at = yield TIMES.retry_s * self.rng.uniform(1, 1.2)

    def _write(self, body: dict[str, Any], at: float) -> Any:
        sent = self.clock(at)
        at = yield self._delay()  # the write is under way
        written = self.world.write(body)
        is_lost = self.rng.random() < 0.1
        at = yield self._delay()  # its answer is under way
        if is_lost or written is None:
            lease, sent = copy.deepcopy(self.world.lease), self.clock(at)
            at = yield self._delay()
            self.rules.observe(lease, sent, self.clock(at))
            self.lease = lease
            return at
        self.lease = written
        self.rules.written(written, sent, self.clock(at), is_created="resourceVersion" not in body["metadata"])
        return at


@pytest.mark.parametrize("group", range(15))
def test_leaderships_never_overlap_and_terms_rise(group: int) -> None:
    terms = [len(leaderships(seed)) for seed in range(group * 10, group * 10 + 10)]
    assert sum(terms) > 20, f"too few have led: {terms}"


def leaderships(seed: int) -> set[tuple[int, str]]:
    """Run a random world for a minute of its time, check the laws at each step, and return who acted in which term."""
    rng = random.Random(seed)
    world = OneLease()
    members = [Member(f"m{number}", world, rng) for number in range(rng.choice([2, 3]))]
    for member in members:
        next(member.step)
    at, highest = 0.0, 0
    acted: set[tuple[int, str]] = set()
    while at < 60.0:
        member = min(members, key=lambda one: one.next_at)
        at = max(at, member.next_at)
        leaders = [one for one in members if one.acts(at)]
        assert len(leaders) <= 1, f"{[one.rules.identity for one in leaders]} lead at {at}"
        for leader in leaders:
            held = leader.acts(at)
            assert held is not None
            assert held.term >= highest
            highest = held.term
            acted.add((held.term, leader.rules.identity))
        chance = rng.random()
        if chance < 0.01:
            world.lease = None  # deleted by hand
        elif chance < 0.03:
            member.next_at = at + rng.uniform(0, 9)  # frozen
            continue
        member.run(at)
    assert len({term for term, _ in acted}) == len(acted), "two leaders in one term"
    return acted


def lease_of(holder: str, term: int, version: str = "1") -> dict[str, Any]:
    meta = {"resourceVersion": version, "uid": "u", "annotations": {TERM: str(term), "kept": "yes"}}
    return {"metadata": meta, "spec": {"holderIdentity": holder, "leaseTransitions": 4}}


def test_the_holder_before_gets_a_new_term() -> None:
    rules = Candidacy("a", TIMES)
    rules.observe(lease_of("a", 7), 100.0, 100.0)
    body, term = rules.acquisition(lease_of("a", 7), 0, "now")
    assert (term, body["spec"]["leaseTransitions"]) == (8, 4)
    assert body["metadata"]["annotations"] == {TERM: "8", VERSION: "", "kept": "yes"}


def test_a_term_is_above_the_floor_where_the_lease_was_lost() -> None:
    rules = Candidacy("a", TIMES)
    rules.observe(None, 0.0, 0.0)
    rules.observe(None, 1.5, 1.6)
    rules.observe(None, 2.8, 2.9)
    assert not rules.may_acquire(None, 2.9)
    assert rules.may_acquire(None, 3.0)
    assert rules.acquisition(None, 41, "now")[1] == 42


def test_a_lease_that_may_have_come_and_gone_between_two_looks_is_waited_for_again() -> None:
    rules = Candidacy("a", TIMES)
    rules.observe(None, 0.0, 0.0)
    rules.observe(None, 10.0, 10.1)
    assert not rules.may_acquire(None, 10.2)


def test_who_creates_the_lease_acts_after_the_others_have_seen_it() -> None:
    rules = Candidacy("a", TIMES)
    assert not rules.written(lease_of("a", 5), 10.0, 10.1, is_created=True).is_confirmed
    assert not rules.written(lease_of("a", 5), 12.0, 12.1).is_confirmed
    assert rules.written(lease_of("a", 5), 13.1, 13.2).is_confirmed


def test_a_candidate_waits_from_the_last_change_that_it_saw() -> None:
    rules = Candidacy("a", TIMES)
    rules.observe(lease_of("b", 1, "1"), 0.0, 0.0)
    rules.observe(lease_of("b", 1, "2"), 2.0, 2.0)
    rules.observe(lease_of("b", 1, "2"), 4.0, 4.0)
    assert not rules.may_acquire(lease_of("b", 1, "2"), 4.9)
    assert rules.may_acquire(lease_of("b", 1, "2"), 5.0)


def test_a_released_lease_is_free_at_once() -> None:
    rules = Candidacy("a", TIMES)
    rules.observe(lease_of("", 3), 0.0, 0.0)
    assert rules.may_acquire(lease_of("", 3), 0.0)


def test_a_leader_stops_by_when_it_sent_its_last_renewal() -> None:
    rules = Candidacy("a", TIMES)
    assert rules.written(lease_of("a", 5), sent=10.0, now=11.5).until == 12.0
    assert not rules.expire(11.9)
    assert rules.expire(12.0)
    assert rules.leadership is None


def test_a_leader_that_finds_another_holder_or_term_or_no_lease_leads_no_longer() -> None:
    for found in (lease_of("b", 5), lease_of("a", 6), lease_of("", 5), None):
        rules = Candidacy("a", TIMES)
        rules.written(lease_of("a", 5), 0.0, 0.0)
        rules.observe(found, 0.1, 0.1)
        assert rules.leadership is None, found


@pytest.mark.parametrize("text", ["", "x", "-1", "1e3", "²", "9" * 30, None, 7])
def test_what_is_no_term_counts_as_none(text: object) -> None:
    assert term_of({"metadata": {"annotations": {TERM: text}}}) == 0
    assert term_of({"metadata": {}}) == term_of(None) == 0


def test_times_that_do_not_keep_the_law_are_refused() -> None:
    for times in ((3.0, 3.0, 0.5), (3.0, 2.0, 1.5), (3.0, 2.0, 0.0)):
        with pytest.raises(UsageError, match="cannot be renewed"):
            LeaseTimes(*times)


def test_a_candidate_sees_which_other_version_leads() -> None:
    old, new = Candidacy("a", TIMES, "1.0"), Candidacy("b", TIMES, "2.0")
    lease, _ = old.acquisition(None, 0, "")
    assert (old.other_version(lease), new.other_version(lease)) == (None, "1.0")
    assert Candidacy("c", TIMES, "1.0").other_version(lease) is None
    assert new.other_version(old.release(lease, "")) is None  # it leads no longer
    assert new.other_version(None) is None
    lease["metadata"]["annotations"][VERSION] = 7
    assert new.other_version(lease) is None
