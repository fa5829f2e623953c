"""Writes docs/benchmarks.md: the text of bench/benchmarks.md with the figures of bench/results.

    python -m bench.document            # writes the page
    python -m bench.document --check    # fails if the page is another one

In the text, ``{core_stable}`` becomes the command with the commit that it was run at, ``{core_stable: ROW}`` the median
of a row, and ``{core_stable# NOTE}`` the number of a note: that behind "NOTE = ". A row is shown with its spread from
10 % on, a percentage with its lowest and highest value.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from bench.harness import PERCENT, RESULTS, Measured

ROOT: Final = Path(__file__).parents[1]
TEXT: Final = ROOT / "bench" / "benchmarks.md"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
_FIGURE: Final = re.compile(r"\{(?P<bench>[a-z_0-9]+)(?:(?P<kind>[:#]) (?P<name>[^{}]+))?\}")
_SPREAD_MIN: Final = 0.1


class UnknownFigure(Exception):
    """The text names a figure that no result has."""


def rendered(text: str, results: Path) -> str:
    """Return ``text`` with the figures of the results in a folder. Raises UnknownFigure."""
    documents: dict[str, dict[str, Any]] = {}

    def figure(match: re.Match[str]) -> str:
        bench, kind, name = match["bench"], match["kind"], match["name"]
        if bench not in documents:
            path = results / f"{bench}.json"
            if not path.exists():
                raise UnknownFigure(f"{match[0]}: there is no {path.name}")
            documents[bench] = json.loads(path.read_text())
        document = documents[bench]
        if kind is None:
            return f"`{document['command']}` at {document['machine']['commit']}"
        found = row(document, name) if kind == ":" else note(document, name)
        if found is None:
            raise UnknownFigure(f"{match[0]}: {bench}.json has no such {'row' if kind == ':' else 'note'}")
        return found

    return _FIGURE.sub(figure, text)


def row(document: dict[str, Any], name: str) -> str | None:
    """Return the figure of a row: the median, and the spread of its values from 10 % on."""
    for one in document["rows"]:
        if one["name"] == name:
            measured = Measured(name, one["values"], one["unit"])
            if measured.unit == PERCENT:
                return f"{measured.median:.1f} % ({min(measured.values):.0f} to {max(measured.values):.0f})"
            shown = f" ({100 * measured.spread:.0f} %)" if measured.spread >= _SPREAD_MIN else ""
            return number(measured.median, measured.unit) + shown
    return None


def note(document: dict[str, Any], name: str) -> str | None:
    """Return the number of the note ``NAME = number``."""
    for one in document["notes"]:
        found = re.match(rf"{re.escape(name)} = ([0-9.,]*[0-9])", one)
        if found:
            return found[1]
    return None


def number(value: float, unit: str) -> str:
    """Return a figure as the page has it, with its unit where a reader needs it."""
    if unit.endswith("/s"):
        if value >= 1e5:
            return f"{value / 1e6:.{0 if value >= 1e8 else 1 if value >= 1e7 else 2}f} M"
        return f"{value:,.0f}"
    if unit in ("ms", "us", "s"):
        return f"{value:,.{0 if value >= 100 else 1 if value >= 1 else 2}f} {unit}"
    if unit == "sd/mean":
        return f"{value:.2g}"
    return f"{value:.2f}" if unit in ("times", "cores") else f"{value:,.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.document", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is another one")
    check = parser.parse_args().check
    try:
        page = rendered(TEXT.read_text(), RESULTS)
    except UnknownFigure as problem:
        print(f"bench/benchmarks.md: {problem}", file=sys.stderr)
        return 1
    if check and page != PAGE.read_text():
        print("docs/benchmarks.md is not that of the results: python -m bench.document writes it", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
