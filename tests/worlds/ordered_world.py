"""Sessions of ordered, insert-only inputs that miss elements, and an oracle that uses only the deliveries.

``Law`` is the oracle. It keeps every delivery of every life of an input. From the whole list it computes in the
simplest way what the output has (law 10) and which inputs have broken a promise. It shares no code with the algorithms.
``World`` drives a merge and a twin of it through a session, and compares both with the law after each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element, Insert, Stable
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.testing.merges.declared import COPIES_PROMISES, PROMISES


class HistoryItem(NamedTuple):
    """An insert of one life of an input, or with ``life`` 0 a stable point that the output has reached."""

    life: int
    vs: int
    element: tuple[bytes, int]


CASES = ("r0", "r1", "r2", "r2 copies", "r2 mixed", "r2 believed")
"""The algorithms. R2 comes with no key, with a key of some inputs, and with a key of all that may be broken."""


class Law:
    """Computes what the output has, and which input has broken a promise, by the case.

    Under R2 the key counts while all lives promise one, and copies count from the moment when one does not. Lives that
    had left by then do not count in an open slot, beyond what the output had of theirs.
    """

    def __init__(self, case: str) -> None:
        self.case = case
        self.deliveries: list[HistoryItem] = []
        self.attached: set[int] = set()  # lives that count
        self.keyed: set[int] = set()  # lives that promise a key
        self.lost: int | None = None  # of R2: the number of deliveries when the key ceased to count
        self.gone: set[int] = set()  # lives that had left by then

    def output(self) -> Counter[Insert]:
        """Return the inserts of the output: of each Vs those before a higher Vs or a stable point beyond it."""
        output: Counter[Insert] = Counter()
        for vs in {delivery.vs for delivery in self.deliveries if delivery.life}:
            slot: list[HistoryItem] = []
            by_key: int | None = None  # number of the slot's deliveries while the key counted; None: all
            for at, delivery in enumerate([*self.deliveries, HistoryItem(0, INF + 1, (b"", 0))]):
                if at == self.lost:
                    by_key = len(slot)
                if delivery.vs > vs:
                    break
                if delivery.vs == vs and delivery.life:
                    slot.append(delivery)
            union = self._union(vs, slot)
            if self.case[:2] == "r2":
                union = self._union_of_r2(vs, slot, by_key)
            output.update({Insert(p, vs, ve): count for (p, ve), count in union.items()})
        return output

    def lose_key(self) -> None:
        """Note that an input without a key is merged from here on."""
        if self.lost is None:
            self.lost = len(self.deliveries)
            self.gone = {delivery.life for delivery in self.deliveries if delivery.life} - self.attached

    def _union_of_r2(self, vs: int, slot: Sequence[HistoryItem], by_key: int | None) -> Counter[tuple[bytes, int]]:
        before = slot if by_key is None else slot[:by_key]
        union = self._union(vs, before)
        first: dict[bytes, tuple[bytes, int]] = {}
        for delivery in before:
            if delivery.element[1] > vs:
                first.setdefault(delivery.element[0], delivery.element)
        union = Counter({element: n for element, n in union.items() if element[1] == vs}) + Counter(first.values())
        return union if by_key is None else union | self._union(vs, [d for d in slot if d.life not in self.gone])

    def _union(self, vs: int, slot: Sequence[HistoryItem]) -> Counter[tuple[bytes, int]]:
        by_life: dict[int, Counter[tuple[bytes, int]]] = {}
        first: tuple[bytes, int] | None = None  # an event: under R0 Vs is the key
        for delivery in slot:
            by_life.setdefault(delivery.life, Counter())[delivery.element] += 1
            if delivery.element[1] > vs:
                first = first or delivery.element
        union: Counter[tuple[bytes, int]] = Counter()
        for counts in by_life.values():
            union |= counts
        if self.case == "r0" and slot:
            return Counter({slot[0].element, *([first] if first and slot[0].element[1] == vs else [])})
        return union

    def top(self) -> int:
        """Return MaxVs; one less than -inf before the first delivery."""
        return max((delivery.vs for delivery in self.deliveries if delivery.life), default=NEG_INF - 1)

    def breaks(self, life: int, vs: int, element: tuple[bytes, int]) -> bool:
        """Return whether ``life`` breaks a promise about equal Vs if it delivers this next."""
        if vs < self.top() or self.case == "r0":
            return False
        slot = [delivery for delivery in self.deliveries if delivery.life and delivery.vs == vs]
        mine = [delivery.element for delivery in slot if delivery.life == life]
        if self.case[:2] == "r2":
            return life in self.keyed and element[1] > vs and element[0] in {p for p, ve in mine if ve > vs}
        union = self._union(vs, [*slot, HistoryItem(life, vs, element)])
        if union[element] > 1 or element in mine:
            return False
        for other in self.attached - {life}:
            its = [delivery.element for delivery in slot if delivery.life == other]
            if element in its and any(y in mine and union[y] == 1 and its.index(y) > its.index(element) for y in its):
                return True
        return False

    def is_ambiguous(self, vs: int) -> bool:
        """Return whether an element at ``vs`` has come twice, so that either copy may have been missed."""
        slot = [delivery for delivery in self.deliveries if delivery.life and delivery.vs == vs]
        return self.case == "r1" and any(count > 1 for count in self._union(vs, slot).values())


class World:
    """A merge, its twin on the Python engine, and the law. Inputs have names, and each attachment is a life."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.law = Law(case)
        self.allows_broken_key = case == "r2 believed"
        algorithm = "auto" if self.allows_broken_key else case[:2]
        self.merges = [
            Merge(MergeConfig(algorithm, allow_downgrade=self.allows_broken_key, engine=engine))
            for engine in ("auto", "python")
        ]
        self.output: Counter[Insert] = Counter()
        self.lives: dict[str, int] = {}
        self.waiting: dict[str, list[Insert]] = {}
        self.joining: dict[str, tuple[int, int]] = {}  # join_at and its own stable point
        self.reported: list[str] = []
        self.allowed = 0
        self._lives = 0

    def attach(self, name: str, join_at: int | None = None, *, keyed: bool = True) -> None:
        self._lives += 1
        self.lives[name] = self._lives
        keyed = keyed and self.case != "r2 copies"
        if keyed:
            self.law.keyed.add(self._lives)
        if self.law.top() < NEG_INF:  # no element has been merged: the promises of all count
            self.law.lost = None
            if not self.law.keyed >= set(self.lives.values()):
                self.law.lose_key()
        elif not keyed:
            self.law.lose_key()
        self._call("attach", name, PROMISES[self.case[:2]] if keyed else COPIES_PROMISES, join_at=join_at)
        assert self.output == self.law.output()
        assert self.merges[0].algorithm == self.case[:2]
        if self.merges[0].status(name).state == "joining":
            assert join_at is not None
            self.waiting[name], self.joining[name] = [], (join_at, NEG_INF)
        else:
            self.law.attached.add(self._lives)

    def detach(self, name: str) -> None:
        self._call("detach", name)
        self._forget(name)

    def admit(self, name: str) -> None:
        self._after(self._call("admit", name), admitted=name)

    def deliver(self, name: str, element: Element) -> None:
        """Deliver one element of an input. Checks the output and the reported inputs against the law."""
        if name in self.waiting and isinstance(element, Insert):
            self.waiting[name].append(element)
            outcome = self._call("apply", name, Batch.of([element]))
            assert not outcome.batch.count
            return
        if name in self.joining and isinstance(element, Stable):
            self.joining[name] = self.joining[name][0], element.vc
        expected, certain = False, True
        if isinstance(element, Insert):
            expected = self.law.breaks(self.lives[name], element.vs, (element.payload, element.ve))
            if expected and self.allows_broken_key:
                self.law.lose_key()
                self.law.keyed.discard(self.lives[name])
                self.allowed += 1
                expected = False
            if not expected:
                self._note(name, element)
            certain = not self.law.is_ambiguous(element.vs)
        outcome = self._call("apply", name, Batch.of([element]))
        reported = [detached.input for detached in outcome.detached if detached.input == name]
        assert expected or not reported, f"{name} has kept its promises: {outcome.detached[0].reason}"
        assert reported or not (expected and certain), f"{name} has broken its promise with {element}"
        if expected and not reported and isinstance(element, Insert):
            self._note(name, element)
        self._after(outcome)

    def exchange(self) -> None:
        """Let each engine continue with the snapshot of the other."""
        first, second = (snapshot_of(merge) for merge in self.merges)
        assert first == second
        self.merges = [restored(second), restored(first, engine="python")]
        assert snapshot_of(self.merges[0]) == snapshot_of(self.merges[1]) == first

    def _note(self, name: str, element: Insert) -> None:
        self.law.deliveries.append(HistoryItem(self.lives[name], element.vs, (element.payload, element.ve)))

    def _call(self, method: str, *arguments: object, **options: object) -> Outcome:
        outcomes = [getattr(merge, method)(*arguments, **options) for merge in self.merges]
        results = [
            (list(outcome.batch.elements()), [d.reason for d in outcome.detached], outcome.joined)
            for outcome in outcomes
        ]
        assert results[0] == results[1], "the engines differ"
        for merge in self.merges:
            merge.check()
        self.output.update(element for element in results[0][0] if isinstance(element, Insert))
        outcome: Outcome = outcomes[0]
        return outcome

    def _after(self, outcome: Outcome, admitted: str = "") -> None:
        stables = [element.vc for element in outcome.batch.elements() if isinstance(element, Stable)]
        ended = {detached.input for detached in outcome.detached}
        for name in outcome.joined:
            # A stable lets it join, unless it is admitted. Its waiting elements come next, and then its own stable.
            join_at, last = self.joining.pop(name)
            if name != admitted:
                self._pass(stables, join_at, until_reached=True)
            self._join(name, broken=name in ended)
            if name not in ended:
                self._pass(stables, last)
        self._pass(stables, INF)
        for name in ended:
            self.reported.append(name)
            self._forget(name)
        assert self.output == self.law.output()

    def _pass(self, stables: list[int], limit: int, *, until_reached: bool = False) -> None:
        """Let the output reach the first of ``stables``, up to ``limit``, or until one is at or beyond it."""
        reached = max((delivery.vs for delivery in self.law.deliveries if not delivery.life), default=NEG_INF)
        while stables and (reached < limit if until_reached else stables[0] <= limit):
            reached = stables.pop(0)
            self.law.deliveries.append(HistoryItem(0, reached, (b"", 0)))

    def _join(self, name: str, *, broken: bool) -> None:
        """Count the waiting elements, all or none."""
        waiting, before = self.waiting.pop(name), len(self.law.deliveries)
        self.law.attached.add(self.lives[name])
        breaks = certain = False
        for element in waiting:
            breaks = breaks or self.law.breaks(self.lives[name], element.vs, (element.payload, element.ve))
            self._note(name, element)
            certain = certain or self.law.is_ambiguous(element.vs)
        assert breaks or not broken, f"{name} has kept its promises"
        assert broken or certain or not breaks, f"{name} has broken its promise while it waited"
        if broken:
            del self.law.deliveries[before:]

    def _forget(self, name: str) -> None:
        self.law.attached.discard(self.lives.pop(name))
        self.waiting.pop(name, None)
        self.joining.pop(name, None)


