"""R3- (VI.A): the simpler algorithm for case R3, kept for comparison.

Every input has its own index, and one more index holds the output. A stable searches the output's index and that of
the freezing input. The payload is stored once per input, and an event costs several look-ups. in2t saves both costs.
The output TDB is that of R3. Benchmarks use R3-, and tests compare it with R3. It supports the lazy policy only.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping

from sortedcontainers import SortedDict

from lmerge.core import violations
from lmerge.core.algorithm import Algorithm, State
from lmerge.core.batch import AnyBatch, BatchBuilder
from lmerge.core.elements import ADJUST, INSERT, Event
from lmerge.core.inputs import Input
from lmerge.core.policy import Closing, Policy
from lmerge.core.properties import R3_MINUS, Case

Key = tuple[int, bytes]


class R3Minus(Algorithm):
    """One index per input and one for the output, each ordered by (Vs, payload)."""

    case = Case.R3
    name = R3_MINUS

    def __init__(self, inputs: Mapping[str, Input], policy: Policy, closing: Closing) -> None:
        super().__init__(inputs, policy, closing)
        self.output: SortedDict = SortedDict()
        self.indexes: dict[int, SortedDict] = {}

    def apply(self, inp: Input, batch: AnyBatch, start: int, out: BatchBuilder) -> None:
        if inp.observes:
            self.observe(inp, batch, start, out)
            return
        index_of_input = self.indexes.setdefault(inp.slot, SortedDict())
        for index, row in enumerate(batch.rows(start), start):
            kind, vs, ve, vold, payload = row
            key = (vs, bytes(bytearray(payload)))  # a copy: separate indexes do not share payloads
            if kind == INSERT:
                if vs < inp.floor() or ve < vs:
                    raise self.refuse_insert(inp, row, index)
                inp.last_vs = vs
                if key in index_of_input:
                    raise violations.duplicate_key(inp.name, row, index)
                if vs < self.max_stable and key not in self.output:
                    inp.late += 1
                elif ve > vs:
                    index_of_input[key] = ve
                    if key not in self.output:
                        self.output[key] = ve
                        out.insert(payload, vs, ve)
            elif kind == ADJUST:
                refusal = self.refuse_adjust(inp, row, index)
                if refusal is not None:
                    raise refusal
                if vs < self.max_stable and key not in self.output:
                    inp.late += 1
                elif index_of_input.get(key) != vold:
                    raise violations.unknown_event(inp.name, row, index, violations.KNOWN_TO_R3_MINUS)
                elif ve > vs:
                    index_of_input[key] = ve
                else:
                    del index_of_input[key]
            else:
                self.stable(inp, row, index, out)

    def freeze(self, t: int, inp: Input, out: BatchBuilder) -> None:
        mine = self.indexes.setdefault(inp.slot, SortedDict())
        below = (t, b"")
        for key in list(self.output.irange(maximum=below, inclusive=(True, False))):
            vs, payload = key
            shown, input_end = self.output[key], mine.get(key)
            half_frozen = vs < self.max_stable
            if half_frozen and (input_end is None or input_end < self.max_stable):
                latest = self.latest_lacked(inp)
                input_end = self._witness(key, latest)
                if input_end is None:
                    input_end = self.max_stable if shown > latest and t > latest else shown
            if input_end is None:
                out.adjust(payload, vs, shown, vs)
                self._drop(key)
                continue
            if input_end != shown and (input_end < t or shown < t):
                out.adjust(payload, vs, shown, input_end)
                self.output[key] = input_end
            if input_end < t:
                self._drop(key)

    def forget(self, slot: int) -> None:
        self.indexes.pop(slot, None)

    def shown(self) -> Iterator[Event]:
        return (Event(vs, payload, ve) for (vs, payload), ve in self.output.items())

    def node_count(self) -> int:
        return len(self.output)

    def state(self) -> State:
        indexes = {str(slot): _plain(index) for slot, index in sorted(self.indexes.items())}
        return super().state() | {"output": _plain(self.output), "indexes": indexes}

    def load(self, state: State) -> None:
        super().load(state)
        self.output = _unplain(state["output"])
        self.indexes = {int(slot): _unplain(rows) for slot, rows in state["indexes"].items()}

    def _witness(self, key: Key, latest: int) -> int | None:
        best, input_end = None, None
        for inp in self.inputs.values():
            ve = self.indexes.get(inp.slot, {}).get(key)
            is_further = inp.counts and (best is None or inp.stable > best.stable)
            if is_further and ve is not None and self.max_stable <= ve <= latest:
                best, input_end = inp, ve
        return input_end

    def _drop(self, key: Key) -> None:
        del self.output[key]
        for index in self.indexes.values():
            index.pop(key, None)


def _plain(index: SortedDict) -> list[list[int | str]]:
    return [[vs, b64encode(payload).decode(), ve] for (vs, payload), ve in index.items()]


def _unplain(rows: list[list[int | str]]) -> SortedDict:
    return SortedDict({(int(vs), b64decode(str(payload))): int(ve) for vs, payload, ve in rows})
