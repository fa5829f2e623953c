"""A process as a system under test: it reads a session as lines of JSON, and writes the stream of its result as lines.

The session is that of docs/session-format.md: an attach for each source, then elements with the name of their source.
The process writes elements without a name, and ends. What it writes to its standard error is kept for the verdict.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from lmerge.core.batch import Batch, element_of
from lmerge.core.elements import Element
from lmerge.core.session import ElementLine, format_attach, format_row, parse_line
from lmerge.errors import MalformedLine
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.systems.system import TIMEOUT_S, EmittedBatch, SystemFailure, SystemRun
from lmerge.testing.transforming.concrete import ConcreteTree

LOG_SHOWN: Final = 2000
"""Characters of its standard error in a message: the last ones."""


class ProcessSystem:
    """Runs a command for each tree. ``command``: the program and its arguments."""

    def __init__(self, command: Sequence[str], name: str = "process") -> None:
        self.name = name
        self._command = list(command)

    def versions(self) -> Mapping[str, str]:
        """Return the command, and the version of Python that runs it."""
        return {"command": " ".join(self._command), "python": platform.python_version()}

    def run(self, tree: ConcreteTree, inputs: TreeInputs, timeout_s: float = TIMEOUT_S) -> SystemRun:
        """Run the command over a session. Raises SystemFailure if it dies, hangs, or writes what is no stream."""
        lines = [format_attach(source) for source in tree.sources]
        for batch in inputs.batches:
            lines += [format_row(row, batch.name) for row in Batch.of(batch.elements).rows()]
        session = "".join(f"{line}\n" for line in lines).encode()
        try:
            done = subprocess.run(self._command, input=session, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as problem:
            raise SystemFailure(f"{self.name} has not ended in {timeout_s:g} s{_log(problem.stderr)}") from None
        except OSError as problem:
            raise SystemFailure(f"{self.name} cannot be run: {problem}") from None
        if done.returncode:
            raise SystemFailure(f"{self.name} ended with exit code {done.returncode}{_log(done.stderr)}")
        elements = self._elements(done.stdout, done.stderr)
        emitted = [EmittedBatch(len(inputs.batches), elements)]
        return SystemRun(dict.fromkeys(tree.outputs, emitted), (), done.stderr.decode(errors="replace"))

    def _elements(self, written: bytes, log: bytes) -> list[Element]:
        found: list[Element] = []
        for number, line in enumerate(written.splitlines(), 1):
            try:
                parsed = parse_line(line, number)
            except MalformedLine as problem:
                raise SystemFailure(f"{self.name} wrote what is no element: {problem}{_log(log)}") from None
            if isinstance(parsed, ElementLine):
                found.append(element_of(parsed.row))
            elif parsed is not None:
                raise SystemFailure(f"{self.name} wrote line {number}, which is no element: {line[:200]!r}{_log(log)}")
        return found


def _log(log: bytes | None) -> str:
    text = (log or b"").decode(errors="replace").strip()
    return f"; its standard error ends with: {text[-LOG_SHOWN:]}" if text else ""
