"""What happened in a run, line by line, and a hash of all of it: two runs are the same if their hashes are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

# Lines that are kept for the report of a failure.
LINES_KEPT: Final = 4000


class Trace:
    """``say`` notes a line; ``saw`` takes bytes into the hash only. ``echo`` hears every line. ``folder``: where
    the run keeps files, for which ``~`` stands: its name is another each time.
    """

    def __init__(
        self, clock: Callable[[], float], echo: Callable[[str], object] | None = None, folder: str = "~"
    ) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._clock = clock
        self._folder = folder
        self._echo = echo
        self._hash = blake2b(digest_size=16)

    def say(self, who: object, what: str) -> None:
        """``who`` did or met ``what``, now."""
        line = f"{self._clock():12.6f}  {who!s:<12}  {what}".replace(self._folder, "~")
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    def saw(self, data: bytes) -> None:
        """Bytes crossed the network, now."""
        self._hash.update(b"%.9f " % self._clock())
        self._hash.update(data)

    @property
    def digest(self) -> str:
        """Of everything up to now."""
        return self._hash.hexdigest()
