"""What a reader has been told, and how it goes on over breaks and over several servers without hearing anything twice.

Sans-I/O. A *source* is the stream of one server; the reader knows every event that ends before ``known_to`` for good.

One server, no break: its stream is the reader's stream. Otherwise a subscription is exactly an input that joins (V.B),
so the core's own merge does the work: each source is an input of a local merge (R4) that is right from its
``complete_from`` on; what the reader knows already enters as one more input, which leaves at once. What a snapshot or a
journal repeats is not said again, what it changes is adjusted, nothing contradicts a stable point that the reader has
seen, and stables that lie before it are passed over. A source that is lost is detached; the others go on.

A source whose ``complete_from`` lies beyond ``known_to`` waits: what it sends is kept until the others have come so
far.

    reader  stable 100                            server h1, joined: at 104
    h2 has restarted; complete from 110           waits: events that end in [100, 110) are known to h1 alone
    h1 says stable(112)                           h2 joins; from now on either of them can die

A gap arises only where nobody can tell what lies between: no source is joined, and none can become so, since every
other server is known to be away or begins too late as well, though it was asked for ``known_to``. Then the one that
begins first is admitted and the gap reported, not hidden. An event that the reader holds and that source lacks was
frozen in the gap, or removed. If the end that was said last lies in the gap, it is taken to be frozen with it. If not,
that end is wrong, and the event has ended as early as it could: at the start of the gap, or, if it starts in the gap
or later, never was.

A reader that begins with no more than a token, ``MERGE@T``, is told nothing until the stable point has reached T: then
the events that end at T or later, as they are then. So is one whose first snapshot broke off before its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lmerge.client.subscribe.reader import Known, Reader, last_stable
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INF, INSERT, NEG_INF, Event
from lmerge.core.engines import selection
from lmerge.core.merge import Merge, Outcome
from lmerge.core.policy import Show, parse_policy
from lmerge.core.resume import OutputReplay
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.wire.codec import payload_sizes

# Gaps that are remembered one by one: more breaks than anybody looks at singly, some 100 KB, and each was reported.
GAPS_MAX: Final = 1000
# What is kept of a source that waits to join; beyond, it is asked to begin again, which costs its snapshot.
WAITING_BYTES_MAX: Final = 64 * 2**20

# What a source is.
AWAY: Final = "away"  # an attempt to connect has failed
CONNECTING: Final = "connecting"  # asked; its snapshot has not come to its end
JOINING: Final = "joining"  # it begins later than what the reader knows
JOINED: Final = "joined"
BROKEN: Final = "broken"  # what it said was no legal stream


class SubscriptionGap(NamedTuple):
    """Events that were frozen between these two stable points may be missing, or have another end than was told."""

    start: int
    end: int


class Source:
    """One server, as the follower sees it."""

    __slots__ = ("asked_from", "complete_from", "in_snapshot", "kept", "kept_bytes", "name", "problem", "stable_point",
                 "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = CONNECTING  # a server that was never tried may know everything
        self.asked_from: int | None = None  # it was asked to begin there; None: at its present stable point
        self.complete_from = NEG_INF
        self.stable_point = NEG_INF  # the source's own, as last heard
        self.in_snapshot = False
        self.kept: list[AnyBatch] = []
        self.kept_bytes = 0
        self.problem: InputViolation | None = None

    def keep(self, batch: AnyBatch) -> None:
        self.kept.append(batch)
        self.kept_bytes += payload_sizes(batch)[0] + 32 * batch.count

    def release(self) -> list[AnyBatch]:
        kept, self.kept, self.kept_bytes = self.kept, [], 0
        return kept


class Follower:
    """``reader`` has what was told; ``gaps`` is what may have been missed, oldest first.

    ``policy``: how the local merge shows events (``core.policy``). ``on_gap`` is called before a gap is accepted; what
    it raises goes to the caller, and nothing has changed.

    Beyond GAPS_MAX the two oldest gaps become one from the start of the first to the end of the second: what lies
    between them is then called uncertain too, but nothing that was missed is ever forgotten.
    """

    def __init__(
        self, sources: Iterable[str], *, policy: str | None = None, engine: str = selection.AUTO,
        known: Known | None = None, on_gap: Callable[[SubscriptionGap], None] | None = None,
    ) -> None:
        self.engine: Final = selection.resolve(engine)
        self.sources = {name: Source(name) for name in sources}
        self.policy: Final = policy or ("lazy" if len(self.sources) > 1 else "eager")
        self.gaps: list[SubscriptionGap] = []
        self.reader = Reader(self.engine)
        self._on_gap = on_gap
        self._merge: Merge | None = None
        self._since: int | None = None  # events that end before never mattered; None: nothing has come
        self._awaited = NEG_INF  # nothing is told before the merge's stable point is here
        self._unsaid: Tdb | None = None  # what will be told then
        self._held: list[Event] = []  # what the reader has been told of it before
        if known is not None:
            self._go_on(known)
        elif len(self.sources) > 1 or policy is not None:
            self._merge = Merge("r4", self.policy, "any", engine=self.engine)

    # What is known.

    @property
    def is_complete(self) -> bool:
        """Whether stable(+inf) has been told: nothing more will come."""
        return self.reader.told_to == INF  # not of the merge: a reader in another thread asks while that is at work

    @property
    def stable_point(self) -> int:
        """The last stable that was told, or waits to be handed over."""
        if self._merge is not None:
            return self._merge.stable_point if self._unsaid is None else NEG_INF
        return self.reader.told_to

    @property
    def since(self) -> int:
        """Events that end before never mattered to the reader."""
        return NEG_INF if self._since is None else self._since

    @property
    def known_to(self) -> int | None:
        """The reader knows every event that ends before, or does not care; None: nothing has come yet."""
        return None if self._since is None else max(self._since, self.stable_point)

    # What servers do.

    def asked(self, name: str, begin: int | None) -> None:
        """The source is asked for a subscription that begins at ``begin``; None: now. One that is away is so until it
        answers.
        """
        source = self.sources[name]
        if source.state != AWAY:
            source.state = CONNECTING
        source.asked_from, source.in_snapshot = begin, False
        source.release()

    def begin(self, name: str, stable_point: int, complete_from: int | None) -> None:
        """A snapshot taken at ``stable_point`` begins. ``complete_from`` None: the server is of an older version."""
        source = self.sources[name]
        if complete_from is None:
            # Such a server that has said no stable may have been restarted, empty: then it knows what its publishers
            # still had, and that is complete from its first stable on.
            is_empty = stable_point == NEG_INF and self.known_to not in (None, NEG_INF)
            complete_from = INF if is_empty else stable_point
        source.complete_from, source.stable_point = complete_from, stable_point  # of this session, not the one before
        source.state, source.in_snapshot = CONNECTING, True
        if self._merge is None and self._since is None:
            self._since = source.complete_from
            source.state, source.in_snapshot = JOINED, False

    def take(self, name: str, batch: AnyBatch) -> None:
        """A batch of a source. Raises InputViolation if it is illegal and no other source is left."""
        source = self.sources[name]
        source.stable_point = max(source.stable_point, last_stable(batch))
        if source.complete_from == INF and source.stable_point > NEG_INF:
            source.complete_from = source.stable_point
        if source.state == JOINED:
            if self._merge is None:
                self.reader.tell(batch)
                return
            self._absorb(self._merge.apply(name, batch))
        elif source.state in (CONNECTING, JOINING):
            source.keep(batch)
        self._consider()

    def end(self, name: str) -> None:
        """The source's snapshot is complete."""
        source = self.sources[name]
        if source.in_snapshot:
            source.in_snapshot = False
            source.state = JOINING
            self._consider()

    def lost(self, name: str) -> None:
        """The source's connection, which had brought something, has ended. It will be tried again at once."""
        self._gone(name, CONNECTING)

    def failed(self, name: str) -> None:
        """An attempt to connect has brought nothing, so far: the server is taken to be away."""
        self._gone(name, AWAY)

    def _gone(self, name: str, state: str) -> None:
        source = self.sources[name]
        if self._merge is None and state == CONNECTING:
            self._begin_merge()
        was_joined, source.state = source.state == JOINED, state
        source.in_snapshot = False
        source.release()
        if was_joined and self._merge is not None and self._merge.is_attached(name):
            self._tell(self._merge.detach(name).batch)
        if self._unsaid is not None and not self._is_anybody_joined():
            self._await()
        self._consider()

    def to_ask_again(self) -> list[str]:
        """Sources that should be asked for ``known_to``: nobody is joined, and they may know more than they have told;
        or too much is kept of them.
        """
        known_to = self.known_to
        stuck = not self._is_anybody_joined()
        return [
            source.name for source in self.sources.values()
            if source.state == JOINING and known_to is not None
            and (source.kept_bytes > WAITING_BYTES_MAX or (stuck and not _was_asked(source, known_to)))
        ]

    # Joining.

    def _consider(self) -> None:
        """Let sources join that can; if nobody can, and nobody will, accept a gap."""
        while True:
            known_to = self.known_to
            joining = [s for s in self.sources.values() if s.state == JOINING]
            bound = self._joins_up_to()
            ready = [s for s in joining if bound is None or s.complete_from <= bound]
            late = [s for s in joining if s.stable_point >= s.complete_from]  # before that it has told nothing for sure
            if ready:
                self._join(ready[0])
            elif late and self._is_stuck():
                first = min(late, key=lambda s: s.complete_from)
                assert known_to is not None
                gap = SubscriptionGap(known_to, first.complete_from)
                if self._on_gap is not None:
                    self._on_gap(gap)
                self._remember(gap)
                self._join(first, gap)
            else:
                return

    def _joins_up_to(self) -> int | None:
        """Where a source must begin at the latest. None: anywhere, it is the first."""
        if self._unsaid is not None and self._merge is not None and self._is_anybody_joined():
            return self._merge.stable_point  # nothing was told yet, but the merge itself is right from there only
        return self.known_to

    def _is_anybody_joined(self) -> bool:
        return any(source.state == JOINED for source in self.sources.values())

    def _is_stuck(self) -> bool:
        known_to = self.known_to
        return known_to is not None and all(
            source.state in (AWAY, BROKEN) or (source.state == JOINING and _was_asked(source, known_to))
            for source in self.sources.values()
        )

    def _join(self, source: Source, gap: SubscriptionGap | None = None) -> None:
        merge = self._merge
        assert merge is not None
        source.state = JOINED
        if self._since is None:
            self._since = source.complete_from
        kept = source.release()
        if gap is not None:
            fix = BatchBuilder()
            fix.rows = self._frozen_in(gap, kept)
            kept.insert(0, fix.build())
        join_at = source.complete_from
        self._tell(merge.attach(source.name, join_at=None if join_at == NEG_INF else join_at).batch)
        self._tell(merge.admit(source.name).batch)
        for batch in kept:
            if source.state == JOINED and batch.count:
                self._absorb(merge.apply(source.name, batch))

    def _begin_merge(self) -> None:
        """The first break: what the reader was told is what a merge has said."""
        if self._since is not None:  # else nothing came, and nothing broke
            self._go_on_from(*self.reader.everything())

    def _merge_that_said(self, events: Iterable[Event], stable_point: int, batches: Iterable[AnyBatch]) -> Merge:
        """A merge whose output was this: live events, their stable point, and what was said since."""
        known = BatchBuilder()
        for vs, payload, ve in events:
            known.insert(payload, vs, ve)
        if stable_point > NEG_INF:
            known.stable(stable_point)
        policy = parse_policy(self.policy)
        # One that says what an input says, as it says it, has an input that says just this: ten times faster than to
        # load a merge. One whose stables lag would say that of the input later, and so go back.
        if policy.show is Show.FIRST and not policy.lag:
            merge = Merge("r4", self.policy, "any", engine=self.engine)
            merge.attach("the reader", join_at=None if self.since == NEG_INF else self.since)
            merge.admit("the reader")
            for batch in (known.build(), *batches):
                merge.apply("the reader", batch)
            merge.detach("the reader")
            return merge
        replay = OutputReplay("r4", self.engine)
        for batch in (known.build(), *batches):
            replay.add(batch)
        return Merge.resumed(
            replay.live_events(), replay.stable_point, "r4", algorithm="r4", policy=self.policy, closing="any",
            engine=self.engine, right_from=self.since,
        )

    def _go_on(self, known: Known) -> None:
        self._since = known.since
        self.reader.restore(known)
        self._go_on_from(list(known.events), known.stable_point, [])

    def _go_on_from(self, events: list[Event], stable_point: int, batches: list[AnyBatch]) -> None:
        """The reader has these live events, and knows all that ends before the stable point, or before ``since``."""
        if max([stable_point, *map(last_stable, batches)]) > NEG_INF or self.since == NEG_INF:
            self._merge = self._merge_that_said(events, stable_point, batches)
            return
        held = Tdb("held")
        for vs, payload, ve in events:
            held.enter(vs, payload, ve)
        for batch in batches:
            held.apply_batch(batch)
        self._awaited, self._held = self.since, held.live_events()
        self._await()

    def _await(self) -> None:
        """Nothing is told before the stable point reaches ``_awaited``: what ended before is not the reader's."""
        self._unsaid = Tdb("resumed")
        self._merge = Merge("r4", self.policy, "any", engine=self.engine)

    def _frozen_in(self, gap: SubscriptionGap, kept: list[AnyBatch]) -> list[Row]:
        """What the source would say of the events that it lacks, as far as it can be known."""
        assert self._merge is not None
        said = Tdb("source")
        for batch in kept:
            said.apply_batch(batch)
        there = Counter((event.vs, event.payload) for event in said.events())
        held = [(vs, payload, ve) for kind, vs, ve, _, payload in self._merge.live_events().rows() if kind == INSERT]
        rows: list[Row] = []
        # Several events of one key: those that end last are the ones that the source has.
        for vs, payload, ve in reversed(held):
            if there[vs, payload] > 0:
                there[vs, payload] -= 1
                continue
            end = ve if ve < gap.end else max(vs, self.stable_point)
            if end > vs:
                rows.append((INSERT, vs, end, 0, payload))
        return rows[::-1]

    def _remember(self, gap: SubscriptionGap) -> None:
        self.gaps.append(gap)
        if len(self.gaps) > GAPS_MAX:
            self.gaps[:2] = [SubscriptionGap(self.gaps[0].start, self.gaps[1].end)]

    # Telling.

    def _absorb(self, outcome: Outcome) -> None:
        self._tell(outcome.batch)
        for gone in outcome.detached:
            if gone.violation is not None:
                broken = self.sources[gone.input]
                broken.state, broken.problem = BROKEN, gone.violation
                broken.release()
                if all(other.state == BROKEN for other in self.sources.values()):
                    raise gone.violation

    def _tell(self, batch: AnyBatch) -> None:
        if not batch.count:
            return
        if self._unsaid is None:
            self.reader.tell(batch)
            return
        self._unsaid.apply_batch(batch)
        frozen = [event for event in self._unsaid.take_frozen() if event.ve >= self._awaited]
        if self._unsaid.stable_point < self._awaited:
            return
        builder = BatchBuilder()
        builder.rows = _difference(self._held, frozen + self._unsaid.live_events())
        builder.stable(self._unsaid.stable_point)
        self._unsaid, self._held = None, []
        self.reader.tell(builder.build())


def _difference(held: list[Event], wanted: list[Event]) -> list[Row]:
    """What turns the events that a reader without any stable point holds into those that it should have."""
    surplus, missing = Counter(held) - Counter(wanted), Counter(wanted) - Counter(held)
    spare: dict[tuple[int, bytes], list[int]] = {}
    for event in surplus.elements():
        spare.setdefault((event.vs, event.payload), []).append(event.ve)
    builder = BatchBuilder()
    for vs, payload, ve in sorted(missing.elements()):
        ends = spare.get((vs, payload))
        if ends:
            builder.adjust(payload, vs, ends.pop(), ve)
        else:
            builder.insert(payload, vs, ve)
    for (vs, payload), ends in sorted(spare.items()):
        for end in ends:
            builder.adjust(payload, vs, end, vs)
    return builder.rows


def _was_asked(source: Source, known_to: int) -> bool:
    """Whether the source was asked for exactly what the reader lacks: then it has told all that it can."""
    return source.asked_from == known_to
