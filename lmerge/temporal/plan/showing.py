"""Plans for people: as a tree of text, and as a picture in Mermaid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.nodes import PlanNode


def tree(node: PlanNode) -> str:
    """Return a plan as a tree, the result at the top. A node that is read twice is shown once."""
    return "\n".join(_lines(node, {}, "", ""))


def _lines(node: PlanNode, seen: dict[PlanNode, int], first: str, rest: str) -> Iterator[str]:
    name = f"{node.label}: " if node.label and node.reads else ""
    if node in seen and node.reads:
        yield f"{first}{name}{node.shown} (as above)"
        return
    seen[node] = len(seen)
    yield f"{first}{name}{node.shown}"
    if node.inner is not None:
        bar = "│  " if node.reads else "   "
        yield from _lines(node.inner, {}, f"{rest}{bar}╎  ", f"{rest}{bar}╎  ")
    for read in node.reads[:-1]:
        yield from _lines(read, seen, f"{rest}├─ ", f"{rest}│  ")
    for read in node.reads[-1:]:
        yield from _lines(read, seen, f"{rest}└─ ", f"{rest}   ")


def trees(outputs: Mapping[str, PlanNode]) -> str:
    """Return several results as trees, each under its name."""
    return "\n".join(f"{name}:\n{tree(node)}" for name, node in outputs.items())


def mermaid(outputs: Mapping[str, PlanNode], notes: Mapping[PlanNode, Sequence[str]] | None = None) -> str:
    """Return a plan as a Mermaid flow chart, from its sources down to its results by name.

    ``notes``: further lines for its nodes, such as what they have counted.
    """
    order = in_order(list(outputs.values()))
    ids = {node: f"n{at}" for at, node in enumerate(order, 1)}
    lines = ["flowchart TD"]
    for node in order:
        if node.inner is not None:
            lines += _subgraph(node.inner, ids[node])
        title = f"<b>{_escaped(node.label)}</b><br/>" if node.label and node.reads else ""
        counted = "".join(f"<br/>{_escaped(line)}" for line in (notes or {}).get(node, ()))
        lines.append(f'    {ids[node]}["{title}{_escaped(node.shown)}{counted}"]')
        lines += [f"    {ids[read]} --> {ids[node]}" for read in node.reads]
    for at, (name, node) in enumerate(outputs.items(), 1):
        lines.append(f'    out{at}(["{_escaped(name)}"])')
        lines.append(f"    {ids[node]} --> out{at}")
    return "\n".join(lines) + "\n"


def _subgraph(inner: PlanNode, name: str) -> Iterator[str]:
    """Yield the plan that a node runs for itself, as a box that leads to it."""
    order = in_order([inner])
    ids = {node: f"{name}_{at}" for at, node in enumerate(order, 1)}
    yield f"    subgraph {name}_plan[for each group]"
    for node in order:
        if node.inner is not None:
            yield from _subgraph(node.inner, ids[node])
        yield f'    {ids[node]}["{_escaped(node.shown)}"]'
        yield from (f"    {ids[read]} --> {ids[node]}" for read in node.reads)
    yield "    end"
    yield f"    {name}_plan -.-> {name}"


def _escaped(text: str) -> str:
    """Return text without the characters that Mermaid and HTML read."""
    for character, name in (("&", "amp"), ('"', "quot"), ("<", "lt"), (">", "gt")):
        text = text.replace(character, f"&{name};")
    return text.replace("\n", " ")
