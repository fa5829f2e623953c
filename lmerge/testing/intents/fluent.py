"""The fluent surface of scenarios: ``s.left.join(s.right).on(s.expr == s.expr)``, with the methods of queries.

An attribute of a scenario that is no method is an open stream of that name; ``expr`` is a new open expression each
time. What a method needs and does not get is a placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.temporal.expressions.surface import Expression
from lmerge.temporal.expressions.tree import ColumnReference, Operation
from lmerge.temporal.plan.calls import WindowCall
from lmerge.testing.intents.placeholders import ANY, MARK, AnyValue, Placeholder, PlaceholderKind
from lmerge.testing.intents.trees import IntentNode, in_order, tree

ALTERATIONS: Final = ("shift", "set_duration", "clip_duration", "extend", "at_end")
JOINS: Final = ("inner", "left", "right", "full", "anti")
FORMS: Final = ("final", "settled", "watermark", "eager")
OUTPUTS: Final = ("align", "point-at-end", "unchanged", "clip", "time-bound")
FIXED_OUTPUTS: Final = ("align", "point-at-end")
"""Outputs with the lifetimes of windows."""
CLIPS: Final = ("none", "left", "right", "full")

OpenNumber: TypeAlias = "int | Placeholder | AnyValue"
"""A number, or one that is open."""
OpenChoice: TypeAlias = "str | Placeholder | AnyValue"
"""A word, or a choice that is open."""

EVERY_STREAM: Final = "*"
"""The key of what holds for the data of all streams."""


@dataclass(eq=False)
class IntentScenario:
    """A test as a tester intends it.

    ``outputs``: results by name; without any the trees that nothing reads. ``facets``: of the data of each stream by
    name, or of all of them, as words and numbers of ``lmerge.testing.streams``.
    """

    name: str
    placeholders: dict[str, Placeholder] = field(default_factory=dict)
    streams: dict[str, IntentStream] = field(default_factory=dict)
    facets: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, IntentNode] = field(default_factory=dict)
    _nodes: list[IntentNode] = field(default_factory=list)

    def __getattr__(self, name: str) -> IntentStream:
        """Return the open stream of a name, made when it is first read."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self.stream(name)

    def stream(self, name: str, schema: Mapping[str, object] | AnyValue = ANY) -> IntentStream:
        """Return the stream of a name. ``schema``: as in ``lmerge.temporal.source``. Raises UsageError."""
        found = self.streams.get(name)
        if found is not None:
            if not isinstance(schema, AnyValue) and found.node.get("schema") != schema:
                raise UsageError(f"stream {name!r:.64} of scenario {self.name!r:.64} has another schema already")
            return found
        if isinstance(schema, Mapping):
            self._check_columns(name, schema)
        given = self.opened(schema, PlaceholderKind.SCHEMA)
        made = self.streams[name] = self.made("stream", (), name=name, schema=given)
        return made

    @property
    def expr(self) -> Expression:
        """A new open expression, of any type that fits its place."""
        return self.expression()

    def expression(self, of_type: str = "") -> Expression:
        """Return a new open expression. ``of_type``: a type of columns, such as ``int``; empty for any."""
        return Expression(ColumnReference(self._new(PlaceholderKind.EXPRESSION, type=of_type).name))

    def column(self, of_type: str = "") -> Expression:
        """Return a new open column of the stream that it is used for."""
        return Expression(ColumnReference(self._new(PlaceholderKind.COLUMN, type=of_type).name))

    def number(self, least: int | None = None, most: int | None = None) -> Placeholder:
        """Return an open number, from ``least`` to ``most``."""
        return self._new(PlaceholderKind.NUMBER, least=least, most=most)

    def choice(self, *choices: str) -> Placeholder:
        """Return an open choice of these words, such as ``s.choice("left", "full")`` for a join's ``how``."""
        if not choices:
            raise UsageError("a choice has words to choose from")
        return self._new(PlaceholderKind.CHOICE, choices=choices)

    def data(self, **facets: Any) -> IntentScenario:
        """State the nature of the events of all streams: ``s.data(disorder="out-of-order", speculation=True)``."""
        self.facets.setdefault(EVERY_STREAM, {}).update(facets)
        return self

    def output(self, name: str, stream: IntentStream) -> IntentScenario:
        """Make a stream a result, by a name."""
        if name in self.outputs:
            raise UsageError(f"scenario {self.name!r:.64} has a result {name!r:.64} already")
        self.outputs[name] = stream.node
        return self

    def results(self) -> dict[str, IntentNode]:
        """Return the results by name. Raises UsageError if there is none."""
        if self.outputs:
            return dict(self.outputs)
        read = {id(read) for node in self._nodes for read in node.reads}
        inner = {id(one) for node in self._nodes for one in in_order([node.get("plan")] if node.get("plan") else [])}
        roots = [one for one in self._nodes if id(one) not in read | inner and one.operator != "stream"]
        if not roots:
            raise UsageError(f"scenario {self.name!r:.64} has no operator, so there is nothing to test")
        return {"result" if len(roots) == 1 else f"result{at}": root for at, root in enumerate(roots, 1)}

    def __rshift__(self, other: IntentScenario) -> IntentScenario:
        """Return a scenario in which the results of this one are the streams of another (``composing.then``)."""
        from lmerge.testing.intents.composing import then

        return then(self, other)

    def __and__(self, other: IntentScenario) -> IntentScenario:
        """Return a scenario with the results of both, over shared streams (``composing.beside``)."""
        from lmerge.testing.intents.composing import beside

        return beside(self, other)

    def embed(self, stream: str, inner: IntentScenario) -> IntentScenario:
        """Return this scenario with another one in the place of a stream (``composing.embedded``)."""
        from lmerge.testing.intents.composing import embedded

        return embedded(self, stream, inner)

    def __str__(self) -> str:
        shown = [f"scenario: {self.name}"]
        shown += [tree(root, self.placeholders) for root in self.results().values()]
        for stream, facets in self.facets.items():
            of = "every stream" if stream == EVERY_STREAM else f"stream {stream}"
            shown.append(f"data of {of}: {', '.join(f'{name}={value}' for name, value in facets.items())}")
        return "\n".join(shown)

    # For the streams.

    def made(self, operator: str, reads: Sequence[IntentStream], **parameters: Any) -> IntentStream:
        """Return the stream of a new node. A parameter that is ``ANY`` must have been opened."""
        stray = next((one for one in reads if one.scenario is not self), None)
        if stray is not None:
            raise UsageError(
                f"{operator} reads a stream of scenario {stray.scenario.name!r:.64}, not of {self.name!r:.64}"
            )
        node = IntentNode(operator, tuple(one.node for one in reads), tuple(parameters.items()))
        self.add(node)
        return IntentStream(self, node)

    def opened(self, value: Any, kind: PlaceholderKind, **limits: Any) -> Any:
        """Return a value, or a new placeholder for ``ANY``."""
        return self._new(kind, **limits) if isinstance(value, AnyValue) else value

    def add(self, node: IntentNode) -> None:
        """Take a node that was made elsewhere."""
        self._nodes.append(node)

    def drop(self, node: IntentNode) -> None:
        """Forget a node that nothing reads. Raises UsageError if something does."""
        if any(node in one.reads for one in self._nodes):
            raise UsageError(f"{node.operator}: its condition comes too late, because another operator reads it")
        self._nodes.remove(node)

    def _new(self, kind: PlaceholderKind, **limits: Any) -> Placeholder:
        made = Placeholder(f"{MARK}{len(self.placeholders) + 1}", kind, **limits)
        self.placeholders[made.name] = made
        return made

    def _check_columns(self, stream: str, schema: Mapping[str, object]) -> None:
        wrong = next((name for name in schema if name.startswith(MARK)), None)
        if wrong is not None:
            raise UsageError(f"stream {stream!r:.64}: column {wrong!r:.64} has the name of a placeholder")


