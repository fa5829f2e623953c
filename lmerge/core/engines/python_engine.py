"""The engine under a merge: the running algorithm, its index, the live output, and what inputs have said.

``Merge`` decides (names, the choice of the algorithm, what happens to an input that breaks a promise) and speaks;
the engine computes. ``Engine`` is what Merge asks of it. There are two: ``PythonEngine`` here, which runs the
algorithms of this package and defines what is right, and ``NativeEngine`` in ``native``, which hands every call to
the compiled core. Both give the same outputs, errors and snapshots; ``engines`` chooses between them.

One call of Merge is: what happens (``apply``, ``remove``, ...), then ``broken`` until it gives none, then ``take``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, Protocol

from lmerge.core.algorithm import Algorithm
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.comparison.r3minus import R3Minus
from lmerge.core.delivered import Delivered
from lmerge.core.elements import INSERT, NEG_INF, STABLE, Event
from lmerge.core.index import Indexed
from lmerge.core.inputs import Input
from lmerge.core.insert_only import R0, R1, R2
from lmerge.core.lead import mark_held
from lmerge.core.policy import Closing, Policy
from lmerge.core.r3 import R3
from lmerge.core.r4 import R4
from lmerge.core.snapshot_text import dump_input_state, dump_live, json_text, load_input_state, load_live
from lmerge.core.switch import merge_waiting, repeats_a_key, switch
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation

ALGORITHMS: Final[dict[str, type[Algorithm]]] = {a.name: a for a in (R0, R1, R2, R3, R4, R3Minus)}


class Engine(Protocol):
    """What Merge asks of an engine. ``inputs``, the merge's own table, is shared, never copied.

    An ``Input`` holds what is known about one input; the engine keeps its counters up to date (``joined``, ``stable``,
    ``last_vs``, ``tie_count``, ``late``).
    """

    @property
    def name(self) -> str:
        """``python`` or ``native``."""

    @property
    def inputs(self) -> Mapping[str, Input]: ...

    @property
    def algorithm(self) -> str:
        """The running algorithm, a key of ALGORITHMS."""

    @property
    def max_stable(self) -> int:
        """The paper's MaxStable."""

    @property
    def announced(self) -> int:
        """The last stable in the output."""

    @property
    def live_count(self) -> int:
        """Number of (Vs, payload) pairs in the index; of live output events where those are tracked apart from it."""

    @property
    def live_bytes(self) -> int:
        """Bytes of the payloads in the index and in the live output events that are tracked apart from it. O(1)."""

    @property
    def visits(self) -> int:
        """Nodes that stables have looked at so far."""

    @property
    def swept(self) -> int:
        """Nodes that were looked at so far for entries of inputs that have gone, beside those that stables visit."""

    @property
    def changes(self) -> int:
        """Inserts and adjusts in the output since the last ``take``."""

    # What happens to inputs. Each is in the table when it attaches, and no longer when it is removed.

    def free_slot(self) -> int:
        """A slot for the next input: no other has it, or has left entries in it."""

    def attach(self, inp: Input) -> None:
        """An input has attached."""

    def remove(self, inp: Input) -> None:
        """An input has gone: none of its entries counts any more (law 3). O(1); they go by and by."""

    def after_detach(self) -> None:
        """The inputs that remain may agree on closing now that one has left."""

    def admit(self, inp: Input) -> None:
        """V.B: an input has joined."""

    def relax(self, inp: Input) -> None:
        """``inp.demanded`` has changed."""

    def excuse(self, inp: Input) -> None:
        """``inp`` is excused: nobody's lead is measured by it for now (``lead``)."""

    # Elements.

    def batch_of(self, inp: Input, batch: AnyBatch) -> AnyBatch:
        """``batch`` as ``apply`` takes it. Raises InvalidBatch if this engine cannot hold it."""

    def apply(self, inp: Input, batch: AnyBatch, start: int) -> InputViolation | None:
        """Merge the elements from ``start`` on. A violation has the index of the offender; those before are merged."""

    def switch(self, algorithm: str, started: bool) -> None:
        """Run another algorithm; ``started``: carry the state over, to something more general."""

    def repeats_a_key(self) -> bool:
        """Whether two live events of the output, or of an input, have one (Vs, payload). Asked under R0-R2 only."""

    def broken(self) -> list[InputViolation]:
        """Promises found broken while another input's elements were merged; they are then forgotten here."""

    def take(self) -> tuple[AnyBatch, tuple[str, ...]]:
        """The output and the names of inputs that joined since the last call."""

    # What can be asked.

    def live_events(self) -> AnyBatch | None:
        """Inserts of the live output events in order of (vs, payload, ve), then the output's stable point if there is
        one; None if they are not known."""

    def supporters(self, batch: AnyBatch) -> list[int]:
        """For each insert of ``batch``: how many inputs have that event now; 0 where they have no entries."""

    def check(self) -> None:
        """Assert every invariant."""

    # Snapshots: fragments of JSON text by field, the same bytes from every engine.

    def state(self) -> dict[str, bytes]:
        """The running algorithm's fields, those of ``Algorithm.state``."""

    def live_state(self) -> bytes:
        """The live output events that are tracked apart from the index, else ``null``."""

    def input_state(self, inp: Input) -> dict[str, bytes]:
        """What ``dump_input_state`` gives."""

    def load(
        self, algorithm: str, state: dict[str, Any], live: list[Any] | None, inputs: Mapping[str, dict[str, Any]]
    ) -> None:
        """The reverse, parsed. The inputs are in the table with their counters; ``inputs``: all fields, by name."""


