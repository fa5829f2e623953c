"""Rules of the fields of structs and the elements of lists."""

from __future__ import annotations

from dataclasses import replace

from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import TypedNode


@operation("field", parameters=("name",))
def _field(request: Request) -> TypedNode:
    struct = request.require(0, ("struct",)).column
    name = request.text("name")
    for index, child in enumerate(struct.children):
        if child.name == name:
            result = replace(child, name="")
            return request.strict(result, "{0}[{index}]", bindings=(("index", index),), can_be_null=child.nullable)
    fields = ", ".join(child.name for child in struct.children)
    raise request.refusal(f"there is no field {name!r:.64}; the fields are {fields}")


@operation("element", 2)
def _element(request: Request) -> TypedNode:
    (child,) = request.require(0, ("list",)).column.children
    request.require(1, ("int",))
    text = "{0}[{1}] if -len({0}) <= {1} < len({0}) else None"
    return request.strict(replace(child, name=""), text, can_be_null=True)