def scenario(name: str) -> IntentScenario:
    """Begin a scenario. ``name``: what it intends, in words."""
    return IntentScenario(name)


@dataclass(frozen=True, eq=False)
class IntentStream:
    """A stream of a scenario, with the methods of ``lmerge.temporal.Stream``."""

    scenario: IntentScenario
    node: IntentNode

    def data(self, **facets: Any) -> IntentStream:
        """State the nature of the events of this stream. Raises UsageError for a stream that is computed."""
        if self.node.operator != "stream":
            raise UsageError(f"{self.node.operator}: its events are computed; only a source has data of its own")
        self.scenario.facets.setdefault(self.node.get("name"), {}).update(facets)
        return self

    def where(self, predicate: Expression | AnyValue = ANY) -> IntentStream:
        """Return the events whose rows fulfil a predicate."""
        if isinstance(predicate, AnyValue):
            predicate = self.scenario.expression("bool")
        return self._made("where", predicate=predicate)

    def select(self, *columns: str, **computed: Expression) -> IntentStream:
        """Return these columns; without any, open ones."""
        pairs = [(name, Expression(ColumnReference(name))) for name in columns] + list(computed.items())
        chosen = pairs or self.scenario.opened(ANY, PlaceholderKind.COLUMNS)
        return self._made("select", columns=chosen if isinstance(chosen, Placeholder) else tuple(chosen))

    def shift(self, amount: OpenNumber = ANY) -> IntentStream:
        """Return the events moved in time."""
        return self.lifetime("shift", amount)

    def set_duration(self, amount: OpenNumber = ANY) -> IntentStream:
        """Return the events with one duration."""
        return self.lifetime("set_duration", amount)

    def clip_duration(self, amount: OpenNumber = ANY) -> IntentStream:
        """Return the events with a duration of at most an amount."""
        return self.lifetime("clip_duration", amount)

    def extend(self, amount: OpenNumber = ANY) -> IntentStream:
        """Return the events with later ends."""
        return self.lifetime("extend", amount)

    def at_end(self, amount: OpenNumber = ANY) -> IntentStream:
        """Return an event for the end of each event."""
        return self.lifetime("at_end", amount)

    def lifetime(self, alteration: OpenChoice = ANY, amount: OpenNumber = ANY) -> IntentStream:
        """Return the events with other lifetimes. ``alteration``: one of ``ALTERATIONS``."""
        s = self.scenario
        chosen = s.opened(alteration, PlaceholderKind.CHOICE, choices=ALTERATIONS)
        return self._made("lifetime", alteration=chosen, amount=s.opened(amount, PlaceholderKind.NUMBER))

    def edges(self, by: Sequence[str] | AnyValue = ANY, *, lasts: OpenNumber | None = None) -> IntentStream:
        """Return each event until the next one of its signal."""
        s = self.scenario
        limit = s.opened(lasts, PlaceholderKind.NUMBER, least=1)
        return self._made("edges", by=_columns(s, by), lasts=limit)

    def coalesce(self) -> IntentStream:
        """Return for each row the longest stretches of time in which it is there."""
        return self._made("coalesce")

    def cleanse(self) -> IntentStream:
        """Return each event when it is final."""
        return self._made("cleanse")

    def union(self, *others: IntentStream) -> IntentStream:
        """Return the events of all streams."""
        return self.scenario.made("union", (self, *others))

    def join(self, other: IntentStream, *, how: OpenChoice = "inner") -> IntentJoin:
        """Return pairs of events that are valid together; ``on`` has the condition, which is open without it."""
        s = self.scenario
        made = s.made("join", (self, other), how=s.opened(how, PlaceholderKind.CHOICE, choices=JOINS))
        return IntentJoin(s, made.node, self, other)

    def as_of(
        self,
        other: IntentStream,
        on: Sequence[str] | AnyValue = ANY,
        *,
        how: OpenChoice = "inner",
        within: OpenNumber | None = None,
    ) -> IntentStream:
        """Return each event with the latest one of another stream."""
        s = self.scenario
        chosen = s.opened(how, PlaceholderKind.CHOICE, choices=("inner", "left"))
        limit = s.opened(within, PlaceholderKind.NUMBER, least=1)
        return s.made("as_of", (self, other), how=chosen, on=_columns(s, on), within=limit)

    def any(self, *others: IntentStream, operators: OpenNumber = ANY) -> IntentStream:
        """Return a sub-tree that is open. ``operators``: how many it has."""
        s = self.scenario
        number = s.opened(operators, PlaceholderKind.TREE, least=1, most=3)
        return s.made("any", (self, *others), operators=number)

    def group_by(self, *keys: str | AnyValue) -> IntentGroups:
        """Return the stream in groups of equal keys."""
        is_open = len(keys) == 1 and isinstance(keys[0], AnyValue)
        return IntentGroups(self, _columns(self.scenario, ANY if is_open else [str(key) for key in keys]))

    def tumbling(self, size: OpenNumber = ANY, *, offset: int = 0, since: int | None = None) -> IntentWindows:
        """Return windows of one size, one behind the other. ``since``: none begins before it."""
        return self.group_by().tumbling(size, offset=offset, since=since)

    def hopping(
        self, size: OpenNumber = ANY, hop: OpenNumber = ANY, *, offset: int = 0, since: int | None = None
    ) -> IntentWindows:
        """Return windows of one size, one every ``hop``. ``since``: none begins before it."""
        return self.group_by().hopping(size, hop, offset=offset, since=since)

    def snapshot(self) -> IntentWindows:
        """Return the windows between consecutive starts and ends."""
        return self.group_by().snapshot()

    def count_windows(self, count: OpenNumber = ANY, *, by: str = "starts") -> IntentWindows:
        """Return windows over so many starts or ends."""
        return self.group_by().count_windows(count, by=by)

    def sessions(self, gap: OpenNumber = ANY) -> IntentWindows:
        """Return runs of events without a gap."""
        return self.group_by().sessions(gap)

    def windows(self) -> IntentWindows:
        """Return windows of a kind that is open."""
        return self.group_by().windows()

    def _made(self, operator: str, **parameters: Any) -> IntentStream:
        return self.scenario.made(operator, (self,), **parameters)


