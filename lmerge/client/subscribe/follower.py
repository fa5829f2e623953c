"""Merges the streams of several servers into one for a reader, over lost connections, without repeating anything.

Sans-I/O; ``subscriber`` and ``connection`` call it. A *source* is the stream of one server. The reader's result is
final for events that end before ``final_to``.

With one server and no lost connection, the server's stream is the reader's stream. Otherwise a subscription is an input
that joins (V.B), so the core's own merge does the work. Each source is an input of a local merge (R4), and is right
from its ``complete_from`` on. The events that the reader has already enter as one more input, which leaves at once. The
local merge does not emit again what a snapshot or a journal repeats. It adjusts what they change, contradicts no stable
point that the reader has received, and omits stables before it. A source that is lost is detached; the others go on.

A source whose ``complete_from`` lies beyond ``final_to`` waits: its elements are kept until the others have reached
that time.

    reader  stable 100                            server h1, joined: at 104
    h2 has restarted; complete from 110           waits: events that end in [100, 110) are complete at h1 alone
    h1 sends stable(112)                          h2 joins; from now on either of them can die

A gap arises only if no server can supply what lies between: no source is joined, and none can join, because every
server is away or begins too late, although it was asked for ``final_to``. Then the source that begins first is
admitted, and the gap is reported. An event that the reader has and that source lacks was frozen in the gap, or removed.
If its last end lies in the gap, the follower freezes it with that end. If its last end lies behind the gap, that end is
wrong. Then the follower ends the event at the start of the gap, or removes it if it starts later than that.

A reader that begins with no more than a token, ``MERGE@T``, receives nothing until the stable point has reached T. Then
it receives the events that end at T or later, as they are then. The same holds for a reader whose first snapshot broke
off before its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from lmerge.client.subscribe.reader import Reader, ResumePoint, last_stable
from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INF, INSERT, NEG_INF, Event
from lmerge.core.engines import selection
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.policy import Show, parse_policy
from lmerge.core.resume import OutputReplay, resumed
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation

# Gaps that are kept one by one: some 100 KB, more than a person examines, and each was reported when it arose.
GAPS_MAX: Final = 1000
# Bytes kept of a source that waits to join. Beyond, it is asked to begin again, which costs one more snapshot.
WAITING_BYTES_MAX: Final = 64 * 2**20

# The states of a source.
AWAY: Final = "away"  # an attempt to connect has failed
CONNECTING: Final = "connecting"  # asked; its snapshot is not complete
JOINING: Final = "joining"  # it begins after ``final_to``
JOINED: Final = "joined"
BROKEN: Final = "broken"  # its stream was not legal


class SubscriptionGap(NamedTuple):
    """Events that were frozen between these two stable points may be missing, or end at another time."""

    start: int
    end: int


class FollowedSource:
    """One server, as the follower sees it."""

    __slots__ = (
        "asked_from",
        "complete_from",
        "in_snapshot",
        "kept",
        "kept_bytes",
        "name",
        "problem",
        "stable_point",
        "state",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = CONNECTING  # a server that was never tried may hold everything
        self.asked_from: int | None = None  # it was asked to begin there; None: at its present stable point
        self.complete_from = NEG_INF
        self.stable_point = NEG_INF  # the source's own, as last received
        self.in_snapshot = False
        self.kept: list[AnyBatch] = []
        self.kept_bytes = 0
        self.problem: InputViolation | None = None

    def keep(self, batch: AnyBatch) -> None:
        self.kept.append(batch)
        self.kept_bytes += batch.payload_sizes[0] + 32 * batch.count

    def release(self) -> list[AnyBatch]:
        kept, self.kept, self.kept_bytes = self.kept, [], 0
        return kept


class Follower:
    """``reader`` holds what was delivered; ``gaps`` lists what may have been missed, oldest first.

    ``policy``: how the local merge shows events (``core.policy``). ``on_gap`` is called before a gap is accepted; what
    it raises goes to the caller, and nothing has changed.

    Beyond GAPS_MAX the two oldest gaps become one, from the start of the first to the end of the second. What lies
    between them then counts as uncertain too, but no gap is ever forgotten.
    """

    def __init__(
        self,
        sources: Iterable[str],
        *,
        policy: str | None = None,
        engine: str = selection.AUTO,
        resume_point: ResumePoint | None = None,
        on_gap: Callable[[SubscriptionGap], None] | None = None,
    ) -> None:
        self.engine: Final = selection.resolve(engine)
        self.sources = {name: FollowedSource(name) for name in sources}
        self.policy: Final = policy or ("lazy" if len(self.sources) > 1 else "eager")
        self.gaps: list[SubscriptionGap] = []
        self.reader = Reader(self.engine)
        self._on_gap = on_gap
        self._merge: Merge | None = None
        self._since: int | None = None  # events that end before never mattered; None: nothing has come
        self._withheld_until = NEG_INF  # nothing is delivered before the merge's stable point is here
        self._withheld: Tdb | None = None  # what will be delivered then
        self._held: list[Event] = []  # the part of it that the reader has already
        if resume_point is not None:
            self._resume(resume_point)
        elif len(self.sources) > 1 or policy is not None:
            self._merge = Merge(MergeConfig("r4", self.policy, "any", engine=self.engine))

    # The state.

    @property
    def is_complete(self) -> bool:
        """Whether stable(+inf) has been delivered: nothing more will come."""
        return self.reader.delivered_to == INF  # not of the merge, which another thread may be changing

    @property
    def stable_point(self) -> int:
        """The last stable that was delivered, or waits to be handed over."""
        if self._merge is not None:
            return self._merge.stable_point if self._withheld is None else NEG_INF
        return self.reader.delivered_to

    @property
    def since(self) -> int:
        """Events that end before never mattered to the reader."""
        return NEG_INF if self._since is None else self._since

    @property
    def final_to(self) -> int | None:
        """The reader has every event that ends before, or does not need it; None: nothing has come yet."""
        return None if self._since is None else max(self._since, self.stable_point)

    # The events of servers.

    def asked(self, name: str, begin: int | None) -> None:
        """Note that the source is asked for a subscription that begins at ``begin``; None: now.

        A source that is away stays away until it answers.
        """
        source = self.sources[name]
        if source.state != AWAY:
            source.state = CONNECTING
        source.asked_from, source.in_snapshot = begin, False
        source.release()

    def begin(self, name: str, stable_point: int, complete_from: int | None) -> None:
        """Begin a snapshot taken at ``stable_point``. ``complete_from`` None: the server is of an older version."""
        source = self.sources[name]
        if complete_from is None:
            # Such a server that has sent no stable may have been restarted, empty: then it holds what its publishers
            # still had, and that is complete from its first stable on.
            is_empty = stable_point == NEG_INF and self.final_to not in (None, NEG_INF)
            complete_from = INF if is_empty else stable_point
        source.complete_from, source.stable_point = complete_from, stable_point  # of this session, not the one before
        source.state, source.in_snapshot = CONNECTING, True
        if self._merge is None and self._since is None:
            self._since = source.complete_from
            source.state, source.in_snapshot = JOINED, False

    def take(self, name: str, batch: AnyBatch) -> None:
        """Take a batch of a source. Raises InputViolation if it is illegal and no other source is left."""
        source = self.sources[name]
        source.stable_point = max(source.stable_point, last_stable(batch))
        if source.complete_from == INF and source.stable_point > NEG_INF:
            source.complete_from = source.stable_point
        if source.state == JOINED:
            if self._merge is None:
                self.reader.deliver(batch)
                return
            self._take_outcome(self._merge.apply(name, batch))
        elif source.state in (CONNECTING, JOINING):
            source.keep(batch)
        self._join_ready_sources()

    def end(self, name: str) -> None:
        """Note that the source's snapshot is complete."""
        source = self.sources[name]
        if source.in_snapshot:
            source.in_snapshot = False
            source.state = JOINING
            self._join_ready_sources()

    def lost(self, name: str) -> None:
        """Note that the source's connection, which had delivered something, has ended. It is tried again at once."""
        self._source_gone(name, CONNECTING)

    def failed(self, name: str) -> None:
        """Note that an attempt to connect has delivered nothing so far: the server counts as away."""
        self._source_gone(name, AWAY)

    def _source_gone(self, name: str, state: str) -> None:
        source = self.sources[name]
        if self._merge is None and state == CONNECTING:
            self._begin_merge()
        was_joined, source.state = source.state == JOINED, state
        source.in_snapshot = False
        source.release()
        if was_joined and self._merge is not None and self._merge.is_attached(name):
            self._emit(self._merge.detach(name).batch)
        if self._withheld is not None and not self._has_joined_source():
            self._withhold()
        self._join_ready_sources()

    def to_ask_again(self) -> list[str]:
        """Return the sources that must be asked again from ``final_to``.

        They are those that may hold more than they have sent while none is joined, and those of which too much is kept.
        """
        final_to = self.final_to
        stuck = not self._has_joined_source()
        return [
            source.name
            for source in self.sources.values()
            if source.state == JOINING
            and final_to is not None
            and (source.kept_bytes > WAITING_BYTES_MAX or (stuck and not _was_asked(source, final_to)))
        ]

    # Joining.

    def _join_ready_sources(self) -> None:
        """Let sources join that can; if none can, and none will, accept a gap."""
        while True:
            final_to = self.final_to
            joining = [s for s in self.sources.values() if s.state == JOINING]
            bound = self._joins_up_to()
            ready = [s for s in joining if bound is None or s.complete_from <= bound]
            late = [s for s in joining if s.stable_point >= s.complete_from]  # before that its stream is not certain
            if ready:
                self._join(ready[0])
            elif late and self._is_stuck():
                first = min(late, key=lambda s: s.complete_from)
                assert final_to is not None
                gap = SubscriptionGap(final_to, first.complete_from)
                if self._on_gap is not None:
                    self._on_gap(gap)
                self._record_gap(gap)
                self._join(first, gap)
            else:
                return

    def _joins_up_to(self) -> int | None:
        """Return where a source must begin at the latest. None: anywhere, it is the first."""
        if self._withheld is not None and self._merge is not None and self._has_joined_source():
            return self._merge.stable_point  # nothing was delivered yet, but the merge is right from there only
        return self.final_to

    def _has_joined_source(self) -> bool:
        return any(source.state == JOINED for source in self.sources.values())

    def _is_stuck(self) -> bool:
        final_to = self.final_to
        return final_to is not None and all(
            source.state in (AWAY, BROKEN) or (source.state == JOINING and _was_asked(source, final_to))
            for source in self.sources.values()
        )

    def _join(self, source: FollowedSource, gap: SubscriptionGap | None = None) -> None:
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
        self._emit(merge.attach(source.name, join_at=None if join_at == NEG_INF else join_at).batch)
        self._emit(merge.admit(source.name).batch)
        for batch in kept:
            if source.state == JOINED and batch.count:
                self._take_outcome(merge.apply(source.name, batch))

    def _begin_merge(self) -> None:
        """Begin the local merge at the first break: what the reader has received is what that merge has emitted."""
        if self._since is not None:  # else nothing came, and nothing broke
            self._resume_from(*self.reader.everything())

    def _merge_that_emitted(self, events: Iterable[Event], stable_point: int, batches: Iterable[AnyBatch]) -> Merge:
        """Return a merge whose output was this: live events, their stable point, and the batches since."""
        before = BatchBuilder()
        for vs, payload, ve in events:
            before.insert(payload, vs, ve)
        if stable_point > NEG_INF:
            before.stable(stable_point)
        policy = parse_policy(self.policy)
        # A policy that shows events at once needs an input with just this output: ten times faster than to load a
        # merge. A policy whose stables lag would emit that input's stables later, and so go back.
        if policy.show is Show.FIRST and not policy.lag:
            merge = Merge(MergeConfig("r4", self.policy, "any", engine=self.engine))
            merge.attach("the reader", join_at=None if self.since == NEG_INF else self.since)
            merge.admit("the reader")
            for batch in (before.build(), *batches):
                merge.apply("the reader", batch)
            merge.detach("the reader")
            return merge
        replay = OutputReplay("r4", self.engine)
        for batch in (before.build(), *batches):
            replay.add(batch)
        return resumed(
            replay.live_events(),
            replay.stable_point,
            "r4",
            MergeConfig("r4", self.policy, "any", engine=self.engine),
            right_from=self.since,
        )

    def _resume(self, resume_point: ResumePoint) -> None:
        self._since = resume_point.since
        self.reader.restore(resume_point)
        self._resume_from(list(resume_point.events), resume_point.stable_point, [])

    def _resume_from(self, events: list[Event], stable_point: int, batches: list[AnyBatch]) -> None:
        """Resume a reader that has these live events, and everything that ends before the stable point or ``since``."""
        if max([stable_point, *map(last_stable, batches)]) > NEG_INF or self.since == NEG_INF:
            self._merge = self._merge_that_emitted(events, stable_point, batches)
            return
        held = Tdb("held")
        for vs, payload, ve in events:
            held.enter(vs, payload, ve)
        for batch in batches:
            held.apply_batch(batch)
        self._withheld_until, self._held = self.since, held.live_events()
        self._withhold()

    def _withhold(self) -> None:
        """Deliver nothing before the stable point reaches ``_withheld_until``: the reader needs nothing before it."""
        self._withheld = Tdb("resumed")
        self._merge = Merge(MergeConfig("r4", self.policy, "any", engine=self.engine))

    def _frozen_in(self, gap: SubscriptionGap, kept: list[AnyBatch]) -> list[Row]:
        """Return what the source would have sent of the events that it lacks, as far as that can be derived."""
        assert self._merge is not None
        sent = Tdb("source")
        for batch in kept:
            sent.apply_batch(batch)
        there = Counter((event.vs, event.payload) for event in sent.events())
        held = [(vs, payload, ve) for kind, vs, ve, _, payload in self._merge.live_events().rows() if kind == INSERT]
        rows: list[Row] = []
        # Several events of one key: the source has those that end last.
        for vs, payload, ve in reversed(held):
            if there[vs, payload] > 0:
                there[vs, payload] -= 1
                continue
            end = ve if ve < gap.end else max(vs, self.stable_point)
            if end > vs:
                rows.append((INSERT, vs, end, 0, payload))
        return rows[::-1]

    def _record_gap(self, gap: SubscriptionGap) -> None:
        self.gaps.append(gap)
        if len(self.gaps) > GAPS_MAX:
            self.gaps[:2] = [SubscriptionGap(self.gaps[0].start, self.gaps[1].end)]

    # Delivery.

    def _take_outcome(self, outcome: Outcome) -> None:
        self._emit(outcome.batch)
        for gone in outcome.detached:
            if gone.violation is not None:
                broken = self.sources[gone.input]
                broken.state, broken.problem = BROKEN, gone.violation
                broken.release()
                if all(other.state == BROKEN for other in self.sources.values()):
                    raise gone.violation

    def _emit(self, batch: AnyBatch) -> None:
        if not batch.count:
            return
        if self._withheld is None:
            self.reader.deliver(batch)
            return
        self._withheld.apply_batch(batch)
        frozen = [event for event in self._withheld.take_frozen() if event.ve >= self._withheld_until]
        if self._withheld.stable_point < self._withheld_until:
            return
        builder = BatchBuilder()
        builder.rows = _difference(self._held, frozen + self._withheld.live_events())
        builder.stable(self._withheld.stable_point)
        self._withheld, self._held = None, []
        self.reader.deliver(builder.build())


def _difference(held: list[Event], target: list[Event]) -> list[Row]:
    """Return what turns the events of a reader without any stable point into those that it must have."""
    surplus, missing = Counter(held) - Counter(target), Counter(target) - Counter(held)
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


def _was_asked(source: FollowedSource, final_to: int) -> bool:
    """Return whether the source was asked for exactly what the reader lacks: then it has sent all that it can."""
    return source.asked_from == final_to
