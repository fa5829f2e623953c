"""Tests wait for what they need and choose no port."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
from tidy_world import TESTS, found_in, parsed

POLL_S_MAX = 0.005  # the longest sleep in a loop that checks a condition
PORT_MAX = 65_535


def sleeps(text: str) -> list[str]:
    """Return every sleep, called or passed on, except of no time at all, or of a moment in a loop with a condition."""
    tree = parsed(text)
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "sleep"
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
        node
        for node in ast.walk(tree)
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
    for node in ast.walk(parsed(text)):
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


def test_tests_do_not_sleep() -> None:
    assert found_in(TESTS, sleeps) == {}


def test_tests_choose_no_ports() -> None:
    assert found_in(TESTS, fixed_ports) == {}


@pytest.mark.parametrize(
    ("code", "count"),
    [
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
    ],
)
def test_a_sleep_is_found_in_every_form(code: str, count: int) -> None:
    assert len(sleeps(code)) == count


@pytest.mark.parametrize(
    ("code", "count"),
    [
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
    ],
)
def test_a_fixed_port_is_found_in_every_form(code: str, count: int) -> None:
    assert len(fixed_ports(code)) == count