@dataclass(frozen=True, eq=False)
class IntentJoin(IntentStream):
    """A join of two streams on an equality that is open, until ``on`` gives its condition."""

    left: IntentStream
    right: IntentStream

    def on(self, *conditions: Expression | str, where: Expression | AnyValue | None = None) -> IntentStream:
        """Return the join with its condition, in the place of this one.

        An equality has a left and a right expression; a text is a column that both have; every other predicate, and
        ``where``, is over the columns of both. Raises UsageError if something reads this join already.
        """
        s = self.scenario
        pairs: list[tuple[Expression, Expression]] = []
        others: list[Expression] = (
            [] if where is None else [s.expression("bool") if isinstance(where, AnyValue) else where]
        )
        for condition in conditions:
            if isinstance(condition, str):
                pairs.append((Expression(ColumnReference(condition)), Expression(ColumnReference(condition))))
            elif isinstance(condition.node, Operation) and condition.node.name == "equal":
                one, other = condition.node.operands
                pairs.append((Expression(one), Expression(other)))
            else:
                others.append(condition)
        predicate = others[0] if others else None
        for one_more in others[1:]:
            predicate = predicate & one_more if predicate is not None else one_more
        s.drop(self.node)
        return s.made("join", (self.left, self.right), how=self.node.get("how"), on=tuple(pairs), where=predicate)


