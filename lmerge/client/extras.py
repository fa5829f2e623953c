"""Libraries that only some users need: each is an extra of the package."""

from __future__ import annotations

import importlib
from typing import Any

from lmerge.errors import UsageError


def extra(module: str, name: str, what: str) -> Any:
    """Import ``module``, which the extra ``name`` installs. Raises UsageError, which names ``what`` needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise UsageError(f"{what} the extra {name!r}: pip install 'lmerge[{name}]' ({problem})") from None
