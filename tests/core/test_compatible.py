"""C1-C3 (III.D) on whole sessions: they accept every right output and reject every wrong one.

The inputs of a session deliver one TDB. Some join late (V.B). Their events that end before their join_at are wrong:
missing, with another end, or invented.
"""

from __future__ import annotations

from random import Random

import pytest

from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.testing.merges.declared import INDEX_POLICIES, PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import mistaken, ordered, present, reference

ALGORITHMS = pytest.mark.parametrize("algorithm", ["r2", "r3", "r4"])


def stream_of(random: Random, algorithm: str, events: list[Event]) -> list[Element]:
    """Return a stream of ``events`` with the properties that ``algorithm`` needs."""
    if algorithm in ("r3", "r4"):
        return present(random, events)
    return ordered(random, events, ties="shuffled")


class Session:
    """A merge whose inputs join late; ``follow`` checks C1-C3 after every step."""

    def __init__(self, algorithm: str, seed: int) -> None:
        self.random = random = Random(f"{algorithm} {seed}")
        self.algorithm = algorithm
        self.events = reference(random, random.choice((3, 8, 16)), payloads=3, duplicates=algorithm == "r4")
        policies = INDEX_POLICIES if algorithm in ("r3", "r4") else ("lazy", "eager", "lazy+lag:3")
        self.follow = Follow(Merge(MergeConfig(algorithm, random.choice(policies))))
        self.streams: dict[str, list[Element]] = {}
        self.right_from = NEG_INF
        latest = self.events[-1].vs + 12
        if random.random() < 0.3:  # no input has the past
            self.right_from = random.randint(1, latest)
            self.attach("early", self.right_from)
            self.follow.admit("early")
        self.attach("complete", None)
        for at in range(random.randint(1, 2)):
            self.attach(f"late{at}", random.randint(1, latest))
        self.latest = latest

    def attach(self, name: str, join_at: int | None) -> None:
        right = self.events if join_at is None else mistaken(self.random, self.events, join_at)
        self.streams[name] = stream_of(self.random, self.algorithm, right)
        self.follow.attach(name, PROMISES[self.algorithm], join_at=join_at)

    def run(self) -> None:
        """Deliver all elements; inputs that joined late leave and attach again."""
        random, streams, comings = self.random, self.streams, 0
        while any(streams.values()):
            name = random.choice([name for name in streams if streams[name]])
            part, streams[name] = streams[name][:4], streams[name][4:]
            assert not self.follow.publish(name, *part).detached
            if name.startswith("late") and random.random() < 0.05 and comings < 3:
                comings += 1
                self.follow.detach(name)
                self.attach(name, random.randint(1, self.latest))

    def right(self) -> list[Event]:
        return [event for event in self.events if event.ve >= self.right_from]

    def problems_found(self, elements: list[Element]) -> list[str]:
        """Return the problems of an output of these inputs; an illegal stream counts as one."""
        output = Tdb("output")
        try:
            for element in elements:
                output.apply(element)
        except InputViolation as violation:
            return [str(violation)]
        latest_first = sorted(self.follow.prefixes, key=lambda prefix: -prefix.join_at)
        return incompatibilities(output, latest_first, multiset=self.algorithm == "r4", right_from=self.right_from)


@ALGORITHMS
def test_every_right_output_is_accepted_where_inputs_join_late(algorithm: str) -> None:
    for seed in range(60):
        session = Session(algorithm, seed)
        session.run()
        assert [e for e in session.follow.events() if e.ve >= session.right_from] == session.right(), seed


def mutations(random: Random, elements: list[Element]) -> list[list[Element]]:
    """Yield the output with one element removed, repeated or altered."""
    mutants = []
    for at, element in enumerate(elements):
        before, after = elements[:at], elements[at + 1 :]
        mutants += [before + after, [*before, element, element, *after]]
        if isinstance(element, Insert):
            ve = element.ve + (-1 if element.ve == INF else 1)
            mutants.append([*before, element._replace(ve=ve), *after])
            mutants.append([*before, element._replace(payload=b"altered"), *after])
        elif isinstance(element, Adjust):
            by = -1 if element.ve == INF else random.choice((-1, 1))
            mutants.append([*before, element._replace(ve=element.ve + by), *after])
    return mutants


@ALGORITHMS
def test_every_wrong_output_is_found_where_inputs_join_late(algorithm: str) -> None:
    """All inputs have ended, so an output is wrong exactly if its TDB differs in the range where it must be right."""
    wrong = 0
    for seed in range(25):
        session = Session(algorithm, 1000 + seed)
        session.run()
        assert not session.problems_found(session.follow.elements)
        for mutant in mutations(session.random, session.follow.elements):
            output = Tdb("output")
            try:
                for element in mutant:
                    output.apply(element)
            except (InputViolation, OverflowError):
                continue  # an illegal stream
            is_wrong = [e for e in output.events() if e.ve >= session.right_from] != session.right()
            if output.stable_point == INF and is_wrong:
                wrong += 1
                assert session.problems_found(mutant), (seed, mutant)
    assert wrong > 200


@ALGORITHMS
def test_a_stable_that_only_a_joining_input_has_reached_is_found(algorithm: str) -> None:
    """C1 and law 1: the stable point of a joining input counts once its join_at is reached."""

    def prefix(name: str, stable: int, join_at: int = NEG_INF) -> InputPrefix:
        tdb = Tdb(name)
        tdb.apply(Stable(stable))
        return InputPrefix(name, tdb, join_at)

    def problems(stable: int, *inputs: InputPrefix, right_from: int = NEG_INF) -> list[str]:
        output = Tdb("output")
        output.apply(Stable(stable))
        return incompatibilities(output, inputs, multiset=algorithm == "r4", right_from=right_from)

    complete, late, later = prefix("complete", 10), prefix("late", 30, 11), prefix("later", 40, 25)
    assert problems(11, complete, late) == ["C1: the output is stable at 11, no input that has joined beyond 10"]
    assert not problems(10, complete, late)
    assert not problems(40, prefix("complete", 11), later, late), "one lets the next one in"
    assert problems(31, prefix("complete", 11), late, prefix("later", 40, 31))
    assert not problems(30, complete, late, right_from=11), "it was admitted before"