@dataclass(frozen=True)
class IntentGroups:
    """A stream in groups."""

    stream: IntentStream
    keys: Any

    def apply(self, sub_tree: Callable[[IntentStream], IntentStream] | AnyValue = ANY) -> IntentStream:
        """Return the results of a sub-tree for each group; ``ANY`` leaves it open."""
        s = self.stream.scenario
        group = s.made("group", ())
        made = group.any() if isinstance(sub_tree, AnyValue) else sub_tree(group)
        return s.made("group_apply", (self.stream,), keys=self.keys, plan=made.node)

    def tumbling(self, size: OpenNumber = ANY, *, offset: int = 0, since: int | None = None) -> IntentWindows:
        """Return windows of one size in each group. ``since``: none begins before it."""
        length = self._number(size)
        return self._grid(length, length, offset, since)

    def hopping(
        self, size: OpenNumber = ANY, hop: OpenNumber = ANY, *, offset: int = 0, since: int | None = None
    ) -> IntentWindows:
        """Return windows of one size in each group, one every ``hop``. ``since``: none begins before it."""
        return self._grid(self._number(size), self._number(hop), offset, since)

    def snapshot(self) -> IntentWindows:
        """Return the windows between consecutive starts and ends of a group."""
        return self._over({"kind": "snapshot"})

    def count_windows(self, count: OpenNumber = ANY, *, by: str = "starts") -> IntentWindows:
        """Return windows over so many starts or ends of a group."""
        return self._over({"kind": "count", "count": self._number(count), "by": by})

    def sessions(self, gap: OpenNumber = ANY) -> IntentWindows:
        """Return a group's runs of events without a gap."""
        gap = self.stream.scenario.opened(gap, PlaceholderKind.NUMBER, least=0)
        return self._over({"kind": "sessions", "gap": gap})

    def windows(self) -> IntentWindows:
        """Return windows of a kind that is open."""
        return self._over(self.stream.scenario.opened(ANY, PlaceholderKind.WINDOW))

    def _number(self, given: OpenNumber) -> int | Placeholder:
        found: int | Placeholder = self.stream.scenario.opened(given, PlaceholderKind.NUMBER, least=1)
        return found

    def _grid(self, size: Any, hop: Any, offset: int, since: int | None) -> IntentWindows:
        first = {} if since is None else {"since": since}
        return self._over({"kind": "hopping", "size": size, "hop": hop, "offset": offset, **first})

    def _over(self, window: Any) -> IntentWindows:
        return IntentWindows(self.stream, self.keys, window)


