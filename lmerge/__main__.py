"""``python -m lmerge``: the command line."""

from __future__ import annotations

from lmerge.cli.main import main

main()