def truth(random: Random, case: str) -> list[Insert]:
    """Return the stream that all inputs deliver: equal Vs, some of them -inf, equal elements, and empty lifetimes."""
    elements: list[Insert] = []
    payloads = [b"%d" % at for at in range(random.choice((3, 12)))]
    for vs in sorted({random.choice((NEG_INF, 1, 2, 3, 5)) for _ in range(4)}):
        slot: list[Insert] = []
        for _ in range(1 if case == "r0" else random.randint(1, 8)):
            ve = random.choice((INF, vs, max(vs, 0) + 9, max(vs, 0) + 12))
            slot.append(Insert(random.choice(payloads), vs, ve))
        if case == "r2":
            slot = list({(element.payload, element.ve > vs): element for element in slot}.values())
        elif case != "r0" and random.random() < 0.5:
            slot = list(dict.fromkeys(slot))
        elements += slot
    return elements


def presented(random: Random, case: str, elements: Sequence[Insert]) -> Iterator[Element]:
    """Yield what one life delivers of it: with elements missing or repeated, and sometimes in another order."""
    misses, repeats, swaps = (random.choice((0.0, chance)) for chance in (0.3, 0.1, 0.1))
    slots: dict[int, list[Insert]] = {}
    for element in elements:
        if random.random() >= misses:
            ve = element.vs if case == "r0" and random.random() < 0.1 else element.ve
            slots.setdefault(element.vs, []).append(element._replace(ve=ve))
    for vs, slot in slots.items():
        if case[:2] == "r2":
            random.shuffle(slot)
        for at in range(len(slot) - 1):
            if random.random() < swaps:
                slot[at], slot[at + 1] = slot[at + 1], slot[at]
        for element in slot:
            yield element
            if case != "r0" and random.random() < repeats:
                yield element
        if random.random() < 0.4:
            yield Stable(random.choice((vs, max(vs, 0) + 1)))


