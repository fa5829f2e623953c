"""Queries from files: modules of Python, and plans as JSON.

A module has a variable ``query``, a ``Query``. A JSON document is that of a plan (``lmerge.temporal.plan.json_format``)
with the sources beside it: ``{"lmerge_plan": 1, "nodes": [...], "outputs": {...}, "sources": {NAME: {"kind": "csv",
"path": ..., "time": ...}}}``. Its outputs are the plans of the query.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lmerge.errors import LmergeError, UsageError
from lmerge.replica.query import Query, checked_plans
from lmerge.replica.sources.declared import PhysicalSource, declaration
from lmerge.replica.sources.line_files import CsvFile, JsonLinesFile
from lmerge.replica.sources.merge_stream import MergeStream
from lmerge.replica.sources.parquet import ParquetFile
from lmerge.replica.sources.sockets import ArrowSocket, JsonLinesSocket
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.user_code import is_interrupt

#: The variable of a module that is its query.
VARIABLE: Final = "query"
SUFFIXES: Final = (".py", ".json")

_KINDS: Final[Mapping[str, type[PhysicalSource]]] = {
    source.kind: source for source in (CsvFile, JsonLinesFile, ParquetFile, JsonLinesSocket, ArrowSocket, MergeStream)
}


def is_plan_file(name: str) -> bool:
    """Return whether a name is that of a file with a query."""
    return name.endswith(SUFFIXES)


def read_query_file(path: Path) -> Query:
    """Return the query of a file, ``.py`` or ``.json``. Raises UsageError, which names the file and the line."""
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    return _of_json(path) if path.suffix == ".json" else _of_module(path)


def query_to_json(query: Query) -> dict[str, Any]:
    """Return a query as a document of JSON values. Raises UsageError if a source cannot be written."""
    document = plan_to_json(query.nodes)
    if query.sources:
        document["sources"] = {name: source.fields() for name, source in query.sources.items()}
    return document


def query_from_json(document: object) -> Query:
    """Return the query of a document. Raises UsageError, PlanError."""
    nodes = plan_from_json(document)
    assert isinstance(document, Mapping)
    sources = document.get("sources", {})
    if not isinstance(sources, Mapping):
        raise UsageError(f"the sources of a plan are objects by name, not {sources!r:.100}")
    declared = {}
    for name, fields in sources.items():
        try:
            declared[str(name)] = declaration(_KINDS, fields)
        except UsageError as problem:
            raise UsageError(f"source {name!r:.64}: {problem}") from None
    return Query(nodes, declared)


def _of_json(path: Path) -> Query:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is no UTF-8: {problem.reason} at byte {problem.start + 1}") from None
    except ValueError as problem:
        raise UsageError(f"{path} is no JSON: {problem}") from None
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    try:
        return query_from_json(document)
    except LmergeError as problem:
        raise UsageError(f"{path}: {problem}") from None


def _of_module(path: Path) -> Query:
    """Import a file as a module of its own. It can import its neighbours, as a program can."""
    name = f"lmerge_query_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        raise UsageError(f"{path} cannot be imported: {_place(path, problem)}{_described(problem)}") from problem
    if not hasattr(module, VARIABLE):
        raise UsageError(f"{path} has no `{VARIABLE} = Query(plans, sources)`")
    try:
        return checked_plans(getattr(module, VARIABLE), str(path))
    finally:
        sys.modules.pop(name, None)


def _place(path: Path, problem: BaseException) -> str:
    """Return the last line of the file that the error came through."""
    if isinstance(problem, SyntaxError) and problem.lineno is not None:
        return f"line {problem.lineno}: "
    file = path.resolve()
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file]
    return f"line {lines[-1]}: " if lines else ""


def _described(problem: BaseException) -> str:
    return str(problem) if isinstance(problem, LmergeError) else f"{type(problem).__name__}: {problem}"
