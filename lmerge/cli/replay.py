"""``lmerge replay``: run a recorded session through the merge and print the output elements (docs/session-format.md).

Other programs drive this command, so what it prints is a public interface. Memory beyond the live events is constant,
whatever the length of the session.

When the session is a file, consecutive element lines of one input are merged as one batch. Batches do not change the
output. They only make the replay faster. From a pipe every line is answered at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Final, Protocol

import typer

from lmerge import terminal
from lmerge.cli.arguments import (
    AlgorithmChoice,
    AlgorithmOption,
    AllowDowngradeOption,
    ClosingOption,
    EngineChoice,
    EngineOption,
    PolicyOption,
)
from lmerge.cli.lines import is_regular, opened, read_lines
from lmerge.core.batch import BatchBuilder, Row
from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.consistent import contradictions
from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.session import AdmitLine, AttachLine, DetachLine, ElementLine, ExcuseLine, format_detached, format_row
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError, MalformedLine, UsageError

BATCH_ROWS_MAX: Final = 512  # enough to amortise a call, little enough to keep memory flat


class IncompatibleError(LmergeError):
    """``--check`` found an output that is not compatible with its inputs (C1-C3)."""


class InconsistentError(LmergeError):
    """``--check`` found inputs that contradict each other (III.B) where the output is not compatible with them all."""


def replay(
    session: Annotated[str, typer.Argument(metavar="FILE", help="Recorded session, JSON lines; - for standard input.")],
    algorithm: AlgorithmOption = AlgorithmChoice.AUTO,
    policy: PolicyOption = "lazy",
    closing: ClosingOption = "all",
    engine: EngineOption = EngineChoice.AUTO,
    allow_downgrade: AllowDowngradeOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check C1-C3 and all invariants after every line. Slow.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Counts and the algorithm, as JSON on standard error.")
    ] = False,
) -> None:
    """Run a recorded session through the merge and print the output elements.

    Example: lmerge replay session.jsonl --policy eager --stats

    An input that breaks its promise ends with a line {"op":"detached",...} on standard error; the other inputs go on.
    Exit code 2: a malformed line; the error gives its number, and the lines before it are merged. 1: --check failed;
    the error states whether the output is wrong or the inputs contradict each other.
    """
    merge = Merge(MergeConfig(algorithm.value, policy, closing, allow_downgrade=allow_downgrade, engine=engine.value))
    with opened(session, "session") as source, terminal.until_closed():
        terminal.utf8()
        run = SessionReplay(merge, terminal.JsonOut(), terminal.JsonError(), check=check, flush=not is_regular(source))
        run.run(source)
    if stats:
        terminal.error(json.dumps(run.stats()))


class Lines(Protocol):
    """A file that takes lines."""

    def write(self, text: str) -> object: ...
    def flush(self) -> None: ...


class SessionReplay:
    """One session in progress."""

    def __init__(self, merge: Merge, output: Lines, errors: Lines, *, check: bool = False, flush: bool = False) -> None:
        self.merge = merge
        self.output = output
        self.errors = errors
        self.flush = flush
        self.checker = Checker(merge) if check else None
        self.line = 0
        self.detached: list[dict[str, str]] = []
        self._batch_rows_max = 1 if check or flush else BATCH_ROWS_MAX
        self._ended: set[str] = set()  # inputs that broke a promise and have not attached again
        self._attached: set[str] = set()  # inputs that have ever attached
        self._batch: list[Row] = []
        self._batch_input = ""

    def run(self, source: Iterable[bytes]) -> None:
        """Replay all lines.

        Raises MalformedLine after the lines before it are merged and printed. Raises IncompatibleError.
        """
        try:
            for self.line, item in read_lines(source):
                if isinstance(item, ElementLine):
                    self._element(item)
                else:
                    self._merge_batch()
                    self._attach(item) if isinstance(item, AttachLine) else self._change_input(item)
        except MalformedLine:
            self._merge_batch()
            self.output.flush()
            raise
        self._merge_batch()
        self.output.flush()

    def stats(self) -> dict[str, Any]:
        """Return what ``--stats`` prints."""
        merge = self.merge
        return {
            "algorithm": merge.algorithm,
            "reason": merge.algorithm_reason,
            "policy": str(merge.policy),
            "closing": str(merge.closing),
            "engine": merge.engine,
            "lines": self.line,
            "stable_point": _time(merge.stable_point),
            "live": merge.live_count,
            "in": merge.received._asdict(),
            "out": merge.emitted._asdict(),
            "late": merge.late,
            "refused": merge.refused,
            "inputs": [
                status._asdict() | {"stable_point": _time(status.stable_point), "join_at": _time(status.join_at)}
                for status in merge.inputs()
            ],
            "detached": self.detached,
        }

    def _element(self, item: ElementLine) -> None:
        name = item.input
        if name is None:
            raise MalformedLine(self.line, 'an element of a session needs "input"')
        if name != self._batch_input:
            if name not in self._attached:
                raise MalformedLine(self.line, f"input {name!r} was never attached")
            self._merge_batch()
            self._batch_input = name
        self._batch.append(item.row)
        if len(self._batch) >= self._batch_rows_max:
            self._merge_batch()

    def _attach(self, item: AttachLine) -> None:
        try:
            outcome = self.merge.attach(item.input, item.properties, join_at=item.join_at, role=item.role)
        except UsageError as problem:
            raise MalformedLine(self.line, str(problem)) from None
        self._attached.add(item.input)
        self._ended.discard(item.input)
        if self.checker:
            self.checker.attach(item)
        self._print(outcome)

    def _change_input(self, item: AdmitLine | ExcuseLine | DetachLine) -> None:
        if item.input in self._ended:
            return  # it has ended already, by breaking a promise
        try:
            if isinstance(item, ExcuseLine):
                outcome = self.merge.excuse(item.input)
            else:
                outcome = self._admit(item) if isinstance(item, AdmitLine) else self.merge.detach(item.input)
        except UsageError as problem:
            raise MalformedLine(self.line, str(problem)) from None
        self._print(outcome)

    def _admit(self, item: AdmitLine) -> Outcome:
        if self.checker:
            self.checker.admit(item.input)
        return self.merge.admit(item.input)

    def _merge_batch(self) -> None:
        if not self._batch:
            return
        builder = BatchBuilder()
        builder.rows, self._batch = self._batch, []
        outcome = self.merge.apply(self._batch_input, builder.build())
        self._refuse_rest(outcome, builder.rows)
        if self.checker and not outcome.refused and not any(d.input == self._batch_input for d in outcome.detached):
            self.checker.add_input(self._batch_input, builder.rows)
        self._print(outcome)

    def _refuse_rest(self, outcome: Outcome, rows: list[Row]) -> None:
        """Refuse the rows behind an offending one in its batch, as where every line is a batch."""
        for detached in outcome.detached:
            if detached.violation is not None and detached.input == self._batch_input:
                rest = BatchBuilder()
                rest.rows = rows[detached.violation.index + 1 :]
                self.merge.apply(self._batch_input, rest.build())

    def _print(self, outcome: Outcome) -> None:
        if outcome.batch.count:
            self.output.write("".join(format_row(row) + "\n" for row in outcome.batch.rows()))
        if self.flush:
            self.output.flush()
        for detached in outcome.detached:
            if detached.violation is not None:
                self._ended.add(detached.input)
                self.detached.append({"input": detached.input, "reason": detached.reason})
                self.errors.write(format_detached(detached.input, detached.reason) + "\n")
                self.errors.flush()
        if self.checker:
            self.checker.check(outcome, self.line)


class Checker:
    """Checks C1-C3 and every invariant after every line."""

    def __init__(self, merge: Merge) -> None:
        self.merge = merge
        self.output = Tdb("output")
        self.inputs: list[InputPrefix] = []  # of every incarnation of every input: its elements stay delivered
        self.current: dict[str, Tdb] = {}
        self.right_from = NEG_INF
        self.held: set[str] = set()  # inputs whose stables are held (``core.lead``)
        self.can_compare = True  # C1-C3 take every stable as merged: not so for one that was never released

    def attach(self, item: AttachLine) -> None:
        """Begin a new incarnation of an input."""
        self.current[item.input] = tdb = Tdb(item.input)
        if item.role is not InputRole.OBSERVE:
            join_at = NEG_INF if item.join_at is None else item.join_at
            self.inputs.append(InputPrefix(item.input, tdb, join_at, item.properties))

    def admit(self, name: str) -> None:
        """Count a joining input from now on."""
        self.right_from = max(self.right_from, self.merge.status(name).right_from)

    def add_input(self, name: str, rows: list[Row]) -> None:
        """Apply ``rows`` to the table of an input."""
        for row in rows:
            self.current[name].apply_row(row)

    def check(self, outcome: Outcome, line: int) -> None:
        """Check the output up to and with ``outcome``.

        Raises IncompatibleError if the output is wrong. Raises InconsistentError if only events are wrong that the
        inputs contradict each other about.
        """
        self.output.apply_batch(outcome.batch)
        self.merge.check()
        if outcome.switched:
            self._read_promises()
        multiset = self.merge.is_multiset
        self.can_compare = self.can_compare and not any(gone.input in self.held for gone in outcome.detached)
        self.held = {status.name for status in self.merge.inputs() if status.held}
        if self.held or not self.can_compare:
            return
        problems = incompatibilities(self.output, self.inputs, multiset=multiset, right_from=self.right_from)
        if not problems:
            return
        contradicted = contradictions(self.inputs, multiset=multiset)
        wrong = incompatibilities(
            self.output, self.inputs, multiset=multiset, right_from=self.right_from, apart_from=contradicted
        )
        if wrong:
            found = "; ".join(wrong[:5])
            raise IncompatibleError(f"line {line}: the output is not compatible with its inputs: {found}")
        found = "; ".join(list(contradicted.values())[:5])
        raise InconsistentError(
            f"line {line}: the inputs contradict each other, so no output is compatible with them all: {found}"
        )

    def _read_promises(self) -> None:
        """Take over the inputs' promises: after a downgrade an input promises less than when it attached."""
        promised = {status.name: frozenset(status.properties) for status in self.merge.inputs()}
        self.inputs = [
            prefix._replace(promises=promised[prefix.name])
            if prefix.tdb is self.current[prefix.name] and prefix.name in promised
            else prefix
            for prefix in self.inputs
        ]


def _time(t: int | None) -> int | str | None:
    if t == INF:
        return "inf"
    return "-inf" if t == NEG_INF else t
