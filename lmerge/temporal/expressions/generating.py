"""Code for typed trees: one Python function for all expressions of an operator.

Each node becomes an assignment to a local variable. Equal nodes become one variable, so they are evaluated once a row.
A part that only some rows need, such as a branch of ``case``, is evaluated behind an ``if``. Where an equal node stands
behind several of them, its variable begins as ``UNSET`` and each place computes it if no other has done so.

Nothing that a user writes gets into the source: constants, functions and messages are variables of the function around
it. The code of ``(col.delay > 15) & (col.distance < 300)``, of which the second column can be NULL::

    def evaluate(row):
        try:
            v0 = row[0]
            v1 = v0 > b0
            v2 = v1
            if v1 is not False:
                v3 = row[1]
                v4 = None if v3 is None else v3 < b1
                if v4 is not True:
                    v2 = v4
            return v2
        except Failure as failure:
            raise violation(failure, row) from failure.__cause__

Calls of vectorised functions are ``yield``s: the function is a generator then, which ``batches`` drives, so that all
rows of a batch wait at a call until it is made for all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.calling import caller_of
from lmerge.temporal.expressions.typed import (
    Constant,
    EvaluationFailure,
    FirstPresent,
    FirstTrue,
    FunctionCall,
    Junction,
    Lenient,
    LoadColumn,
    Site,
    Strict,
    TypedNode,
)

Key: TypeAlias = tuple[Any, ...]
Violation: TypeAlias = Callable[[EvaluationFailure, Any], Exception]


class _Unset:
    """The value of a variable that no place has computed yet."""


UNSET: Final = _Unset()


@dataclass(slots=True)
class CodeBlock:
    """Statements: lines of Python, and ifs with two blocks."""

    statements: list[str | tuple[str, CodeBlock, CodeBlock]] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Append a statement."""
        self.statements.append(text)

    def choice(self, condition: str) -> tuple[CodeBlock, CodeBlock]:
        """Append an if; return its two blocks."""
        blocks = CodeBlock(), CodeBlock()
        self.statements.append((condition, *blocks))
        return blocks

    def syntax(self) -> list[ast.stmt]:
        """Return the statements as syntax trees."""
        return [statement for one in self.statements for statement in _syntax(one)]


def _syntax(statement: str | tuple[str, CodeBlock, CodeBlock]) -> list[ast.stmt]:
    if isinstance(statement, str):
        return ast.parse(statement).body
    condition, then, otherwise = statement
    test = ast.parse(condition, mode="eval").body
    return [ast.copy_location(ast.If(test, then.syntax() or ast.parse("pass").body, otherwise.syntax()), test)]


