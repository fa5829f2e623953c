"""Rules of functions of text. Positions and lengths count characters (code points), from 0."""

from __future__ import annotations

from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import TypedNode
from lmerge.temporal.expressions.typing_rules import BOOL, INT, STRING
from lmerge.wire.schema import Column


def _of_texts(name: str, count: int, text: str, result: Column) -> None:
    """Register a function of that many texts."""

    @operation(name, count)
    def of_texts(request: Request) -> TypedNode:
        for index in range(count):
            request.require(index, ("string",))
        return request.strict(result, text)


_of_texts("lower", 1, "{0}.lower()", STRING)
_of_texts("upper", 1, "{0}.upper()", STRING)
_of_texts("starts_with", 2, "{0}.startswith({1})", BOOL)
_of_texts("ends_with", 2, "{0}.endswith({1})", BOOL)
_of_texts("contains", 2, "{1} in {0}", BOOL)
_of_texts("replace", 3, "{0}.replace({1}, {2}) if {1} else {0}", STRING)


@operation("length")
def _length(request: Request) -> TypedNode:
    request.require(0, ("string", "bytes", "list"))
    return request.strict(INT, "len({0})")


@operation("concat", 1, None)
def _concat(request: Request) -> TypedNode:
    for index in range(len(request.operands)):
        request.require(index, ("string",))
    marks = " + ".join(f"{{{index}}}" for index in range(len(request.operands)))
    return request.strict(STRING, marks)


@operation("substring", 2, 3)
def _substring(request: Request) -> TypedNode:
    request.require(0, ("string",))
    for index in range(1, len(request.operands)):
        request.require(index, ("int",))
    if len(request.operands) == 2:
        return request.strict(STRING, "{0}[{1}:]")
    return request.strict(STRING, "{part}({0}, {1}, {2})", bindings=(("part", _part),))


def _part(text: str, start: int, length: int) -> str:
    if start < 0:
        start = max(len(text) + start, 0)
    return text[start : start + max(length, 0)]


@operation("trim", parameters=("characters",))
def _trim(request: Request) -> TypedNode:
    request.require(0, ("string",))
    return request.strict(STRING, "{0}.strip({characters})", bindings=(("characters", request.text("characters")),))
