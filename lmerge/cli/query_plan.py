"""The plans of a query, shown: as a list, trees, JSON, a picture, with what they promise and why, or by their result.

Called by ``lmerge plan``, which the controller has: there FILE is a query of plans, or the description of a merged one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmerge import terminal

if TYPE_CHECKING:
    from lmerge.replica.query import Query

# What a plan as JSON has, and no other JSON that `lmerge plan` reads.
_MARK: Final = '"lmerge_plan"'
_MARK_BYTES_MAX: Final = 4_096


class PlanForm(str, Enum):
    """Values of ``--show``."""

    LIST = "list"
    TREE = "tree"
    EXPLAIN = "explain"
    JSON = "json"
    MERMAID = "mermaid"
    SVG = "svg"
    RESULT = "result"


def is_query(path: Path) -> bool:
    """Return whether a file has plans, and is no description of a merged query."""
    if path.suffix == ".py":
        return True
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK.encode() in file.read(_MARK_BYTES_MAX)


def show_query(path: Path, plan: str | None, form: PlanForm) -> None:
    """Print the plans of a query, or one of them. Raises UsageError, which names the file."""
    from lmerge.replica.plan_files import query_to_json, read_query_file
    from lmerge.replica.query import Query, sources_of

    query = read_query_file(path)
    if form is PlanForm.RESULT:
        _show_result(query, plan)
        return
    if plan is not None:
        name, node = query.plan(plan)
        read = {source.label for source in sources_of(node)}
        query = Query({name: node}, {name: source for name, source in query.sources.items() if name in read})
    if form is PlanForm.JSON:
        terminal.json_lines(json.dumps(query_to_json(query)) + "\n")
        return
    texts = _listed(query) if form is PlanForm.LIST else _texts(query, form)
    for text in texts:
        terminal.lines(text)


def _show_result(query: Query, plan: str | None) -> None:
    """Run a plan over its sources, and print each result when it is final, as a reader of a merge would get it."""
    from lmerge.cli.enveloped import as_json, time_of
    from lmerge.replica.without_merge import final_results

    terminal.utf8()
    with terminal.until_closed():
        for vs, ve, row in final_results(query, plan):
            line = {"op": "final", "vs": time_of(vs), "ve": time_of(ve), "row": row}
            terminal.json_lines(as_json([line]))
            terminal.flush()


def _listed(query: Query) -> Iterator[str]:
    from lmerge.replica.query import sources_of
    from lmerge.temporal.plan.properties import algorithm_of

    width = max(map(len, query.nodes))
    for name, node in query.nodes.items():
        read = ", ".join(sorted(source.label for source in sources_of(node)))
        yield f"{name:<{width}}  {algorithm_of(node).case.algorithm}  reads {read}\n"


def _texts(query: Query, form: PlanForm) -> Iterator[str]:
    from lmerge.temporal.plan.drawing import svg
    from lmerge.temporal.plan.properties import algorithm_of, explain
    from lmerge.temporal.plan.showing import mermaid, tree

    if form in (PlanForm.MERMAID, PlanForm.SVG):
        yield mermaid(query.nodes) if form is PlanForm.MERMAID else svg(query.nodes)
        return
    for at, (name, node) in enumerate(query.nodes.items()):
        yield f"{'' if at == 0 else chr(10)}{name}: {algorithm_of(node).case.algorithm}\n"
        text = tree(node) if form is PlanForm.TREE else explain(node)
        yield "".join(f"    {line}\n" for line in text.splitlines())
