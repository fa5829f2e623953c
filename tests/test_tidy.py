"""The tidy test: habits of the project that a machine can check.

Each check is a function of a text; a bad example at the end shows that it finds what it looks for.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from posixpath import normpath

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

import lmerge
import lmerge.errors
from bench.peers.environments import ENVIRONMENTS
from lmerge.service.server import Server
from lmerge.service.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest requires it there

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
POLL_S_MAX = 0.005  # the longest sleep in a loop that checks a condition
PORT_MAX = 65_535
METRIC_UNITS = (
    "elements", "inputs", "subscribers", "turns", "seconds", "events", "losses", "time", "bytes", "bool", "info",
    "calls", "intervals", "gaps", "parts", "commits",
)
FOLDERS = ("lmerge", "lmerge_replicas", "scripts", "bench", "tests")
SOURCES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    if "generated" not in path.parts and "__pycache__" not in path.parts
)
LIBRARY = [path for path in SOURCES if path.is_relative_to(ROOT / "lmerge")]
TESTS = [path for path in SOURCES if path.is_relative_to(ROOT / "tests")]


def kept() -> list[str]:
    """Return every file that git keeps or would keep."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


KEPT = kept()
DOCUMENTS = [
    name for name in KEPT
    if name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md") or fnmatch(name, "docs/*.md")
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# The functions of the checks.


def long_functions(text: str) -> list[str]:
    return [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines" for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]


def undocumented(text: str) -> list[str]:
    return [
        node.name for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_") and not ast.get_docstring(node)
    ]


def left_for_later(text: str) -> list[str]:
    marks = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))
    return re.findall(rf"\b(?:{marks})\b", text)


def prints(text: str) -> list[str]:
    return [
        f"line {node.lineno}" for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id == "print"
    ]


def sleeps(text: str) -> list[str]:
    """Return every sleep, called or passed on, except of no time at all, or of a moment in a loop with a condition."""
    tree = ast.parse(text)
    names = {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        for alias in node.names if alias.name == "sleep"
    }
    looped = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    allowed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = [*node.args, *(keyword.value for keyword in node.keywords)]
            first = values[0].value if values and isinstance(values[0], ast.Constant) else None
            if isinstance(first, int | float) and first <= (POLL_S_MAX if id(node) in looped else 0):
                allowed.add(id(node.func))
    found = [
        node for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "sleep")
        or (isinstance(node, ast.Name) and node.id in names)
    ]
    return [f"line {node.lineno}" for node in found if id(node) not in allowed]


def fixed_ports(text: str) -> list[str]:
    """Return ports other than 0: in ``host:port``, after a host, after ``--port``, and as an argument ``port=``.

    A number above 65535 is no port.
    """
    host = r"(?:127\.0\.0\.1|0\.0\.0\.0|localhost|\[::1?\])"
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            ports = re.findall(rf"{host}:0*([1-9]\d*)", node.value)
            found += [f"line {node.lineno}: {port}" for port in ports if int(port) <= PORT_MAX]
        if isinstance(node, ast.keyword) and node.arg in ("port", "http_port") and _is_port(node.value):
            found.append(f"line {node.value.lineno}: {node.arg}")
        for before, after in _neighbours(node):
            name = before.value if isinstance(before, ast.Constant) else None
            if isinstance(name, str) and re.fullmatch(rf"{host}|::1?|--port|--http-port", name) and _is_port(after):
                found.append(f"line {after.lineno}: {name}")
    return found


def _neighbours(node: ast.AST) -> Iterable[tuple[ast.expr, ast.expr]]:
    values = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
    return pairwise(values)


def _is_port(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and re.fullmatch(r"[1-9]\d*", str(node.value)) is not None


def machine_paths(text: str) -> list[str]:
    """Return the places of one machine."""
    return re.findall(r"(?<![\w.~$}/-])/(?:work|root|(?:home|Users)/\w+)\b", text)


def listed(pyproject: str) -> set[str]:
    """Return the dependencies of the project, of its extras and of its build."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    requirements = [*table["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        requirements += extra
    names = {re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in requirements}
    return names - {project["name"]}


def crates(cargo: str) -> set[str]:
    """Return the crates that a Cargo.toml requires, without those of the project itself."""
    table = tomllib.loads(cargo)
    tables = [table, table.get("workspace", {}), *table.get("target", {}).values()]
    kinds = ("dependencies", "dev-dependencies", "build-dependencies")
    needs = [part.get(kind, {}) for part in tables for kind in kinds]
    return {
        name for need in needs for name, crate in need.items() if not (isinstance(crate, dict) and "path" in crate)
    }


def explained(architecture: str) -> set[str]:
    """Return the names in the first column of the table of dependencies."""
    section = architecture.partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {name.strip(" `") for cell in cells for name in re.split(r"[,;]", re.sub(r"\([^)]*\)", "", cell))}


def lost(text: str, folder: str, files: list[str], made: list[str]) -> list[str]:
    """Return links and file names in a document of ``folder`` that lead nowhere. ``made``: patterns of other files."""
    existing = {*files, *(str(parent) for name in files for parent in Path(name).parents)}
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"https?:|mailto:", link)]
    gone = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = normpath(f"{folder}/{path}") if path else None
        if target is not None and target not in existing:
            gone.append(link)
        elif anchor:
            page = text if target is None else (ROOT / target).read_text()
            if anchor not in anchors(page):
                gone.append(link)
    for name in re.findall(r"`([\w.*-]*[\w/.*-]+)`", text):
        is_path = name.split("/")[0] in (*FOLDERS, "proto", "docs", "native") and "/" in name
        if is_path or re.search(r"\w\.(?:py|pyi|md|toml|proto|rs|json|svg)$", name):
            name = name.rstrip("/")
            if not any(fnmatch(path, name) or fnmatch(path, f"*/{name}") for path in (*existing, *made)):
                gone.append(name)
    return gone


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*?) *$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def drawn(tree: str) -> dict[str, str | None]:
    """Return the classes of a drawn tree, each with its parent."""
    found: dict[str, str | None] = {}
    path: list[str] = []
    for line in tree.splitlines():
        match = re.fullmatch(r"    ((?:[│ ] {3})*)([├└]── )?([A-Z]\w+)(?: +\S.*)?", line)
        if match is not None:
            depth = len(match[1]) // 4 + (match[2] is not None)
            found[match[3]] = path[depth - 1] if depth else None
            path[depth:] = [match[3]]
    return found


