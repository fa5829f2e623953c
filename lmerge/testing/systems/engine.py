"""The temporal engine in this process: the tree through its target, with every operator tapped."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

from lmerge import __version__
from lmerge.core.engines.selection import native_problem
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import ElementWriter, QueryRun
from lmerge.testing.judging.operator_run import recorded
from lmerge.testing.systems.inputs import TreeInputs, forms_of, items_of
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, SystemFailure, SystemRun
from lmerge.testing.targets.target import TARGETS
from lmerge.testing.transforming.concrete import ConcreteTree


class EngineSystem:
    """The engine of ``lmerge.temporal``. The tree chooses the implementation and the target."""

    name = "engine"

    def versions(self) -> Mapping[str, str]:
        """Return the versions of lmerge and Python, and whether the native core is there."""
        native = "built" if native_problem() is None else "not built, so Python runs in its place"
        return {"lmerge": __version__, "python": platform.python_version(), "native core": native}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run the tree. Raises SystemFailure if a target means another plan, or the run fails."""
        outputs = translated(tree)
        forms = forms_of(tree.sources)
        try:
            run = QueryRun(outputs, implementation=tree.run.get("implementation", "auto"))
            batches = [(one.name, items_of(one.elements, forms[one.name])) for one in inputs.batches]
            operators, results = recorded(run, batches)
        except LmergeError as problem:
            raise SystemFailure(f"the engine failed: {type(problem).__name__}: {problem}") from problem
        return SystemRun({name: _emitted(outputs[name], steps) for name, steps in results.items()}, operators)


def translated(tree: ConcreteTree) -> dict[str, PlanNode]:
    """Return the plan of a tree by way of its target. Raises SystemFailure if that means another one."""
    target = TARGETS.find(tree.run.get("target", "json"))
    text = target.written(tree.outputs)
    found = target.read(text)
    if found != dict(tree.outputs):
        raise SystemFailure(f"target {target.name!r} means another plan than the tree:\n{text}")
    return found


def _emitted(node: PlanNode, steps: Sequence[tuple[int, Delta]]) -> list[EmittedBatch]:
    writer = ElementWriter(node)
    found = ((step, list(writer.batch([delta]).elements())) for step, delta in steps)
    return [EmittedBatch(step, elements) for step, elements in found if elements]
