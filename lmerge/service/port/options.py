"""Limits that both ports derive from the settings in one way."""

from __future__ import annotations

import resource
from typing import Final

from lmerge.service.settings import Settings

# Messages up to this factor above the limit are read, so that they get our error, which names the input.
_RECEIVE_FACTOR: Final = 2
# File descriptors that connections leave to the rest of the process.
_OWN_FILES: Final = 128


def receive_bytes_max(settings: Settings) -> int:
    """Return the size of the largest message that is read."""
    return _RECEIVE_FACTOR * settings.message_bytes


def connections_max(settings: Settings) -> int:
    """Return how many connections may be open: as many as set, and as the process may open files for."""
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OWN_FILES
    return max(1, min(settings.connections_max, most_files))
