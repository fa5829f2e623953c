"""The snippets of docs/python.md run, in order, against a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from client_world import threaded_world

from lmerge.addresses import DEFAULT_PORT
from lmerge.client import list_merges

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_every_snippet_of_the_page_runs() -> None:
    namespace: dict[str, Any] = {}
    with threaded_world() as world:
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
            exec(compile(text.replace(f"localhost:{DEFAULT_PORT}", world.target), str(PAGE), "exec"), namespace)
        assert {one.merge for one in list_merges(world.target)} >= {"table", "changes"}
