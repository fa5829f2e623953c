"""How two plans differ, node by node: why a snapshot of one cannot be restored into the other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_OWN: Final = frozenset(("id", "kind", "reads"))


def plan_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the differences of two documents (``plan_to_json``), each with its place; none if they are the same plan.

    A place is the way from a result to its sources: ``late > aggregate > filter``.
    """
    before, after = (json.loads(json.dumps(document)) for document in (before, after))
    old, new = before["outputs"], after["outputs"]
    found = [f"it had the result {name!r}" for name in old if name not in new]
    found += [f"it did not have the result {name!r}" for name in new if name not in old]
    nodes = [{node["id"]: node for node in document["nodes"]} for document in (before, after)]
    seen: set[tuple[str, str]] = set()
    for name in old:
        if name in new:
            found += _differences(name, nodes, (old[name], new[name]), seen)
    return list(dict.fromkeys(found))


def _differences(
    path: str, nodes: list[dict[str, Any]], ids: tuple[str, str], seen: set[tuple[str, str]]
) -> Iterator[str]:
    if ids in seen:
        return
    seen.add(ids)
    old, new = (of_plan[place] for of_plan, place in zip(nodes, ids, strict=True))
    where = f"{path} > {new.get('label') or new['kind']}"
    if old["kind"] != new["kind"]:
        yield f"{where}: it was {_named(old)}, and is {_named(new)}"
        return
    for field in sorted((old.keys() | new.keys()) - _OWN):
        if old.get(field) != new.get(field):
            yield f"{where}: {field} was {_shown(old.get(field))}, and is {_shown(new.get(field))}"
    if len(old["reads"]) != len(new["reads"]):
        yield f"{where}: it read {len(old['reads'])} streams, and reads {len(new['reads'])}"
    for pair in zip(old["reads"], new["reads"]):
        yield from _differences(where, nodes, pair, seen)


def _named(node: Mapping[str, Any]) -> str:
    return f"{node['kind']} {node['label']!r}" if node.get("label") else str(node["kind"])


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."