class Generator:
    """Makes the code of typed trees. ``shared``: the numbers of nodes whose variables begin as ``UNSET``."""

    def __init__(self, shared: frozenset[int]) -> None:
        self.definitions: dict[int, int] = {}  # number of node -> places that compute it
        self.bindings: dict[str, Any] = {}
        self.is_vectorised = False
        self._shared = shared
        self._numbers: dict[Key, int] = {}
        self._of_object: dict[int, int] = {}  # id of a TypedNode, which lives as long as the tree
        self._scopes: list[set[int]] = [set()]
        self._names: dict[tuple[type, int], str] = {}
        self._kept: list[Any] = []

    def number(self, typed: TypedNode) -> int:
        """Return the number that equal nodes share."""
        found = self._of_object.get(id(typed))
        if found is None:
            operands = tuple(self.number(operand) for operand in typed.operands)
            key = (typed.code, typed.column.type, typed.column.scale, operands)
            found = self._of_object[id(typed)] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def value(self, typed: TypedNode, block: CodeBlock) -> str:
        """Return the name of a node's value, behind the statements that compute it."""
        code = typed.code
        if isinstance(code, Constant):
            return self.bound(code.value)
        number = self.number(typed)
        name = f"v{number}"
        if any(number in scope for scope in self._scopes):
            return name
        if isinstance(code, LoadColumn):
            block.line(f"{name} = row[{code.index}]")
        elif number in self._shared:
            then, _ = block.choice(f"{name} is {self.bound(UNSET)}")
            with self._conditional():
                self._define(typed, name, then)
            self._count(number)
        else:
            self._define(typed, name, block)
            self._count(number)
        self._scopes[-1].add(number)
        return name

    def bound(self, value: Any) -> str:
        """Return the name of a constant or a function."""
        key = (type(value), id(value))
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"b{len(self._names)}"
            self.bindings[name] = value
            self._kept.append(value)
        return name

    def _count(self, number: int) -> None:
        self.definitions[number] = self.definitions.get(number, 0) + 1

    @contextmanager
    def _conditional(self) -> Iterator[None]:
        """Fill a block that some rows skip: what it computes is not there behind it."""
        depth = len(self._scopes)
        self._scopes.append(set())
        yield
        del self._scopes[depth:]

    def _define(self, typed: TypedNode, name: str, block: CodeBlock) -> None:
        code = typed.code
        if isinstance(code, Strict):
            self._strict(typed, code, name, block)
        elif isinstance(code, Lenient):
            block.line(f"{name} = {self._filled(typed, code, self._operands(typed, block))}")
        elif isinstance(code, Junction):
            self._junction(typed, code, name, block)
        elif isinstance(code, FirstTrue):
            self._choice(typed.operands, name, block)
        elif isinstance(code, FirstPresent):
            self._first_present(typed.operands, name, block)
        else:
            assert isinstance(code, FunctionCall)
            self._call(typed, code, name, block)

    def _operands(self, typed: TypedNode, block: CodeBlock) -> list[str]:
        return [self.value(operand, block) for operand in typed.operands]

    def _filled(
        self, typed: TypedNode, code: Strict | Lenient, operands: Sequence[str], text: str | None = None
    ) -> str:
        text = code.text if text is None else text
        names = {name: self.bound(value) for name, value in code.bindings if f"{{{name}}}" in text}
        if "{site}" in text:
            names["site"] = self.bound(Site(typed.node))
        return text.replace("{t}", "{{t}}").format(*operands, **names)

    def _strict(self, typed: TypedNode, code: Strict, name: str, block: CodeBlock) -> None:
        operands = self._operands(typed, block)
        missing = dict.fromkeys(
            f"{value} is None" for value, operand in zip(operands, typed.operands, strict=True) if operand.nullable
        )
        condition = " or ".join(missing)
        text = self._filled(typed, code, operands)
        if not code.after:
            block.line(f"{name} = None if {condition} else {text}" if missing else f"{name} = {text}")
            return
        inner = block
        if missing:
            then, inner = block.choice(condition)
            then.line(f"{name} = None")
        inner.line(f"{name} = {text}")
        inner.line(self._filled(typed, code, operands, code.after).replace("{t}", name))

    def _junction(self, typed: TypedNode, code: Junction, name: str, block: CodeBlock) -> None:
        """Emit and, or: the result is settled by false, true. A value that settles nothing leaves it as it is."""
        settled, neutral = ("False", "True") if code.is_all else ("True", "False")
        first, *others = typed.operands
        block.line(f"{name} = {self.value(first, block)}")
        nullable = first.nullable
        for operand in others:
            then, _ = block.choice(f"{name} is not {settled}")
            with self._conditional():
                self._join(operand, name, neutral, nullable, then)
            nullable = nullable or operand.nullable

    def _join(self, operand: TypedNode, name: str, neutral: str, nullable: bool, block: CodeBlock) -> None:
        value = self.value(operand, block)
        if nullable:  # the result can be NULL, and stays NULL if the value is neutral
            then, _ = block.choice(f"{value} is not {neutral}")
            then.line(f"{name} = {value}")
        else:
            block.line(f"{name} = {value}")

    def _choice(self, operands: Sequence[TypedNode], name: str, block: CodeBlock) -> None:
        with self._conditional():
            for condition, value in zip(operands[:-1:2], operands[1::2], strict=False):
                then, otherwise = block.choice(self.value(condition, block))
                with self._conditional():
                    then.line(f"{name} = {self.value(value, then)}")
                block = otherwise
                self._scopes.append(set())
            block.line(f"{name} = {self.value(operands[-1], block)}")

    def _first_present(self, operands: Sequence[TypedNode], name: str, block: CodeBlock) -> None:
        first, *others = operands
        block.line(f"{name} = {self.value(first, block)}")
        for operand in others:
            then, _ = block.choice(f"{name} is None")
            with self._conditional():
                then.line(f"{name} = {self.value(operand, then)}")

    def _call(self, typed: TypedNode, code: FunctionCall, name: str, block: CodeBlock) -> None:
        operands = self._operands(typed, block)
        function, types = code.function, tuple(operand.column for operand in typed.operands)
        missing = dict.fromkeys(
            f"{value} is None" for value, operand in zip(operands, typed.operands, strict=True) if operand.nullable
        )
        inner = block
        if missing and function.nulls == "skip":
            then, inner = block.choice(" or ".join(missing))
            then.line(f"{name} = None")
        call = self.bound(caller_of(function, types, Site(typed.node), order=len(self.bindings)))
        arguments = "".join(f"{value}, " for value in operands)
        if function.vectorised:
            self.is_vectorised = True
            inner.line(f"{name} = yield {call}, ({arguments})")
        else:
            inner.line(f"{name} = {call}({arguments})")


