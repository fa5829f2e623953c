"""A step of a plan that runs on the native core: a ``PlanOperator`` with the same output, errors and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from lmerge._native import ColumnBatch, ColumnForm, TemporalOperator
from lmerge.temporal.changes import Delta
from lmerge.temporal.columns import ColumnDelta, ColumnOperator
from lmerge.temporal.values import order_key
from lmerge.wire.native_fitting import declared
from lmerge.wire.schema import Schema

# A process has few schemas.
FORMS_MAX: Final = 256


@lru_cache(maxsize=FORMS_MAX)
def column_form(schema: Schema) -> ColumnForm:
    """Return the rows of a schema as columns."""
    return ColumnForm(declared(schema))


class NativeStep(ColumnOperator):
    """A native operator. ``description``: its kind and parameters (``describing``)."""

    def __init__(self, name: str, inputs: Sequence[Schema], output: Schema, description: Mapping[str, Any]) -> None:
        super().__init__(name, order_key(output))
        self.inputs = len(inputs)
        self._forms = [column_form(schema) for schema in inputs]
        self._native = TemporalOperator(name, self._forms, column_form(output), dict(description))

    def as_columns(self, at: int, delta: Delta) -> ColumnBatch:
        """Return a batch of an input as columns."""
        return self._forms[at].batch(delta.changes, delta.stable, delta.mark)

    def step_columns(self, deltas: Sequence[ColumnDelta]) -> ColumnBatch:
        """Take a batch of each input, and return the batch of the output. Raises LmergeError as ``step``."""
        found = self._native.step(deltas)  # type: ignore[arg-type]  # who has columns has those of the native core
        if found.stable is not None:
            self.stable = found.stable
        return found

    def mark_of(self, mark: int) -> int:
        """Return the watermark of the output at one of the inputs."""
        return self._native.mark_of(mark)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input."""
        super().fast_forward(t)
        return self._native.fast_forward(t)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values: the same as in Python."""
        return self._native.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned, here or in Python. The operator is a new one."""
        super().restore(state)
        self._native.restore(state)

    def packed_state(self) -> bytes:
        """Return ``state`` as MessagePack."""
        return self._native.packed_state()

    def restore_packed(self, state: bytes) -> None:
        """Take a state that ``packed_state`` has returned, here or in Python. The operator is a new one."""
        self.stable, self.fast_forwarded = self._native.restore_packed(state)

    def check(self) -> None:
        """Assert the invariants of the state."""
        self._native.check()

    def live(self) -> int:
        """Return the number of events that the operator keeps."""
        return self._native.live()

    def sizes(self) -> dict[str, int]:
        """Return what the operator keeps besides events, by kind, such as groups."""
        return dict(self._native.sizes())

    @property
    def skipped(self) -> int:
        """How often an event was left out after feedback, and not evaluated."""
        return self._native.skipped

    @property
    def purged(self) -> int:  # type: ignore[override]  # the operators in Python count in an attribute
        """How many events were dropped because the consumer does not need them."""
        return self._native.purged
