"""Runs ``lmerge`` and prints its CPU seconds at the end: ``python -m bench.cpu_of READY_FILE serve ...``."""

from __future__ import annotations

import sys
import time

from bench.harness import exit_on_help
from lmerge.cli.main import main

if __name__ == "__main__":
    exit_on_help(__doc__)
    ready, *arguments = sys.argv[1:]
    try:
        main([*arguments, "--ready-file", ready])
    finally:
        print(time.process_time(), flush=True)
