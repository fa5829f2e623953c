"""What a user sees at a terminal: the sentence first, and then as little more as helps.

Called by the functions of ``lmerge.spark`` when one is first used. An error that is the user's own ends the program
with one sentence and the line that it is about; any other error of lmerge, also one that Spark has wrapped in its own,
with one sentence and then all that Python and Spark have to add. Notebooks have their own way, which stays.
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

# How Spark repeats an error of a Python process: with the traceback of that process, and its class before its words.
_OWN: Final = re.compile(r"^(?:lmerge\.errors|lmerge\.spark\.\w+)\.\w+: (.*)$", re.MULTILINE)
_OURS: Final = (str(Path(__file__).parents[1]),)
_SPARKS: Final = re.compile(r"[/\\](pyspark|py4j)[/\\]")
_installed: Final = threading.Event()


def own_words(text: str) -> str:
    """What an error of lmerge says, in a text that Spark has wrapped around it; "": there is none in it."""
    found = _OWN.findall(text)
    return str(found[-1]) if found else ""


def put_sentence_first() -> None:
    """From here on an error that ends this program begins with its sentence. Doing so again changes nothing."""
    if _installed.is_set():
        return
    _installed.set()
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        words = str(error) if isinstance(error, LmergeError) else own_words(str(error))
        if words:
            sys.stderr.write(f"lmerge: {words}\n")
        if words and isinstance(error, UsageError):
            sys.stderr.write(_place(trace))
        else:
            before(kind, error, trace)

    sys.excepthook = hook


def _place(trace: TracebackType | None) -> str:
    """The user's own line that an error comes from: the last one that is neither lmerge's nor Spark's."""
    frames = [frame for frame in traceback.extract_tb(trace)
              if not frame.filename.startswith(_OURS) and not _SPARKS.search(frame.filename)]
    return f"  in {frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}\n" if frames else ""