@dataclass(frozen=True)
class IntentWindows:
    """Windows of a stream, for which something is computed."""

    stream: IntentStream
    keys: Any
    window: Any

    def agg(
        self, *, form: OpenChoice = ANY, output: OpenChoice = ANY, clip: OpenChoice = ANY, **calls: WindowCall
    ) -> IntentStream:
        """Return aggregates by their names; without any, open ones."""
        s = self.stream.scenario
        given = tuple(calls.items()) or s.opened(ANY, PlaceholderKind.CALLS)
        policies = self._policies(form, output, FIXED_OUTPUTS)
        return self._made("aggregate", calls=given, clip=self._clip(clip), **policies)

    def top(
        self,
        k: OpenNumber = ANY,
        *,
        by: Expression | str | AnyValue = ANY,
        form: OpenChoice = ANY,
        output: OpenChoice = ANY,
    ) -> IntentStream:
        """Return the rows of the first ranks. ``by``: what they are ranked by, from the least."""
        s = self.stream.scenario
        order = (
            s.column() if isinstance(by, AnyValue) else Expression(ColumnReference(by)) if isinstance(by, str) else by
        )
        number = s.opened(k, PlaceholderKind.NUMBER, least=1)
        return self._made("top", k=number, by=order, **self._policies(form, output, FIXED_OUTPUTS))

    def apply(
        self,
        module: WindowCall | AnyValue = ANY,
        *,
        form: OpenChoice = ANY,
        output: OpenChoice = ANY,
        clip: OpenChoice = ANY,
    ) -> IntentStream:
        """Return the rows that a module makes of each window. Raises UsageError for windows in groups."""
        if self.keys != ():
            raise UsageError("apply: a module of rows sees whole windows; for groups use group_by(...).apply(...)")
        s = self.stream.scenario
        call = s.opened(module, PlaceholderKind.MODULE)
        return s.made(
            "apply",
            (self.stream,),
            window=self.window,
            module=call,
            clip=self._clip(clip),
            **self._policies(form, output, OUTPUTS),
        )

    def _policies(self, form: Any, output: Any, outputs: Sequence[str]) -> dict[str, Any]:
        s = self.stream.scenario
        return {
            "form": s.opened(form, PlaceholderKind.CHOICE, choices=FORMS),
            "output": s.opened(output, PlaceholderKind.CHOICE, choices=tuple(outputs)),
        }

    def _clip(self, clip: Any) -> Any:
        return self.stream.scenario.opened(clip, PlaceholderKind.CHOICE, choices=CLIPS)

    def _made(self, operator: str, **parameters: Any) -> IntentStream:
        return self.stream.scenario.made(operator, (self.stream,), keys=self.keys, window=self.window, **parameters)


def _columns(scenario_: IntentScenario, given: Sequence[str] | AnyValue) -> Any:
    if isinstance(given, AnyValue):
        return scenario_.opened(ANY, PlaceholderKind.COLUMNS)
    names = [given] if isinstance(given, str) else given
    return tuple((name, Expression(ColumnReference(name))) for name in names)