def play(seed: str, case: str) -> World:
    """Play a session of three inputs that attach, join late, leave and return inside a slot."""
    random = Random(seed)
    elements = truth(random, case)
    world = World(case)
    streams: dict[str, list[Element]] = {}
    for _ in range(40):
        name = random.choice("abc")
        chance = random.random()
        if name not in world.lives:
            joins = random.choice((None, None, random.choice((NEG_INF, 1, 2, 4))))
            world.attach(name, joins, keyed=case != "r2 mixed" or random.random() < 0.7)
            at = random.choice((0, 0, random.randrange(len(elements))))
            streams[name] = list(legal(presented(random, case, elements[at:])))
        elif chance < 0.04:
            world.detach(name)
        elif chance < 0.08:
            world.admit(name)
        elif chance < 0.16:
            world.exchange()
        for _ in range(random.choice((1, 1, 3, 9))):
            if name in world.lives and streams[name]:
                world.deliver(name, streams[name].pop(0))
    return world


def legal(stream: Iterator[Element]) -> Iterator[Element]:
    """Yield the stream without elements that would break a promise other than those about equal Vs."""
    stable = NEG_INF
    for element in stream:
        if isinstance(element, Stable):
            stable = max(stable, element.vc)
            yield Stable(stable)
        elif isinstance(element, Insert) and element.vs >= stable:
            yield element
