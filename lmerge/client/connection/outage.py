"""Reports a server that a publisher or a subscriber cannot reach: which, why, for how long.

Clients try again for as long as it takes, so a wrong port, a wrong name in a certificate or a wrong CA would otherwise
be a wait in silence. The connections of publishers and subscribers call it at each attempt. Each outage of each server
is one warning of the logger ``lmerge.client``, after ``report_after_s``, and one more line when the server is reached:

    attempt   failed   attempt   failed   ...   5 s: the warning, with every reason so far   ...   reached: the line

A server that accepts connections, and has nothing for this client yet, is no outage: a subscriber may wait for a merge.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Any, Final

from lmerge.client.connection.streams import is_ready
from lmerge.wire.shown import escaped_line

#: Longer than a restart of a server takes, shorter than the patience of someone who looks at an empty terminal.
REPORT_AFTER_S: Final = 5.0
# A warning without a reason helps little, so it waits so much longer for one: an attempt of gRPC takes 5 s at most.
_REASON_S: Final = 6.0
# A name with several addresses fails for a reason of its own at each: localhost is 127.0.0.1 and ::1.
_REASONS_MAX: Final = 3
_REASON_CHARACTERS_MAX: Final = 500
_NO_REASON: Final = "no attempt has ended yet"

# What the words of gRPC, and of the native transport behind them, mean where they do not show what to change.
_MEANINGS: Final = {
    "Hostname Verification Check failed": "the server's certificate does not hold the name that the client calls",
    "is not in peer certificate": "the server's certificate does not hold the name that the client calls",
    "certificate not valid for name": "the server's certificate does not hold the name that the client calls",
    "unable to get local issuer certificate": "no CA that the client trusts has signed the server's certificate",
    "certificate signature failure": "no CA that the client trusts has signed the server's certificate",
    "BadSignature": "no CA that the client trusts has signed the server's certificate",
    "UnknownIssuer": "no CA that the client trusts has signed the server's certificate",
    "certificate has expired": "the server's certificate has expired",
    "certificate expired": "the server's certificate has expired",
    "WRONG_VERSION_NUMBER": "the server does not encrypt, and the client does",
    "InvalidContentType": "the server does not encrypt, and the client does",
    "http1.x server": "this port is one for HTTP; the server has another one for gRPC",
    "Socket closed": "the server may require TLS, or a certificate of the client",
    "before the server had sent anything": "the server may require TLS, or a certificate of the client",
    "answered in TLS": "the server may require TLS, or a certificate of the client",
    "CertificateRequired": "the server requires a certificate of the client",
    "TSI_DATA_CORRUPTED": "the server may require a certificate of the client",
}

_log: Final = logging.getLogger("lmerge.client")


class ServerOutage:
    """Reports one server of one client: ``with ServerOutage(...) as outage``, in the task of the connection.

    ``client``: the client in words; ``report_after_s``: when an outage is reported; None: never. The time is that of
    the event loop.
    """

    def __init__(self, client: str, target: str, report_after_s: float | None) -> None:
        self._client = client
        self._target = target
        self._report_after_s = report_after_s
        self._began_s: float | None = None  # None: the server is reached, or was never tried
        self._is_reported = False
        self._waits_for_reason = False
        self._reasons: dict[str, None] = {}  # distinct ones, the newest last
        self._channel: Any = None  # of the attempt that is in progress
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> ServerOutage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def attempt(self, channel: Any = None) -> None:
        """Note that an attempt begins. With a ``channel``, no answer is no outage once the channel is connected."""
        self._channel = channel
        if self._began_s is None and self._report_after_s is not None:
            self._began_s = asyncio.get_running_loop().time()
            self._look_after(self._report_after_s)

    def failed(self, reason: str) -> None:
        """Note why an attempt has failed, or why a connection has ended, in the words of gRPC or of the server."""
        self._channel = None
        self._reasons.pop(reason, None)
        self._reasons[reason] = None
        if len(self._reasons) > _REASONS_MAX:
            del self._reasons[next(iter(self._reasons))]
        if self._waits_for_reason:
            self._report()

    def answers(self) -> bool:
        """Return whether the server is connected in this attempt, even if it has sent nothing yet."""
        return self._channel is not None and is_ready(self._channel)

    def reached(self) -> None:
        """Note that the server serves."""
        if self._began_s is None:
            return
        if self._is_reported:
            _log.warning("%s has reached server %s, after %.0f s", self._client, self._target, self._lasted_s())
        self._end()

    def _due(self) -> None:
        assert self._report_after_s is not None
        if self.answers():
            # Either it has nothing for this client yet, or it will refuse the call: the attempt's end shows which.
            self._look_after(self._report_after_s)
        elif not self._reasons and not self._waits_for_reason:
            self._waits_for_reason = True
            self._look_after(_REASON_S)
        else:
            self._report()

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _report(self) -> None:
        self._stop_looking()
        self._is_reported = True
        _log.warning(
            "%s has not reached server %s for %.0f s, and goes on trying: %s",
            self._client,
            self._target,
            self._lasted_s(),
            "; or ".join(map(shown_reason, self._reasons)) or _NO_REASON,
        )

    def _lasted_s(self) -> float:
        assert self._began_s is not None
        return asyncio.get_running_loop().time() - self._began_s

    def _end(self) -> None:
        self._stop_looking()
        self._began_s = self._channel = None
        self._is_reported = False
        self._reasons.clear()

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._waits_for_reason = False


def shown_reason(reason: str) -> str:
    """Return a reason on one line, after its meaning if it has a known one.

    >>> shown_reason("Socket closed")
    'the server may require TLS, or a certificate of the client (Socket closed)'
    """
    text = escaped_line(reason[:_REASON_CHARACTERS_MAX])
    meaning = next((meaning for part, meaning in _MEANINGS.items() if part in reason), None)
    return text if meaning is None else f"{meaning} ({text})"
