"""Shows errors at a terminal: the message first, and then only as much more as helps.

The functions of ``lmerge.spark`` install this when one is first used. An error of the user's ends the program with one
sentence and the line that caused it. Any other error of lmerge, also one that Spark has wrapped in its own, ends it
with one sentence and then the traceback of Python and Spark. Notebooks show errors in their own way, which stays.
"""

from __future__ import annotations

import re
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

from lmerge.errors import LmergeError, UsageError

# How Spark repeats an error of a Python process: with that process's traceback, and the error's class before its text.
_OWN: Final = re.compile(r"^(?:lmerge\.errors|lmerge\.spark\.\w+)\.\w+: (.*)$", re.MULTILINE)
_OURS: Final = (str(Path(__file__).parents[1]),)
_SPARKS: Final = re.compile(r"[/\\](pyspark|py4j)[/\\]")
_installed: Final = threading.Event()


def own_message(text: str) -> str:
    """Return the message of an lmerge error in a text that Spark has wrapped around it; "": there is none."""
    found = _OWN.findall(text)
    return str(found[-1]) if found else ""


def put_sentence_first() -> None:
    """Make errors that end this program begin with their message. Calling it again changes nothing."""
    if _installed.is_set():
        return
    _installed.set()
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        message = str(error) if isinstance(error, LmergeError) else own_message(str(error))
        if message:
            sys.stderr.write(f"lmerge: {message}\n")
        if message and isinstance(error, UsageError):
            sys.stderr.write(_place(trace))
        else:
            before(kind, error, trace)

    sys.excepthook = hook


def _place(trace: TracebackType | None) -> str:
    """Return the user's line that an error comes from: the last frame that is neither lmerge's nor Spark's."""
    frames = [
        frame
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith(_OURS) and not _SPARKS.search(frame.filename)
    ]
    return f"  in {frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}\n" if frames else ""
