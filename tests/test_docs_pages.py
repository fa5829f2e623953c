"""The pages of the documentation site that are made from the code: complete, and each page of docs/ is in the site."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
from dataclasses import fields
from pathlib import Path

import docs_mermaid
import docs_pages
import pytest

import lmerge.errors
from lmerge.cli.command_table import commands
from lmerge.service.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return docs_pages.pages()


def first_cells(page: str) -> set[str]:
    return {re.sub(r"&emsp;|`", "", line.split("|")[1]).strip() for line in page.splitlines() if line.startswith("| ")}


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    named = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    kept = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(named) == sorted(kept | pages.keys())


def test_every_command_has_its_section(pages: dict[str, str]) -> None:
    sections = re.findall(r"^## lmerge ([\w -]+)$", pages["reference/commands.md"], re.MULTILINE)
    assert [name for name in sections if " " not in name] == list(commands())
    assert "token make" in sections
    assert "`--lead-max`" in pages["reference/commands.md"]


def test_every_setting_has_its_row(pages: dict[str, str]) -> None:
    assert {field.name for field in fields(Settings)} <= first_cells(pages["reference/settings.md"])


def test_the_reason_of_a_setting_is_the_comment_above_it() -> None:
    source = "class A:\n    # Why it\n    # is 3.\n    x: int = 3\n    y: int = 4\n"
    assert list(docs_pages.comments(source, "A")) == [("x", "Why it is 3."), ("y", "")]


def test_metrics_and_errors_are_complete(pages: dict[str, str]) -> None:
    kinds = {name for name, kind in vars(lmerge.errors).items() if isinstance(kind, type)}
    assert kinds <= first_cells(pages["reference/errors.md"])
    metrics = first_cells(pages["reference/metrics.md"])
    assert {"lmerge_received_elements_total", "lmerge_held_inputs", "lmerge_staged_bytes"} <= metrics


def test_links_of_the_root_lead_to_pages(pages: dict[str, str]) -> None:
    text = docs_pages.moved("[a](docs/laws.md#x) [b](ARCHITECTURE.md) [c](docs/img/a.svg) [d](https://example.org)")
    assert text == "[a](laws.md#x) [b](architecture.md) [c](img/a.svg) [d](https://example.org)"
    assert "](docs/" not in pages["index.md"] + pages["architecture.md"]


def test_the_plots_that_pages_show_are_in_the_site() -> None:
    shown = docs_pages.on_page_markdown((ROOT / "docs" / "benchmarks.md").read_text())
    assert docs_pages.RESULTS not in shown
    named = set(re.findall(r"\]\(results/([\w-]+\.png)\)", shown))
    assert "counts.png" in named
    assert named <= {plot.name for plot in docs_pages.plots() if plot.is_file()}


def test_the_site_has_the_file_that_draws_its_figures() -> None:
    assert f"  - {docs_mermaid.PAGE}\n" in (ROOT / "mkdocs.yml").read_text()


def test_mermaid_is_taken_from_the_package_that_was_checked_and_from_no_other() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as members:
        member = tarfile.TarInfo(docs_mermaid.MEMBER)
        member.size = len(b"draw()")
        members.addfile(member, io.BytesIO(b"draw()"))
    package = packed.getvalue()
    digest = base64.b64encode(hashlib.sha512(package).digest()).decode()
    assert docs_mermaid.script_of(package, digest) == b"draw()"
    with pytest.raises(ValueError, match="has the SHA-512"):
        docs_mermaid.script_of(package)
