"""The report of a bad verdict as text: who is blamed, what is missing or extra, what it read, and its SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lmerge.core.elements import INF, show_time
from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.showing import trees
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.values import show_values
from lmerge.testing.checking.tree_verdict import TreeVerdict
from lmerge.testing.evidence.timeline import DrawnEvent, timeline
from lmerge.testing.judging.operator_run import OperatorRun
from lmerge.testing.judging.verdict import IllegalStream, Judgement, OperatorVerdict, final_table

STEPS_SHOWN: Final = 12


def report(verdict: TreeVerdict) -> str:
    """Return the report of a verdict."""
    return "\n".join(_lines(verdict))


def _lines(verdict: TreeVerdict) -> Iterator[str]:
    tree = verdict.tree
    yield f"{tree.name} on {verdict.system}: {verdict.outcome}"
    yield ""
    yield trees(tree.outputs)
    yield ""
    for name, data in tree.data.items():
        facets = ", ".join(f"{facet}={value}" for facet, value in data.facets.items()) or "all facets as they are"
        yield f"{name}: {facets}; seed {data.seed}"
    yield f"run: {', '.join(f'{name}={level}' for name, level in tree.run.items())}; seed {tree.seed}, row {tree.row}"
    yield f"versions: {', '.join(f'{name} {version}' for name, version in verdict.versions.items())}"
    if verdict.failure:
        yield ""
        what = "The system gave no result" if verdict.run is None else "A relation of how the engine runs does not hold"
        yield f"{what}: {verdict.failure}"
    blamed = verdict.blamed
    if blamed is not None:
        yield ""
        yield from _of_operator(blamed, _run_of(verdict, blamed))


def _run_of(verdict: TreeVerdict, blamed: OperatorVerdict) -> OperatorRun | None:
    operators = () if verdict.run is None else verdict.run.operators
    return next((one for one in operators if one.name == blamed.name), None)


def _of_operator(blamed: OperatorVerdict, operator: OperatorRun | None) -> Iterator[str]:
    who = "The SQL of" if blamed.outcome is Judgement.BROKEN else "Operator"
    yield f"{who} {blamed.name!r} is blamed: {blamed.reason or blamed.outcome}"
    if blamed.step is not None:
        yield f"It was frozen at step {blamed.step}, by stable({show_time(blamed.stable)})."
    if blamed.differences:
        yield ""
        yield from (f"  {one}" for one in blamed.differences)
        if blamed.count > len(blamed.differences):
            yield f"  ... and {blamed.count - len(blamed.differences)} more"
    if operator is not None:
        yield ""
        yield from _pictures(blamed, operator)
        yield ""
        yield from _around(blamed, operator)
    if blamed.sql:
        yield ""
        yield "What it must mean, in SQL:"
        yield from (f"  {line}" for line in blamed.sql.split("\n"))


def _pictures(blamed: OperatorVerdict, operator: OperatorRun) -> Iterator[str]:
    """Yield the events of the inputs, and those that differ, each as a drawn timeline."""
    for at, read in enumerate(operator.reads):
        forms = RowForms(read.schema)
        try:
            events = final_table(read, (taken[at] for _, taken, _ in operator.steps))
        except IllegalStream as problem:
            yield f"Input {read.title} is no legal stream: {problem}"
            continue
        listed = [
            DrawnEvent(" ", show_values(forms.of_payload(payload)), vs, ve)
            for payload, vs, ve in sorted(events.elements(), key=lambda event: (event[1], event[2], event[0]))
        ]
        yield f"Input {read.title}:"
        yield timeline(listed)
    if blamed.differences:
        marks = [
            DrawnEvent("+" if one.found > one.expected else "-", one.row, one.vs, one.ve) for one in blamed.differences
        ]
        yield "Result (+ is there and should not be, - is missing):"
        yield timeline(marks, None if blamed.stable == INF else blamed.stable)


def _around(blamed: OperatorVerdict, operator: OperatorRun) -> Iterator[str]:
    """Yield the physical elements of the steps up to the difference."""
    places = [at for at, (step, _, _) in enumerate(operator.steps) if step == blamed.step]
    last = places[-1] if places else len(operator.steps) - 1
    first = max(0, last - STEPS_SHOWN + 1)
    yield f"Its last steps up to there ({first} earlier ones are left out):" if first else "Its steps up to there:"
    for step, taken, found in operator.steps[first : last + 1]:
        read = "; ".join(_shown(delta) for delta in taken)
        yield f"  step {step}: read {read}"
        yield f"  {'':<{len(str(step)) + 5}}  gave {_shown(found)}"


def _shown(delta: Delta) -> str:
    shown: list[str] = [str(change) for change in delta.changes[:8]]
    if len(delta.changes) > 8:
        shown.append(f"{len(delta.changes) - 8} more")
    if delta.stable is not None:
        shown.append(f"stable({show_time(delta.stable)})")
    return ", ".join(shown) or "nothing"


def summary(verdicts: Sequence[TreeVerdict]) -> str:
    """Return how many verdicts there are of each outcome, as a line."""
    counts = [(outcome, sum(one.outcome is outcome for one in verdicts)) for outcome in Judgement]
    shown = ", ".join(f"{count} {outcome}" for outcome, count in counts if count) or "none"
    return f"{len(verdicts)} {'tree' if len(verdicts) == 1 else 'trees'}: {shown}"
