"""What documents name is there, and no file names a place of one machine."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from posixpath import normpath

import pytest
from import_graph import FOLDERS
from tidy_world import DOCUMENTS, KEPT, ROOT, text_of


def machine_paths(text: str) -> list[str]:
    """Return the places of one machine."""
    return re.findall(r"(?<![\w.~$}/-])/(?:work|root|(?:home|Users)/\w+)\b", text)


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


def test_no_file_names_a_place_of_one_machine() -> None:
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in KEPT}
    assert {name: found for name, text in texts.items() if (found := machine_paths(text))} == {}


def test_what_the_documents_name_is_there() -> None:
    made = text_of(".gitignore").split()
    found = {name: lost(text_of(name), str(Path(name).parent), KEPT, made) for name in DOCUMENTS}
    assert {name: gone for name, gone in found.items() if gone} == {}


def test_the_readme_has_its_two_commands_and_no_open_places() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    assert "<!-- measured" not in text


@pytest.mark.parametrize("place", ["work", "root", "home/somebody", "Users/somebody"])
def test_a_place_of_one_machine_is_found(place: str) -> None:
    assert machine_paths(f"see `/{place}/notes`") == [f"/{place}"]
    assert machine_paths(f"cd /{place}") == [f"/{place}"]
    assert machine_paths(f"https://example.org/{place}, src/{place}, $HOME/{place}") == []


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
        "b.md",
        "b.md#part",
        "README.md",
        "#another-thing",
        "r33.py",
        "lmerge/cores",
        "docs/*.txt",
    ]
