"""Libraries that only some users need: an extra of the package each."""

from __future__ import annotations

import importlib
from typing import Any

from lmerge.errors import UsageError


def extra(module: str, name: str, what: str) -> Any:
    """The module, which the extra ``name`` installs. Raises UsageError: ``what`` needs it, and it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise UsageError(f"{what} the extra {name!r}: pip install 'lmerge[{name}]' ({problem})") from None
