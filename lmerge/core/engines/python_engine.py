"""The engine of a merge: the running algorithm, its index, the live output, and the state of the inputs.

``Merge`` decides about names, the choice of the algorithm and inputs that break a promise, and creates the messages;
the engine computes. ``Engine`` is the interface that Merge uses. There are two engines. ``PythonEngine`` in this module
runs the algorithms of this package and is the definition. ``NativeEngine`` in ``native_engine`` passes every call to
the compiled core. Both give the same outputs, errors and snapshots. ``selection`` chooses between them.

In one call of Merge, the engine first gets the change (``apply``, ``remove``, ...), then ``broken`` until that returns
none, then ``take``.
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
from lmerge.core.node_block import unpacked
from lmerge.core.policy import Closing, Policy
from lmerge.core.r3 import R3
from lmerge.core.r4 import R4
from lmerge.core.snapshot_text import dump_input_state, dump_live, json_text, load_input_state, load_live
from lmerge.core.switch import merge_waiting, repeats_a_key, switch
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation

ALGORITHMS: Final[dict[str, type[Algorithm]]] = {a.name: a for a in (R0, R1, R2, R3, R4, R3Minus)}


class Engine(Protocol):
    """The interface that Merge uses. ``inputs``, the merge's own table, is shared, never copied.

    An ``Input`` holds the state of one input. The engine keeps its counters up to date (``joined``, ``stable``,
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
        """Number of (Vs, payload) pairs in the index, or of live output events where those are tracked separately."""

    @property
    def live_bytes(self) -> int:
        """Bytes of the payloads in the index and in the live output events that are tracked separately. O(1)."""

    @property
    def visits(self) -> int:
        """Number of nodes that stables have visited so far."""

    @property
    def swept(self) -> int:
        """Number of nodes that were swept of entries of inputs that have left, beside those that stables visit."""

    @property
    def changes(self) -> int:
        """Inserts and adjusts in the output since the last ``take``."""

    # Changes of inputs. An input is in the table when it attaches, and is removed from it before ``remove``.

    def free_slot(self) -> int:
        """Return a slot for the next input: no input uses it, and no input that has left has entries in it."""

    def attach(self, inp: Input) -> None:
        """Attach an input."""

    def remove(self, inp: Input) -> None:
        """Remove an input: its entries do not count any more (law 3). O(1); later calls remove the entries."""

    def after_detach(self) -> None:
        """Let the inputs that remain decide again, on closing for example: one has left."""

    def admit(self, inp: Input) -> None:
        """Join an input (V.B)."""

    def relax(self, inp: Input) -> None:
        """Take over ``inp.demanded``, which has changed."""

    def excuse(self, inp: Input) -> None:
        """Excuse ``inp``: the lead of others is not measured by it for now (``lead``)."""

    # Elements.

    def batch_of(self, inp: Input, batch: AnyBatch) -> AnyBatch:
        """Return ``batch`` as ``apply`` takes it. Raises InvalidBatch if this engine cannot hold it."""

    def apply(self, inp: Input, batch: AnyBatch, start: int) -> InputViolation | None:
        """Merge the elements from ``start`` on.

        Returns a violation with the index of the offender, None if there is none. The elements before it are merged.
        """

    def switch(self, algorithm: str, started: bool) -> None:
        """Run another algorithm. ``started``: it is more general, and the state is carried over."""

    def repeats_a_key(self) -> bool:
        """Return whether two live events of the output, or of one input, have one (Vs, payload). R0-R2 only."""

    def broken(self) -> list[InputViolation]:
        """Remove and return the promises found broken while another input's elements were merged."""

    def take(self) -> tuple[AnyBatch, tuple[str, ...]]:
        """Return the output and the names of the inputs that joined since the last call."""

    # Queries.

    def live_events(self) -> AnyBatch | None:
        """Return inserts of the live output events, then the output's stable point if there is one.

        The inserts are in order of (vs, payload, ve). None if the live events are not tracked.
        """

    def supporters(self, batch: AnyBatch) -> list[int]:
        """Return, for each insert of ``batch``, how many inputs have that event now; 0 where they have no entries."""

    def check(self) -> None:
        """Assert every invariant."""

    # Snapshots: JSON text by field, the same bytes from every engine.

    def state(self, *, with_nodes: bool = True) -> dict[str, bytes]:
        """Return the fields of the running algorithm: those of ``Algorithm.state``.

        ``with_nodes``: otherwise without what ``node_block`` returns.
        """

    def node_block(self) -> bytes | None:
        """Return the nodes of the index as bytes (``core.node_block``); None if the engine has no such form of them."""

    def live_state(self) -> bytes:
        """Return the live output events where they are tracked separately from the index, else ``null``."""

    def input_state(self, inp: Input) -> dict[str, bytes]:
        """Return the fields of ``dump_input_state``."""

    def load(
        self, algorithm: str, state: dict[str, Any], live: list[Any] | None, inputs: Mapping[str, dict[str, Any]]
    ) -> None:
        """Load the parsed fields. The inputs are in the table with their counters. ``inputs``: all fields, by name."""


class PythonEngine:
    """Runs the algorithms of this package. It accepts any integer as a time, although only 64 bits are supported."""

    name: Final = "python"

    def __init__(
        self,
        algorithm: str,
        inputs: Mapping[str, Input],
        policy: Policy,
        closing: Closing,
        *,
        track_live: bool,
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
        self._noted = 0  # number of rows of the pending output that the live output TDB contains

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
        new.right_from = self._algorithm.right_from  # an input may be admitted before the first element
        if started:
            self._note_live()
            live = self._live_events()
            assert live is not None, "a switch without the live events"
            switch(self._algorithm, new, live, self._out)
        else:
            new.widen(self._slots())
        # A downgrade happens in the middle of a call: the new algorithm takes over what the old one has to report.
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

    def state(self, *, with_nodes: bool = True) -> dict[str, bytes]:
        return {name: json_text(value) for name, value in self._algorithm.state().items()}

    def node_block(self) -> bytes | None:
        return None

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
        self._algorithm.load(unpacked(algorithm, state))
        mark_held(self.inputs.values(), self.max_stable, self._policy)
        self._live = None if live is None else load_live(live, self.announced)

    def _fresh(self, algorithm: str) -> Algorithm:
        return ALGORITHMS[algorithm](self.inputs, self._policy, self._closing)

    def _keep_delivered(self, inp: Input, *, from_the_start: bool = True) -> None:
        """Begin to keep what ``inp`` delivers if that is required; drop it where an index has it."""
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
        """Return the output events that are not fully frozen, in any order; None if they are not tracked."""
        if self._live is not None:
            return self._live.live_events()
        shown = self._algorithm.shown()
        return None if shown is None else [event for event in shown if event.ve >= self.announced]

    def _note_live(self) -> None:
        """Apply the pending output to the live output TDB. One call of Merge may do this several times."""
        if self._live is not None:
            for row in self._out.rows[self._noted :]:
                self._live.apply_row(row)
        self._noted = len(self._out.rows)
