"""Output policies (V.A): what each promises, as a definition that does not use the index.

One input delivers one element at a time. The oracle keeps each input's table, and compares every change of the output
with the promise of the policy, at each step, with inputs that join, leave, lead in turns and are admitted early. C1-C3
are checked as well.
"""

from __future__ import annotations

from random import Random

from lmerge.core.elements import NEG_INF, Adjust, Element, Insert, Stable
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.policy import Leader, Show, parse_policy
from lmerge.testing.merges.declared import PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import mistaken, present, reference

Key = tuple[int, bytes]


class JudgedPolicy:
    """A merge under a policy, and the elements that each attached input has delivered in this life."""

    def __init__(self, algorithm: str, policy: str, *, compatible: bool) -> None:
        self.algorithm = algorithm
        self.policy = parse_policy(policy)
        self.follow = Follow(Merge(MergeConfig(algorithm, policy)), compatible=compatible)
        self.tables: dict[str, dict[Key, list[int]]] = {}  # the ends of its events, frozen ones too
        self.stables: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.checked = 0

    # The state on which the policy depends.

    def joined(self) -> list[str]:
        return [i.name for i in self.follow.merge.inputs() if i.state == "joined"]

    def ends(self, name: str, vs: int, payload: bytes) -> list[int]:
        return self.tables[name].get((vs, payload), [])

    def shown(self, vs: int, payload: bytes) -> list[int]:
        return list(self.follow.output.live_ends(vs, payload))

    def is_unfrozen(self, vs: int) -> bool:
        return vs >= self.follow.merge.stable_point

    def leader(self) -> str | None:
        def rank(name: str) -> int:
            if self.policy.leader is Leader.INSERT:
                return self.highest[name]
            if self.policy.leader is Leader.UNFROZEN:
                return sum(len(ends) for (vs, _), ends in self.tables[name].items() if self.is_unfrozen(vs))
            return self.stables[name]

        return max(self.joined(), key=rank, default=None)  # the first of several: the longest attached

    def enough(self, later: int = 0) -> int:
        """Return how many inputs make a quorum, without the last ``later`` inputs."""
        joined = len(self.joined()) - later
        if self.policy.quorum_percent:
            return next(k for k in range(1, joined + 2) if 100 * k >= self.policy.quorum_percent * joined)
        return max(1, min(self.policy.quorum, joined))

    def having(self, vs: int, payload: bytes, count: int) -> int:
        return sum(len(self.ends(name, vs, payload)) >= count for name in self.joined())

    def agreeing(self, vs: int, payload: bytes, ve: int, count: int) -> int:
        return sum(self.ends(name, vs, payload).count(ve) >= count for name in self.joined())

    def take(self, name: str, element: Element) -> None:
        if isinstance(element, Stable):
            self.stables[name] = element.vc
            return
        ends = self.tables[name].setdefault((element.vs, element.payload), [])
        if isinstance(element, Adjust):
            ends.remove(element.vold)
        else:
            self.highest[name] = max(self.highest[name], element.vs)
        if element.ve > element.vs:
            ends.append(element.ve)

    # The changes of the output.

    def element(self, name: str, element: Element) -> None:
        merge = self.follow.merge
        was_joined = name in self.joined()
        before = 0 if isinstance(element, Stable) else len(self.shown(element.vs, element.payload))
        self.take(name, element)
        outcome = self.follow.publish(name, element)
        assert not outcome.detached
        assert merge.is_attached(name)
        if isinstance(element, Stable):
            self.after_anything(outcome)
            return
        for change in outcome.batch.elements():
            self.checked += 1
            assert not isinstance(change, Stable)
            assert (change.vs, change.payload) == (element.vs, element.payload)
            if isinstance(change, Insert):
                self.inserted(name, change, was_joined)
            else:
                self.adjusted(name, change, was_joined)
        self.answered(name, element, was_joined, before)
        self.nothing_withheld()

    def inserted(self, name: str, change: Insert, was_joined: bool) -> None:
        """Check location 2 after one element of ``name``."""
        count = len(self.shown(change.vs, change.payload))
        assert self.is_unfrozen(change.vs)
        assert change.ve in self.ends(name, change.vs, change.payload)
        assert count <= len(self.ends(name, change.vs, change.payload))
        show = self.policy.show
        assert show in (Show.FIRST, Show.QUORUM, Show.LEADING)
        assert show is Show.FIRST or was_joined
        if show is Show.QUORUM:
            assert self.having(change.vs, change.payload, count) >= self.enough()
        if show is Show.LEADING:
            assert self.leader() == name

    def adjusted(self, name: str, change: Adjust, was_joined: bool) -> None:
        """Check location 1 after one element of ``name``."""
        assert self.policy.reflects_adjusts
        assert was_joined
        shown, mine = self.shown(change.vs, change.payload), self.ends(name, change.vs, change.payload)
        is_removal = change.ve == change.vs
        assert is_removal or change.ve in mine
        assert not is_removal or self.is_unfrozen(change.vs)
        if self.policy.show is Show.LEADING:
            assert self.leader() == name
        if self.policy.show is Show.QUORUM and is_removal:
            assert self.having(change.vs, change.payload, len(shown) + 1) < self.enough()
        elif self.policy.show is Show.QUORUM:
            assert self.agreeing(change.vs, change.payload, change.ve, shown.count(change.ve)) >= self.enough()

    def answered(self, name: str, element: Insert | Adjust, was_joined: bool, before: int) -> None:
        """Check what the output shows after an element of ``name``; it showed ``before`` events of this key."""
        if not self.is_unfrozen(element.vs) or element.ve == element.vs:
            return
        shown, mine = self.shown(element.vs, element.payload), self.ends(name, element.vs, element.payload)
        leads = self.policy.show is Show.LEADING and was_joined and self.leader() == name
        if isinstance(element, Insert) and (self.policy.show is Show.FIRST or leads):
            assert len(shown) >= min(len(mine), before + 1)
        follows = self.policy.reflects_adjusts and was_joined
        if follows and (leads or self.policy.show is Show.FIRST):
            assert element.ve in shown
            assert self.algorithm == "r4" or shown == mine

    def after_anything(self, outcome: Outcome) -> None:
        """Check the output after a stable or a change of the inputs.

        An event appears half frozen, or because enough inputs remain.
        """
        for change in outcome.batch.elements():
            if isinstance(change, Insert) and self.is_unfrozen(change.vs) and self.policy.show is not Show.FINAL:
                self.checked += 1
                count = len(self.shown(change.vs, change.payload))
                assert self.policy.show is Show.QUORUM
                enough = min(self.enough(later) for later in range(max(1, len(outcome.joined))))
                assert self.having(change.vs, change.payload, count) >= enough  # they join one after another
            if isinstance(change, Adjust):
                assert self.policy.show is not Show.FINAL
                assert self.policy.show is not Show.HALF_FROZEN or change.ve > change.vs, "it was taken back"
        self.nothing_withheld()

    def nothing_withheld(self) -> None:
        """Quorum: check that as many unfrozen events are shown as enough inputs have."""
        if self.policy.show is Show.QUORUM:
            for vs, payload in set[Key]().union(*self.tables.values()):
                if self.is_unfrozen(vs):
                    assert self.having(vs, payload, len(self.shown(vs, payload)) + 1) < self.enough()

    # Inputs attach and leave.

    def attach(self, name: str, join_at: int | None) -> None:
        self.tables[name], self.highest[name], self.stables[name] = {}, NEG_INF, NEG_INF
        self.after_anything(self.follow.attach(name, PROMISES[self.algorithm], join_at=join_at))

    def detach(self, name: str) -> None:
        del self.tables[name]
        self.after_anything(self.follow.detach(name))


