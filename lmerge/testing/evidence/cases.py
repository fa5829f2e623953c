"""Cases in files: a concrete tree with the very elements that it ran over, to be repeated byte for byte.

``NAME.scenario.json`` is ``{"lmerge_case": 1, "tree": TREE, "session": FILE, "batches": [[SOURCE, COUNT], ...],
"system": NAME, "found": TEXT}``. The session beside it has the elements as lines (docs/session-format.md), in the order
in which they came; the batches are its cuts. So every tool of sessions reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Final

from lmerge.core.batch import Batch, element_of
from lmerge.core.elements import Element
from lmerge.core.session import ElementLine, format_attach, format_row, parse_line
from lmerge.errors import MalformedLine, UsageError
from lmerge.testing.intents.fluent import IntentScenario
from lmerge.testing.intents.json_format import MARK as SCENARIO_MARK
from lmerge.testing.intents.json_format import scenario_from_json
from lmerge.testing.streams.batches import InputBatch
from lmerge.testing.systems.inputs import TreeInputs
from lmerge.testing.transforming.concrete import ConcreteTree, tree_from_json

VERSION: Final = 1
MARK: Final = "lmerge_case"
SUFFIX: Final = ".scenario.json"
BYTES_MAX: Final = 64 * 2**20
"""Of a file. A case is small; a hostile file does not fill the memory."""


@dataclass(frozen=True)
class SavedCase:
    """A tree with its inputs. ``system``: on which it was bad; ``found``: what was found, in words."""

    tree: ConcreteTree
    inputs: TreeInputs
    system: str
    found: str = ""


def save_case(folder: Path, name: str, case: SavedCase) -> Path:
    """Write a case as ``NAME.scenario.json`` and ``NAME.session.jsonl``; return the first. Equal cases, equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    session = f"{name}.session.jsonl"
    document = {
        MARK: VERSION,
        "tree": case.tree.to_json(),
        "session": session,
        "batches": [[batch.name, len(batch.elements)] for batch in case.inputs.batches],
        "system": case.system,
        "found": case.found,
    }
    lines = [format_attach(source) for source in case.tree.sources]
    for batch in case.inputs.batches:
        lines += [format_row(row, batch.name) for row in Batch.of(batch.elements).rows()]
    (folder / session).write_text("".join(f"{line}\n" for line in lines))
    path = folder / f"{name}{SUFFIX}"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def load(path: Path) -> SavedCase | IntentScenario:
    """Return the case or the scenario of a file. Raises UsageError, which names the file and what is wrong."""
    try:
        document = json.loads(_text(path))
        if isinstance(document, Mapping) and SCENARIO_MARK in document:
            return scenario_from_json(document)
        return _case(path, document)
    except RecursionError:
        raise UsageError(f"{path}: it is nested too deeply") from None
    except ValueError as problem:
        raise UsageError(f"{path}: it is no JSON: {problem}") from None
    except _Unreadable:
        raise
    except UsageError as problem:
        raise UsageError(f"{path}: {problem}") from None


class _Unreadable(UsageError):
    """A file that cannot be read. The message names it."""


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > BYTES_MAX:
            raise _Unreadable(f"{path}: it has more than {BYTES_MAX} bytes, the limit of a scenario")
        return path.read_text()
    except OSError as problem:
        raise _Unreadable(f"cannot read the scenario {str(path)!r}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise _Unreadable(f"{path}: it is no text in UTF-8") from None


def _case(path: Path, document: object) -> SavedCase:
    if not isinstance(document, Mapping) or MARK not in document:
        raise UsageError(f"this is neither a scenario nor a case: {brief(document)}")
    if document[MARK] != VERSION or isinstance(document[MARK], bool):
        raise UsageError(f"a case of version {brief(document[MARK])} cannot be read; this is version {VERSION}")
    unknown = document.keys() - {MARK, "tree", "session", "batches", "system", "found"}
    if unknown:
        raise UsageError(f"a case has no field {min(unknown)!r:.64}")
    session, cuts = document.get("session"), document.get("batches")
    if not isinstance(session, str) or Path(session).name != session or not isinstance(cuts, list):
        raise UsageError("a case has a session, a file beside it, and a list of batches")
    tree = tree_from_json(document.get("tree"))
    return SavedCase(
        tree,
        TreeInputs(_batches(path.parent / session, cuts, tree)),
        str(document.get("system", "engine")),
        str(document.get("found", "")),
    )


def _batches(path: Path, cuts: Sequence[Any], tree: ConcreteTree) -> list[InputBatch]:
    elements = _elements(path)
    found: list[InputBatch] = []
    place = 0
    for cut in cuts:
        if not isinstance(cut, list) or len(cut) != 2 or not isinstance(cut[1], int) or cut[1] < 1:
            raise UsageError(f"a batch is a source and a number of elements, not {brief(cut)}")
        source, count = cut
        piece = elements[place : place + count]
        if source not in tree.sources or len(piece) < count or any(name != source for name, _ in piece):
            raise UsageError(f"{path.name}: batch {len(found) + 1} is of {count} elements of {brief(source)}")
        found.append(InputBatch(source, [element for _, element in piece]))
        place += count
    if place < len(elements):
        raise UsageError(f"{path.name}: {len(elements) - place} elements are in no batch")
    return found


def _elements(path: Path) -> list[tuple[str, Element]]:
    found = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        parsed = parse_line(line, number)
        if isinstance(parsed, ElementLine):
            if parsed.input is None:
                raise MalformedLine(number, f'an element of {path.name} needs "input"')
            found.append((parsed.input, element_of(parsed.row)))
    return found