@dataclass(frozen=True, slots=True)
class Generated:
    """A function of rows, made of typed trees. ``is_vectorised``: it is a generator function."""

    function: Callable[[Any], Any]
    is_vectorised: bool
    violation: Violation
    syntax: ast.FunctionDef

    @property
    def source(self) -> str:
        """The source of the function, for people."""
        return ast.unparse(self.syntax)


def generate(trees: Sequence[TypedNode], is_row: bool, violation: Violation) -> Generated:
    """Return the function that gives the values of all trees as a tuple, or with ``is_row`` False of the only one.

    ``violation`` makes the error of a failure in a row. Raises PlanError if the code is too deeply nested.
    """
    try:
        return _generate(trees, is_row, violation)
    except (RecursionError, MemoryError):
        raise PlanError("an expression has too many branches inside each other") from None


def _generate(trees: Sequence[TypedNode], is_row: bool, violation: Violation) -> Generated:
    shared: frozenset[int] = frozenset()
    while True:
        generator, block = Generator(shared), CodeBlock()
        values = [generator.value(tree, block) for tree in trees]
        repeated = {number for number, places in generator.definitions.items() if places > 1} - shared
        if not repeated:
            break
        shared |= repeated
    returned = f"({''.join(f'{value}, ' for value in values)})" if is_row else values[0]
    before = [f"v{number} = {generator.bound(UNSET)}" for number in sorted(shared)]
    return _compiled(generator, before, block, returned, violation)


_FRAME: Final = """
def make({names}):
    def evaluate(row):
        try:
            pass
        except Failure as failure:
            raise violation(failure, row) from failure.__cause__
    return evaluate
"""


def _compiled(
    generator: Generator, before: list[str], block: CodeBlock, returned: str, violation: Violation
) -> Generated:
    bindings = {**generator.bindings, "Failure": EvaluationFailure, "violation": violation}
    module = ast.parse(_FRAME.format(names=", ".join(bindings)))
    (make,) = module.body
    assert isinstance(make, ast.FunctionDef)
    evaluate = make.body[0]
    assert isinstance(evaluate, ast.FunctionDef)
    attempt = evaluate.body[0]
    assert isinstance(attempt, ast.Try)
    end = ast.parse(returned, mode="eval").body
    attempt.body = [*CodeBlock([*before]).syntax(), *block.syntax(), ast.copy_location(ast.Return(end), end)]
    scope: dict[str, Any] = {}
    exec(compile(module, "<expression>", "exec"), scope)
    return Generated(scope["make"](**bindings), generator.is_vectorised, violation, evaluate)
