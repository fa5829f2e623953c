"""The verdict over a tree on a system: every operator, every stable point, and the laws of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.runs.settings import Item
from lmerge.testing.judging.operator_run import OperatorRun, Step
from lmerge.testing.judging.verdict import Judge, Judgement, OperatorVerdict
from lmerge.testing.systems.inputs import TreeInputs, forms_of, inputs_of, items_of
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, System, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree


@dataclass(frozen=True)
class TreeVerdict:
    """The verdict over one tree. ``operators``: over each of them, those that were judged first in order.

    ``failure``: what the system failed with, if it gave no result, or which relation of how it runs does not hold.
    ``relation``: the name of that relation. ``run``: what it gave.
    """

    tree: ConcreteTree
    system: str
    operators: Sequence[OperatorVerdict] = ()
    failure: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    run: SystemRun | None = None
    relation: str = ""

    @property
    def outcome(self) -> Judgement:
        """The worst outcome: a difference before what is broken, and that before what could not be judged."""
        if self.failure:
            return Judgement.DIFFERENT
        found = {one.outcome for one in self.operators}
        order = (Judgement.DIFFERENT, Judgement.BROKEN, Judgement.NOT_JUDGED)
        return next((one for one in order if one in found), Judgement.EQUAL)

    @property
    def is_bad(self) -> bool:
        """Whether something is wrong."""
        return self.outcome in (Judgement.DIFFERENT, Judgement.BROKEN)

    @property
    def blamed(self) -> OperatorVerdict | None:
        """The verdict over the first operator that is not equal, in the order of the plan."""
        return next((one for one in self.operators if one.outcome is not Judgement.EQUAL), None)

    def __str__(self) -> str:
        lines = [f"{self.tree.name} on {self.system}: {self.outcome}"]
        if self.failure:
            lines.append(f"  {self.failure}")
        lines += [
            f"  {line}" for one in self.operators if one.outcome is not Judgement.EQUAL for line in str(one).split("\n")
        ]
        return "\n".join(lines)


def check(
    tree: ConcreteTree, system: System, judge: Judge, inputs: TreeInputs | None = None, timeout_s: float = TIMEOUT_S
) -> TreeVerdict:
    """Run a tree on a system and judge it. ``inputs``: others than those that the tree states."""
    given = inputs_of(tree) if inputs is None else inputs
    try:
        run = system.run(tree, given, timeout_s)
        operators = list(run.operators) or whole_queries(tree, given, run.outputs)
    except SystemFailure as problem:
        return TreeVerdict(tree, system.name, failure=str(problem), versions=system.versions())
    verdicts = [judge.judged(operator) for operator in operators]
    return TreeVerdict(tree, system.name, verdicts, "", system.versions(), run)


def whole_queries(
    tree: ConcreteTree, inputs: TreeInputs, outputs: Mapping[str, Sequence[EmittedBatch]]
) -> list[OperatorRun]:
    """Return each result as one operator over the sources, for a system that cannot be looked into.

    Raises SystemFailure for a result that is missing, or that has what is no row of it.
    """
    sources = list(tree.sources.values())
    forms = forms_of(tree.sources)
    found = []
    for name, node in tree.outputs.items():
        if name not in outputs:
            raise SystemFailure(f"there is no result {name!r:.64}; there are {', '.join(outputs) or 'none'}")
        steps: list[Step] = []
        for number, batch in enumerate(inputs.batches, 1):
            items = items_of(batch.elements, forms[batch.name])
            read = tuple(_delta(items) if one.label == batch.name else Delta([]) for one in sources)
            steps.append((number, read, Delta([])))
        of_result = RowForms(node.schema)
        for emitted in outputs[name]:
            try:
                items = items_of(emitted.elements, of_result)
            except LmergeError as problem:
                raise SystemFailure(f"result {name!r:.64}: {problem}") from None
            steps += [(emitted.step, (Delta([]),) * len(sources), _delta([item])) for item in items]
        found.append(OperatorRun(name, node, tuple(sources), steps))
    return found


def _delta(items: Iterable[Item]) -> Delta:
    """Return a batch with the watermark of what came: the latest start of its events."""
    listed = list(items)
    changes = [item for item in listed if isinstance(item, Change)]
    stables = [item for item in listed if not isinstance(item, Change)]
    starts = [change.vs for change in changes]
    finite = [stable for stable in stables if stable < INF]
    mark = max([*starts, *finite], default=NEG_INF)
    return Delta(changes, max(stables, default=None), None if mark == NEG_INF else mark)
