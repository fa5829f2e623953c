"""A query that runs: its sources' entrances, its operators, and its results as batches of elements.

``QueryRun`` is pure: it takes items, and returns batches. ``lmerge.replica`` connects it to files, sockets and merges.
``arrow_tables`` runs a query over history, at full speed, with the same table as a live run has in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lmerge.core.collector import without_collector
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.engines.selection import AUTO
from lmerge.errors import LmergeError, UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Delta
from lmerge.temporal.columns import AnyDelta, ColumnDelta, as_rows, rows_of_steps
from lmerge.temporal.entrance import StreamEntrance
from lmerge.temporal.errors import PlanError, SnapshotDamaged
from lmerge.temporal.graph import stepped
from lmerge.temporal.operators.final import FinalOperator
from lmerge.temporal.plan.beginnings import FROM_THE_START, StreamBeginning
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.grouped import choice_of
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.plan.stream import Stream
from lmerge.temporal.runs.attached import AttachedQuery
from lmerge.temporal.runs.checked import ItemCheck
from lmerge.temporal.runs.entering import new_entrance
from lmerge.temporal.runs.observing import ObservedRun
from lmerge.temporal.runs.parts import RunPart, RunParts, restore_state, restored_part
from lmerge.temporal.runs.place_tables import PlaceTable
from lmerge.temporal.runs.recording import SourceRecorder
from lmerge.temporal.runs.results import ElementWriter, Emitted, ResultTable
from lmerge.temporal.runs.settings import Item, SourceSettings
from lmerge.temporal.runs.snapshots import check_same_plan, check_same_settings, dump_snapshot, load_snapshot
from lmerge.temporal.values import order_key

if TYPE_CHECKING:
    from lmerge.wire.arrow import ArrowRows

__all__ = ("MAIN", "AttachedQuery", "ElementWriter", "Item", "QueryRun", "ResultTable", "SourceSettings")

MAIN: Final = "main"

Outputs: TypeAlias = Mapping[str, PlanNode | Stream]
"""The results of a query by their names."""


def nodes_of(outputs: Outputs) -> dict[str, PlanNode]:
    """Return the nodes of results. Raises UsageError for what is no stream by a name."""
    if not isinstance(outputs, Mapping):
        raise UsageError(f"results are streams by their names, such as {{'late': stream}}, not {outputs!r:.64}")
    found = {name: given.node if isinstance(given, Stream) else given for name, given in outputs.items()}
    wrong = next((name for name, node in found.items() if not isinstance(node, PlanNode)), None)
    if wrong is not None:
        raise UsageError(f"result {wrong!r:.64} is {found[wrong]!r:.64}, which is no stream")
    return found


class QueryRun(ObservedRun):
    """Queries that run, with their common parts computed once.

    ``outputs``: the results of the first query, ``name``, by their names; ``settings``: of its sources by name.
    ``attachable``: further queries can be attached, for which the live events of every stream are kept.
    ``implementation``: of the operators, a name in ``selection.ENGINES``. Snapshots are the same in both.
    ``only``: ``final`` for results that are final, each one once, instead of all with their revisions.
    ``recorded``: how many events of each source are kept for ``why``, beside those that live.
    ``resume``: a snapshot of a run of this query, to go on where it was taken, with all queries that were attached;
    settings that are not given are as they were.

    Raises PlanError if the plan cannot be compiled, UsageError for settings of a source that it does not have. Raises
    PlanError with what differs if the snapshot is of another plan, version of a module or setting, and SnapshotDamaged
    if it cannot be read.
    """

    def __init__(
        self,
        outputs: Outputs,
        settings: Mapping[str, SourceSettings] | None = None,
        *,
        name: str = MAIN,
        attachable: bool = False,
        implementation: str = AUTO,
        recorded: int = 0,
        only: Emitted | str = Emitted.ALL,
        resume: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(attachable, recorded)
        results = nodes_of(outputs)
        self.failed: dict[str, LmergeError] = {}
        self._settings: dict[str, SourceSettings] = {}
        self._needed: dict[str, int] = {}  # feedback by result
        self._passed_on: dict[str, int] = {}  # feedback by source
        self._finals: dict[str, FinalOperator] | None = (
            {} if choice_of(Emitted, only, "what a run emits") is Emitted.FINAL else None
        )
        self._implementation = implementation
        self._checks: dict[str, ItemCheck] = {}
        self._broken: BaseException | None = None  # what an entrance has raised
        if resume is None:
            self._enter(name, results, self._parts.missing(list(results.values()), {}, implementation), settings or {})
            return
        try:
            self._go_on(resume, name, results, settings or {})
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as problem:
            raise SnapshotDamaged(f"the snapshot of a run cannot be read: {problem!r:.200}") from problem

    @property
    def queries(self) -> Mapping[str, Mapping[str, PlanNode]]:
        """The results of each query that runs, by its name."""
        return self._queries

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of all results."""
        return tuple(self._results())

    @property
    def parts(self) -> tuple[RunPart, ...]:
        """The operators, each behind those that it reads."""
        return self._parts.parts

    # Batches.

    def take(self, source: str, items: Iterable[Item]) -> list[dict[str, Delta]]:
        """Take items of a source, and return the batches of every result, step by step.

        A query whose operator fails ends, with the error in ``failed``; when none is left, the error is raised.

        Raises UsageError for a source that the plan does not have or what is no item of it, and InvalidRow for a row
        that does not fit its columns; then nothing of the items was taken. Raises InputViolation for an item that is
        not legal, and UsageError for a stable point where a rule makes them; no query goes on after these.
        """
        self._entrance(source)
        return rows_of_steps(self.take_columns(source, self._checks[source].checked(items)))

    def take_columns(self, source: str, given: Iterable[Item] | ColumnDelta) -> list[dict[str, AnyDelta]]:
        """Take items, or a batch as columns, as ``take``; return batches in the form in which they were computed.

        Their rows have been made for the columns of the source, and are not checked again.
        """
        entrance = self._entrance(source)
        return self._entered(source, entrance.batches if isinstance(given, Iterable) else entrance.take_columns, given)

    def _entered(
        self, source: str, enter: Callable[[Any], Sequence[AnyDelta]], given: object
    ) -> list[dict[str, AnyDelta]]:
        try:
            taken = enter(given)
        except BaseException as error:
            self._broken = error  # what came before the item was taken, and no query has it
            raise
        return [self._stepped(source, delta) for delta in taken]

    def take_arrow(
        self, source: str, rows: ArrowRows, stable: int | None = None, *, vs: str = "vs", ve: str | None = "ve"
    ) -> list[dict[str, AnyDelta]]:
        """Take a table of inserts, and ``stable`` behind them, as ``take_columns``.

        ``vs``, ``ve``: as in ``collect_arrow``. Raises UsageError, InvalidRow for a table that does not fit.
        """
        from lmerge.temporal.arrow_tables import inserts_of

        entrance = self._entrance(source)
        node = next(node for node in self._parts.sources if node.label == source)
        inserts = inserts_of(node, rows, vs, ve, stable, as_columns=entrance.has_columns)
        return self._entered(source, entrance.take_columns, inserts)

    def advance(self, source: str, latest: int) -> list[dict[str, Delta]]:
        """Take that a source has come to ``latest`` without events that matter, and return the batches that follow.

        For a source that is idle, or that has left out events after feedback (``StreamEntrance.advance``).
        """
        return rows_of_steps(self.advance_columns(source, latest))

    def advance_columns(self, source: str, latest: int) -> list[dict[str, AnyDelta]]:
        """Do as ``advance``, and return the batches in the form in which they were computed."""
        return [self._stepped(source, delta) for delta in self._entrance(source).advance(latest)]

    def _entrance(self, source: str) -> StreamEntrance:
        self._check_left()
        entrance = self.entrances.get(source)
        if entrance is None:
            raise UsageError(f"the plan has no source {source!r:.64}; it has {', '.join(self.entrances)}")
        return entrance

    def end(self) -> list[dict[str, Delta]]:
        """Let every source end that has not ended, and return what follows."""
        return rows_of_steps(self.end_columns())

    def end_columns(self) -> list[dict[str, AnyDelta]]:
        """Do as ``end``, and return the batches in the form in which they were computed."""
        names = [*self.entrances]
        return [step for name in names if name in self.entrances for step in self.take_columns(name, [INF])]

    def _stepped(self, source: str, delta: AnyDelta) -> dict[str, AnyDelta]:
        self._steps += 1
        if self._recorded:
            self.recorders[source].apply(as_rows(delta))
        idle = [NOTHING_CHANGES] * len(self.entrances)
        place = list(self.entrances).index(source)
        found = self.graph.advance_columns([*idle[:place], delta, *idle[place + 1 :]])
        results = dict(zip(self._results(), found, strict=True))
        if self.graph.failures:
            self._end_failed()
            results = {output: results[output] for output in self._results()}
        return self._final(results)

    def _final(self, results: Mapping[str, AnyDelta]) -> dict[str, AnyDelta]:
        """Return what is final of a batch of each result."""
        finals = self._finals
        if finals is None:
            return dict(results)
        return {name: finals[name].step([as_rows(found)]) for name, found in results.items()}

    def _end_failed(self) -> None:
        """End the queries with a result that reads a failed step. Raises the error if no query is left."""
        places, failures = self._parts.places, self.graph.failures
        for name, outputs in list(self._queries.items()):
            errors = [failures[places[node]] for node in outputs.values() if places[node] in failures]
            if errors:
                self.failed[name] = errors[0]
                self._leave(name)
        self._check_left()

    def _check_left(self) -> None:
        self._check_whole()
        if not self._queries:
            raise next(reversed(self.failed.values()), UsageError("no query is left in the run"))

    def _check_whole(self) -> None:
        """Raise UsageError if an entrance has taken a part of what a source gave, and no query has seen it."""
        if self._broken is not None:
            raise UsageError(f"the run cannot go on behind an error in what a source gave: {self._broken}")

    # Queries that come and go.

    def attach(
        self, name: str, outputs: Outputs, settings: Mapping[str, SourceSettings] | None = None
    ) -> AttachedQuery:
        """Begin a further query, over the live events of the streams that it shares; ``settings``: of its new sources.

        From now on its results are right for the events of ``begins``, as if it had been there from the start. No
        other query is touched.

        Raises UsageError for a run that is not attachable or a name that is taken, PlanError for a plan that cannot
        begin in the middle of a stream, and what an operator raises over the live events; then nothing has changed.
        """
        outputs = nodes_of(outputs)
        if self._tables is None:
            raise UsageError(f"{name!r:.64} cannot be attached: the run does not keep live events (attachable=True)")
        self._check_whole()
        if name in self._queries:
            raise UsageError(f"there is a query {name!r:.64} in the run")
        taken = next((output for output in outputs if output in self._results()), None)
        if taken is not None:
            raise UsageError(f"query {name!r:.64}: there is a result {taken!r:.64} in the run")
        for node in in_order(list(outputs.values())):
            if isinstance(node, SourceNode) and self._has_ended(node):
                raise PlanError(f"query {name!r:.64}: source {node.label!r:.64} has ended, so no event of it is left")
        begins = self._beginnings()
        new = self._parts.missing(list(outputs.values()), begins, self._implementation)
        first = self._first_batches(new)
        begins |= {part.result: part.opening.begins for part in new.parts}
        begins |= dict.fromkeys(new.sources, FROM_THE_START)
        self._enter(name, outputs, new, settings or {})
        for part in new.parts:
            self._tables[part.result].apply(first[part.result])
        firsts = self._final({output: first[node] for output, node in outputs.items()})
        return AttachedQuery(
            {output: begins[node] for output, node in outputs.items()},
            {output: as_rows(found) for output, found in firsts.items()},
        )

    def detach(self, name: str) -> None:
        """End a query; what only it has read is computed no more. Raises UsageError if there is none of that name."""
        if name not in self._queries:
            raise UsageError(f"there is no query {name!r:.64} in the run; there are {', '.join(self._queries)}")
        self._leave(name)

    def _has_ended(self, source: SourceNode) -> bool:
        return source.label in self.entrances and self.entrances[source.label].live.stable == INF

    def _first_batches(self, new: RunParts) -> dict[PlanNode, Delta]:
        """Return what each stream has at its stable point: what is there, and what new operators make of it."""
        assert self._tables is not None
        for source in self._parts.sources:
            self._tables[source].mark = self.entrances[source.label].mark
        first = {node: table.whole() for node, table in self._tables.items()}
        first |= dict.fromkeys(new.sources, NOTHING_CHANGES)
        for part in new.parts:
            first[part.result] = stepped(part.operator, [first[read] for read in part.reads])
        return first

    def _beginnings(self) -> dict[PlanNode, StreamBeginning]:
        """Return which events of each stream a reader gets that begins now."""
        begins = {part.result: part.begins for part in self._parts.parts}
        for source in self._parts.sources:
            passed_on = self._passed_on.get(source.label, NEG_INF)
            begins[source] = StreamBeginning(max(self.entrances[source.label].live.stable, passed_on))
        return begins

    def _enter(
        self, name: str, outputs: Mapping[str, PlanNode], new: RunParts, settings: Mapping[str, SourceSettings]
    ) -> None:
        names = [source.label for source in new.sources]
        unknown = [source for source in settings if source not in names]
        if unknown:
            raise UsageError(f"the plan has no source {unknown[0]!r:.64}; it has {', '.join(names)}")
        for source in new.sources:
            chosen = self._settings[source.label] = settings.get(source.label, SourceSettings())
            needs_rows = self._tables is not None or self._recorded
            entrance = new_entrance(source, chosen, [] if needs_rows else [p for p in new.parts if source in p.reads])
            self.entrances[source.label] = entrance
            self._checks[source.label] = ItemCheck(source.label, source.schema)
            self.recorders[source.label] = SourceRecorder(self._recorded)
            if self._tables is not None:
                self._tables[source] = PlaceTable(source, entrance.live)
        if self._tables is not None:
            self._tables |= {part.result: PlaceTable(part.result) for part in new.parts}
        self._queries[name] = dict(outputs)
        self._watch_for_final(outputs)
        self.failed.pop(name, None)
        self._parts += new
        self._rebuild()

    def _watch_for_final(self, outputs: Mapping[str, PlanNode]) -> None:
        if self._finals is not None:
            self._finals |= {name: FinalOperator(name, order_key(node.schema)) for name, node in outputs.items()}

    def _leave(self, name: str) -> None:
        outputs = self._queries.pop(name)
        if self._finals is not None:
            self._finals = {output: kept for output, kept in self._finals.items() if output not in outputs}
        self._needed = {output: t for output, t in self._needed.items() if output not in outputs}
        self._parts = self._parts.needed_for(list(self._results().values()))
        left = self._parts.places
        names = [source.label for source in self._parts.sources]
        self.entrances = {name: self.entrances[name] for name in names}
        self._settings = {name: self._settings[name] for name in names}
        self._checks = {name: self._checks[name] for name in names}
        self.recorders = {name: self.recorders[name] for name in names}
        if self._tables is not None:
            self._tables = {node: table for node, table in self._tables.items() if node in left}
        self._rebuild()

    def _rebuild(self) -> None:
        """Put the operators, with their states, into a graph for the queries that are there."""
        results = self._results()
        self.graph = self._parts.graph(
            list(results.values()), [self._needed.get(output, NEG_INF) for output in results]
        )
        self._watch()

    # Feedback.

    def fast_forward(self, output: str, t: int) -> dict[str, int]:
        """Learn that the consumer of a result needs no event that ends before ``t``; return the same for each source.

        A part that several results read goes by the least of them; one that has not asked needs everything. Raises
        UsageError for a result that is not there.
        """
        results = list(self._results())
        if output not in results:
            raise UsageError(f"there is no result {output!r:.64} in the run; there are {', '.join(results)}")
        self._needed[output] = max(t, self._needed.get(output, NEG_INF))
        needed = dict(zip(self.entrances, self.graph.fast_forward(results.index(output), t), strict=True))
        for source, least in needed.items():
            self._passed_on[source] = max(least, self._passed_on.get(source, NEG_INF))
        return needed

    # Snapshots.

    @without_collector()
    def snapshot(self, is_packed: bool = False) -> dict[str, Any]:
        """Return all that the run has to know to go on, as plain values, at the boundary between two batches.

        ``is_packed``: whether the states of sources and operators are MessagePack, which native ones make faster.
        Raises UsageError if it cannot go on because of what a source gave.
        """
        self._check_whole()
        places = {node: at for at, node in enumerate(in_order(list(self._results().values())))}
        tables = self._tables
        return {
            "queries": [[name, plan_to_json(outputs)] for name, outputs in self._queries.items()],
            "sources": [
                {
                    "name": source.label,
                    "settings": self._settings[source.label].fields(),
                    "state": self._state_of(source, is_packed),
                    "passed_on": self._passed_on.get(source.label, NEG_INF),
                }
                for source in self._parts.sources
            ],
            "parts": [part.fields(places, is_packed) for part in self._parts.parts],
            "tables": None if tables is None else [tables[part.result].state() for part in self._parts.parts],
            "finals": None if self._finals is None else {name: kept.state() for name, kept in self._finals.items()},
            "needed": dict(self._needed),
        }

    def _state_of(self, source: SourceNode, is_packed: bool) -> dict[str, Any] | bytes:
        entrance, key = self.entrances[source.label], order_key(source.schema)
        return entrance.packed_state(key) if is_packed else entrance.state(key)

    def dump(self) -> bytes:
        """Return ``snapshot`` as bytes."""
        return dump_snapshot(self.snapshot(is_packed=True))

    @classmethod
    def load(
        cls, data: bytes, outputs: Outputs, settings: Mapping[str, SourceSettings] | None = None, **options: Any
    ) -> QueryRun:
        """Return the run of the bytes of ``dump``; ``options``: of the class. Raises as it does with ``resume``."""
        return cls(outputs, settings, resume=load_snapshot(data), **options)

    @without_collector()
    def _go_on(
        self,
        snapshot: Mapping[str, Any],
        name: str,
        outputs: Mapping[str, PlanNode],
        settings: Mapping[str, SourceSettings],
    ) -> None:
        documents = dict(snapshot["queries"])
        if name not in documents:
            raise PlanError(f"the snapshot has no query {name!r:.64}; it has {', '.join(documents)}")
        check_same_plan(documents[name], plan_to_json(outputs))
        queries = {
            query: dict(outputs) if query == name else plan_from_json(document) for query, document in documents.items()
        }
        were = {kept["name"]: SourceSettings.of_fields(kept["settings"]) for kept in snapshot["sources"]}
        check_same_settings(were, settings)
        order = in_order([node for results in queries.values() for node in results.values()])
        sources = {node.label: node for node in order if isinstance(node, SourceNode)}
        parts = tuple(restored_part(fields, order, self._implementation) for fields in snapshot["parts"])
        self._tables = None if snapshot["tables"] is None else {}
        self._finals = None if snapshot["finals"] is None else {}
        first = next(iter(queries))
        self._enter(
            first, queries[first], RunParts(tuple(sources[source] for source in were), parts), were | dict(settings)
        )
        self._queries = queries
        self._watch_for_final(self._results())
        for output, kept in (snapshot["finals"] or {}).items():
            assert self._finals is not None
            self._finals[output].restore(kept)
        for kept in snapshot["sources"]:
            entrance = self.entrances[kept["name"]]
            restore_state(entrance, kept["state"])
            if self._recorded:
                self.recorders[kept["name"]] = SourceRecorder(self._recorded, entrance.live, entrance.live.stable)
            self._passed_on[kept["name"]] = kept["passed_on"]
        if self._tables is not None:
            for part, kept in zip(parts, snapshot["tables"], strict=True):
                self._tables[part.result].restore(kept)
        self._needed = dict(snapshot["needed"])
        self._rebuild()