def misnamed(families: Iterable[Metric]) -> list[str]:
    """Return metrics that are not ``lmerge_<noun>_<unit>``; the library adds ``_total`` to counters."""
    return [f.name for f in families if not re.fullmatch(rf"lmerge(?:_[a-z]+)*_(?:{'|'.join(METRIC_UNITS)})", f.name)]


# The checks.


def test_there_is_something_to_check() -> None:
    assert len(LIBRARY) > 50
    assert len(TESTS) > 30
    assert len(KEPT) > 150
    assert len(DOCUMENTS) > 5


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_files_and_functions_are_short(path: Path) -> None:
    assert path.read_text().count("\n") <= FILE_LINES_MAX
    assert not long_functions(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_every_module_has_a_docstring(path: Path) -> None:
    assert not path.read_text().strip() or ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_public_classes_and_functions_are_documented(path: Path) -> None:
    assert not undocumented(path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert not left_for_later(path.read_text())


@pytest.mark.parametrize("path", TESTS, ids=named)
def test_tests_do_not_sleep(path: Path) -> None:
    assert not sleeps(path.read_text())


@pytest.mark.parametrize("path", TESTS, ids=named)
def test_tests_choose_no_ports(path: Path) -> None:
    assert not fixed_ports(path.read_text())


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_the_library_does_not_print(path: Path) -> None:
    assert path.is_relative_to(ROOT / "lmerge/cli") or not prints(path.read_text())


def test_no_file_names_a_place_of_one_machine() -> None:
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in KEPT}
    assert {name: found for name, text in texts.items() if (found := machine_paths(text))} == {}


def test_every_dependency_is_explained() -> None:
    cargo = [(ROOT / name).read_text() for name in KEPT if fnmatch(name, "native/*Cargo.toml")]
    peers = [re.split(r"[=<>~]", package, maxsplit=1)[0] for peer in ENVIRONMENTS.values() for package in peer.packages]
    names = listed((ROOT / "pyproject.toml").read_text()).union(peers, *map(crates, cargo))
    assert len(cargo) == 5
    assert len(names) > 30
    assert names - explained((ROOT / "ARCHITECTURE.md").read_text()) == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_the_documents_name_is_there(name: str) -> None:
    made = (ROOT / ".gitignore").read_text().split()
    assert lost((ROOT / name).read_text(), str(Path(name).parent), KEPT, made) == []


def test_the_readme_has_its_two_commands_and_no_open_places() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    assert "<!-- measured" not in text


def test_every_error_is_drawn_in_the_tree() -> None:
    errors = {
        name: None if kind.__base__ is Exception else str(getattr(kind.__base__, "__name__", ""))
        for name, kind in vars(lmerge.errors).items() if isinstance(kind, type)
    }
    assert len(errors) > 10
    assert drawn(inspect.getdoc(lmerge.errors) or "") == errors


def test_the_version_is_the_same_everywhere() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == lmerge.__version__
    native = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    assert native["workspace"]["package"]["version"] == lmerge.__version__


def test_metrics_are_named_lmerge_noun_unit() -> None:
    async def scrape() -> list[Metric]:
        server = Server(Settings(port=0, http_port=None, merges=("m",)))
        await server.start()
        families = list(server.metrics.collect())
        await server.stop(0.0)
        return families

    families = asyncio.run(scrape())
    assert len(families) > 15
    assert misnamed(families) == []


# Each check finds what it looks for.


@pytest.mark.parametrize(("code", "count"), [
    ("import time\ntime.sleep(1)", 1),
    ("import time as t\nt.sleep(0.1)", 1),
    ("from time import sleep\nsleep(3)", 1),
    ("from time import sleep as nap\nnap(3)", 1),
    ("import asyncio\nasync def f():\n    await asyncio.sleep(delay=0.01)", 1),
    ("import asyncio, time\nasyncio.to_thread(time.sleep, 1)", 1),
    ("import time\nwhile True:\n    time.sleep(0.5)", 1),
    ("import time\nwhile True:\n    time.sleep(pause)", 1),
    ("import time\nfor _ in range(9):\n    time.sleep(0.005)", 1),
    ("import asyncio\nasync def f():\n    await asyncio.sleep(0)", 0),
    ("import time\nwhile not ready():\n    time.sleep(0.005)", 0),
])
def test_a_sleep_is_found_in_every_form(code: str, count: int) -> None:
    assert len(sleeps(code)) == count


@pytest.mark.parametrize(("code", "count"), [
    ("target = '127.0.0.1:' '7171'", 1),
    ("target = f'localhost:' '7171/{name}'", 1),
    ("Server(port=7171, http_port=0)", 1),
    ("socket.bind(('127.0.0.1', 7171))", 1),
    ("start_server(accept, '127.0.0.1', 7171)", 1),
    ("run('serve', '--port', '7171', '--http-port', '0')", 1),
    ("run('127.0.0.1:0', ['--port', '0'], ('127.0.0.1', 0), port=0, http_port=None)", 0),
    ("target = f'127.0.0.1:{port}'", 0),
    ("target = '127.0.0.1:' '65535'", 1),
    ("target = '127.0.0.1:65536'", 0),  # nothing listens there
])
def test_a_fixed_port_is_found_in_every_form(code: str, count: int) -> None:
    assert len(fixed_ports(code)) == count


@pytest.mark.parametrize("place", ["work", "root", "home/somebody", "Users/somebody"])
def test_a_place_of_one_machine_is_found(place: str) -> None:
    assert machine_paths(f"see `/{place}/notes`") == [f"/{place}"]
    assert machine_paths(f"cd /{place}") == [f"/{place}"]
    assert machine_paths(f"https://example.org/{place}, src/{place}, $HOME/{place}") == []


def test_a_dependency_without_its_own_line_is_found() -> None:
    pyproject = """
        [build-system]
        requires = ["builder>=1"]
        [project]
        name = "own"
        dependencies = ["types-rich>=1", "rich"]
        [project.optional-dependencies]
        one-line = ["short[extra]>=2; python_version < '3.11'", "own[more]"]
        more = ["known==1"]
    """
    architecture = "rich\n## Dependencies\n| library | saves |\n|---|---|\n| types-rich, known (`more`) | short |\n"
    assert listed(pyproject) - explained(architecture) == {"builder", "rich", "short"}
    cargo = """
        [dependencies]
        known = { version = "1", features = ["all"] }
        unknown = "0.3"
        own = { path = "../own" }
        [dev-dependencies]
        for-tests = "2"
        [target.'cfg(unix)'.dependencies]
        for-unix = "1"
    """
    assert crates(cargo) - explained(architecture) == {"unknown", "for-tests", "for-unix"}


def test_a_link_that_leads_nowhere_is_found() -> None:
    files = ["docs/a.md", "lmerge/core/r3.py", "README.md"]
    text = (
        "# One thing\n[a](a.md) [up](../README.md) [here](#one-thing) [web](https://example.org)\n"
        "`lmerge/core/` `r3.py` `lmerge/core/*.py` `lmerge/_made.json`\n"
    )
    assert lost(text, "docs", files, ["lmerge/_made.json"]) == []
    wrong = (
        "[b](b.md) [b](b.md#part) [not there](README.md) [no heading](#another-thing) `r33.py` `lmerge/cores/` "
        "`docs/*.txt`\n"
    )
    assert lost(wrong, "docs", files, []) == [
        "b.md", "b.md#part", "README.md", "#another-thing", "r33.py", "lmerge/cores", "docs/*.txt"
    ]


def test_an_error_that_is_not_in_its_place_in_the_tree_is_found() -> None:
    tree = "A tree of Names.\n\n    Root\n    ├── One      with a Name in its text\n    │   └── Two\n    └── Three\n"
    assert drawn(tree) == {"Root": None, "One": "Root", "Two": "One", "Three": "Root"}


@pytest.mark.parametrize(("family", "is_right"), [
    (CounterMetricFamily("lmerge_late_elements", ""), True),
    (CounterMetricFamily("lmerge_late_elements_total", ""), True),
    (GaugeMetricFamily("lmerge_queue_bytes", ""), True),
    (GaugeMetricFamily("lmerge_queue_bytes_total", ""), False),
    (GaugeMetricFamily("lmerge_queue", ""), False),
    (GaugeMetricFamily("lmerge_queue_size", ""), False),
    (CounterMetricFamily("late_elements", ""), False),
    (CounterMetricFamily("lmerge_Late_elements", ""), False),
], ids=lambda value: getattr(value, "name", str(value)))
def test_a_metric_without_a_unit_is_found(family: Metric, is_right: bool) -> None:
    assert (misnamed([family]) == []) is is_right


def test_the_simple_habits_are_found_broken() -> None:
    assert long_functions("def f():\n" + "    pass\n" * FUNCTION_LINES_MAX) == ["f: 71 lines"]
    assert long_functions("def f():\n" + "    pass\n" * (FUNCTION_LINES_MAX - 1)) == []
    assert undocumented("class A: pass\ndef f(): 'words'\ndef _g(): pass\nasync def h(): pass") == ["A", "h"]
    assert left_for_later("# TO" + "DO: more")
    assert prints("def f():\n    print(1)") == ["line 2"]