class PythonEngine:
    """The algorithms of this package. It takes any integer as a time, though only 64 bits are promised."""

    name: Final = "python"

    def __init__(
        self, algorithm: str, inputs: Mapping[str, Input], policy: Policy, closing: Closing, *, track_live: bool,
        keeps_delivered: bool = False,
    ) -> None:
        self.inputs = inputs
        self._policy = policy
        self._closing = closing
        self._track_live = track_live
        self._keeps_delivered = keeps_delivered
        self._algorithm = self._fresh(algorithm)
        self._live = self._new_live()
        self._out = BatchBuilder()
        self._noted = 0  # rows of the pending output that the live output TDB has seen

    @property
    def algorithm(self) -> str:
        return self._algorithm.name

    @property
    def max_stable(self) -> int:
        return self._algorithm.max_stable

    @property
    def announced(self) -> int:
        return self._algorithm.announced

    @property
    def live_count(self) -> int:
        return self._live.live_count if self._live is not None else self._algorithm.node_count()

    @property
    def live_bytes(self) -> int:
        return self._algorithm.payload_bytes() + (0 if self._live is None else self._live.payload_bytes)

    @property
    def visits(self) -> int:
        return int(getattr(self._algorithm, "visits", 0))  # 0 under R0-R2 and R3-

    @property
    def swept(self) -> int:
        return int(getattr(self._algorithm, "swept", 0))

    @property
    def changes(self) -> int:
        return sum(row[0] != STABLE for row in self._out.rows)

    def attach(self, inp: Input) -> None:
        self._algorithm.widen(self._slots())
        self._keep_delivered(inp)
        self._algorithm.demand(self._out)

    def free_slot(self) -> int:
        return self._algorithm.free_slot()

    def remove(self, inp: Input) -> None:
        self._algorithm.forget(inp.slot)

    def after_detach(self) -> None:
        self._algorithm.after_detach(self._out)

    def admit(self, inp: Input) -> None:
        self._algorithm.admit(inp, self._out)

    def relax(self, inp: Input) -> None:
        self._algorithm.demand(self._out)

    def excuse(self, inp: Input) -> None:
        self._algorithm.after_detach(self._out)

    def batch_of(self, inp: Input, batch: AnyBatch) -> AnyBatch:
        return batch

    def apply(self, inp: Input, batch: AnyBatch, start: int) -> InputViolation | None:
        stop = batch.count
        try:
            self._algorithm.apply(inp, batch, start, self._out)
        except InputViolation as violation:
            stop = violation.index
            return violation
        finally:
            if inp.delivered is not None:
                inp.delivered.add(islice(batch.rows(start), stop - start), min(inp.stable, self.max_stable))
            self._algorithm.tidy(stop - start)
        return None

    def switch(self, algorithm: str, started: bool) -> None:
        new = self._fresh(algorithm)
        for inp in self.inputs.values():
            inp.tie_order, inp.tie_marks = {}, {}
        new.right_from = self._algorithm.right_from  # an input may be admitted before anything is said
        if started:
            self._note_live()
            live = self._live_events()
            assert live is not None, "a switch without the live events"
            switch(self._algorithm, new, live, self._out)
        else:
            new.widen(self._slots())
        # A downgrade comes in the middle of a call: what it has to report so far must not go with the old algorithm.
        new.newly_joined, new.broken = self._algorithm.newly_joined, self._algorithm.broken
        if started and isinstance(new, Indexed):
            merge_waiting(new, self._out)
        self._algorithm = new
        for inp in self.inputs.values():
            self._keep_delivered(inp, from_the_start=not started)
        self._live = self._new_live() if new.shown() is not None else self._live or self._new_live()

    def repeats_a_key(self) -> bool:
        self._note_live()
        live = self._live_events()
        return live is not None and repeats_a_key(self._algorithm, live)

    def broken(self) -> list[InputViolation]:
        broken, self._algorithm.broken = self._algorithm.broken, []
        return broken

    def take(self) -> tuple[AnyBatch, tuple[str, ...]]:
        joined = tuple(self._algorithm.newly_joined)
        self._algorithm.newly_joined.clear()
        self._note_live()
        out, self._out, self._noted = self._out, BatchBuilder(), 0
        return out.build(), joined

    def live_events(self) -> AnyBatch | None:
        events = self._live_events()
        if events is None:
            return None
        out = BatchBuilder()
        for vs, payload, ve in sorted(events):
            out.insert(payload, vs, ve)
        if self.announced > NEG_INF:
            out.stable(self.announced)
        return out.build()

    def supporters(self, batch: AnyBatch) -> list[int]:
        supporters = self._algorithm.supporters
        return [supporters(vs, ve, payload) for kind, vs, ve, _, payload in batch.rows() if kind == INSERT]

    def check(self) -> None:
        self._algorithm.check()
        assert self._algorithm.inputs is self.inputs
        if self._live is not None:
            self._live.check()
            assert self._live.stable_point == self.announced

    def state(self) -> dict[str, bytes]:
        return {name: json_text(value) for name, value in self._algorithm.state().items()}

    def live_state(self) -> bytes:
        return json_text(None if self._live is None else dump_live(self._live))

    def input_state(self, inp: Input) -> dict[str, bytes]:
        return {name: json_text(value) for name, value in dump_input_state(inp, self.max_stable).items()}

    def load(
        self, algorithm: str, state: dict[str, Any], live: list[Any] | None, inputs: Mapping[str, dict[str, Any]]
    ) -> None:
        for inp in self.inputs.values():
            load_input_state(inp, inputs[inp.name])
        self._algorithm = self._fresh(algorithm)
        self._algorithm.load(state)
        mark_held(self.inputs.values(), self.max_stable, self._policy)
        self._live = None if live is None else load_live(live, self.announced)

    def _fresh(self, algorithm: str) -> Algorithm:
        return ALGORITHMS[algorithm](self.inputs, self._policy, self._closing)

    def _keep_delivered(self, inp: Input, *, from_the_start: bool = True) -> None:
        """Keep what ``inp`` delivers where that is asked for, and forget it where an index has it."""
        if not self._keeps_delivered or inp.observes or isinstance(self._algorithm, Indexed):
            inp.delivered = None
        elif from_the_start:
            inp.delivered = Delivered()

    def _slots(self) -> int:
        return 1 + max((inp.place for inp in self.inputs.values()), default=-1)

    def _new_live(self) -> Tdb | None:
        if not self._track_live or self._algorithm.shown() is not None:
            return None
        return Tdb("output", keep_frozen=False, stable_point=self.announced)

    def _live_events(self) -> list[Event] | None:
        """Output events that are not fully frozen, in any order."""
        if self._live is not None:
            return self._live.live_events()
        shown = self._algorithm.shown()
        return None if shown is None else [event for event in shown if event.ve >= self.announced]

    def _note_live(self) -> None:
        """Bring the live output TDB up to the pending output; a call can do so more than once."""
        if self._live is not None:
            for row in self._out.rows[self._noted :]:
                self._live.apply_row(row)
        self._noted = len(self._out.rows)
