"""The events of a run, line by line, and a hash of all of them: two runs are the same if their hashes are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

# Lines that are kept for the report of a failure.
LINES_KEPT: Final = 4000


class Trace:
    """The lines of a run.

    ``note`` adds a line; ``saw`` adds bytes to the hash only. ``echo`` receives every line. ``folder``: the run's
    files, shown as ``~``, because the name differs from run to run.
    """

    def __init__(
        self, clock: Callable[[], float], echo: Callable[[str], object] | None = None, folder: str = "~"
    ) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._clock = clock
        self._folder = folder
        self._echo = echo
        self._hash = blake2b(digest_size=16)

    def note(self, who: object, what: str) -> None:
        """Add a line with the present time: ``who`` did ``what``, or met it."""
        line = f"{self._clock():12.6f}  {who!s:<12}  {what}".replace(self._folder, "~")
        self._hash.update(line.encode())
        self.lines.append(line)
        if self._echo is not None:
            self._echo(line)

    def saw(self, data: bytes) -> None:
        """Add bytes that crossed the network, with the present time, to the hash."""
        self._hash.update(b"%.9f " % self._clock())
        self._hash.update(data)

    @property
    def digest(self) -> str:
        """The hash of everything up to now."""
        return self._hash.hexdigest()