def policy_session(algorithm: str, policy: str, seed: object) -> int:
    """Play one session: inputs join, leave, lead in turns and are admitted early.

    Returns the number of changes that were compared with the policy. Raises AssertionError.
    """
    random = Random(f"{algorithm} {policy} {seed}")
    events = reference(random, random.choice((5, 9)), payloads=3, duplicates=algorithm == "r4")
    judged = JudgedPolicy(algorithm, policy, compatible=random.random() < 0.3)
    streams: dict[str, list[Element]] = {}
    latest = events[-1].vs + 10

    def attach(name: str, join_at: int | None) -> None:
        streams[name] = present(random, events if join_at is None else mistaken(random, events, join_at))
        judged.attach(name, join_at)

    right_from = NEG_INF
    if random.random() < 0.3:
        right_from = random.randint(1, latest)
        attach("early", right_from)
        judged.after_anything(judged.follow.admit("early"))
    attach("complete", None)
    attach("also", None)
    for at in range(random.randint(0, 2)):
        attach(f"late{at}", random.randint(1, latest))
    while any(streams.values()):
        chance, names = random.random(), [name for name in streams if streams[name]]
        name = random.choice(names)
        if chance < 0.02 and name != "complete":
            judged.detach(name)
            del streams[name]
        elif chance < 0.03 and name != "complete":
            judged.detach(name)
            attach(name, random.choice((None, random.randint(1, latest))))
        elif chance < 0.06:
            judged.follow.restore()
        else:
            judged.element(name, streams[name].pop(0))
    assert [e for e in judged.follow.events() if e.ve >= right_from] == [e for e in events if e.ve >= right_from]
    return judged.checked
