"""Scenario files: a session in a short notation, ``----``, and what the merge emits after each line.

    # algorithm=auto policy=lazy closing=all downgrade=no      (first line, all optional)
    attach a key [join_at=5] [role=observe]
    a insert A 6 7          a adjust A 6 7 12          a stable 11          admit a          detach a
    ----
    a insert A 6 7
        insert A 6 7

Expected output lines are indented under the line that caused them. ``pytest tests/core --rewrite`` writes them again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Insert, Stable, show_time
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.errors import LmergeError

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def time_of(field: str) -> int:
    return {"inf": INF, "-inf": NEG_INF}.get(field) or int(field)


def element_of(fields: list[str]) -> Element:
    if fields[0] == "insert":
        return Insert(fields[1].encode(), time_of(fields[2]), time_of(fields[3]))
    if fields[0] == "adjust":
        return Adjust(fields[1].encode(), time_of(fields[2]), time_of(fields[3]), time_of(fields[4]))
    assert fields[0] == "stable", fields
    return Stable(time_of(fields[1]))


def shown(element: Element) -> str:
    if isinstance(element, Stable):
        return f"stable {show_time(element.vc)}"
    times = [element.vs, element.ve] if isinstance(element, Insert) else [element.vs, element.vold, element.ve]
    name = type(element).__name__.lower()
    return " ".join([name, element.payload.decode(), *map(show_time, times)])


def step(merge: Merge, fields: list[str]) -> Outcome:
    if fields[0] == "attach":
        options = dict(field.split("=", 1) for field in fields[2:] if "=" in field)
        properties = [field for field in fields[2:] if "=" not in field]
        join_at = time_of(options["join_at"]) if "join_at" in options else None
        return merge.attach(fields[1], properties, join_at=join_at, role=options.get("role", "active"))
    if fields[0] in ("admit", "detach"):
        return merge.admit(fields[1]) if fields[0] == "admit" else merge.detach(fields[1])
    return merge.apply(fields[0], Batch.of([element_of(fields[1:])]))


def run(script: str) -> str:
    """Return the script with the output of the merge under each line."""
    lines = script.strip().splitlines()
    options = {"algorithm": "auto", "policy": "lazy", "closing": "all", "downgrade": "no"}
    if lines[0].startswith("# algorithm=") or "policy=" in lines[0] or "downgrade=" in lines[0]:
        options |= dict(field.split("=", 1) for field in lines[0].split() if "=" in field)
    merge = Merge(
        MergeConfig(
            options["algorithm"], options["policy"], options["closing"], allow_downgrade=options["downgrade"] == "yes"
        )
    )
    output = Tdb("output")
    result = []
    for line in lines:
        result.append(line)
        if not line.strip() or line.startswith("#"):
            continue
        try:
            outcome = step(merge, line.split())
        except LmergeError as error:
            result.append(f"    refused: {error}")
            continue
        merge.check()
        output.apply_batch(outcome.batch)
        result += [f"    {shown(element)}" for element in outcome.batch.elements()]
        result += [f"    detached {d.input}: {d.reason}" for d in outcome.detached]
        result += [f"    joined {name}" for name in outcome.joined]
        result += [f"    {s.before} -> {s.after}: {s.reason}" for s in outcome.switched]
        result += [f"    refused {outcome.refused}"] if outcome.refused else []
    result.append(f"algorithm {merge.algorithm}: {merge.algorithm_reason}")
    result += [f"tdb {event}" for event in output.events()]
    return "\n".join(result) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    script, separator, expected = path.read_text().partition("----\n")
    got = run(script)
    if request.config.getoption("--rewrite"):
        path.write_text(f"{script.rstrip()}\n----\n{got}")
        return
    assert separator, "no ---- in the file; write the expected output with --rewrite"
    assert got == expected


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 25
