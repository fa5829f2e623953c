"""Who may lead, and in which term: the rules of the election, without I/O and without a clock.

A *candidate* reads one Lease, and writes it only on the condition that it has not changed since (``resourceVersion``).
The API server applies one of several such writes. The rules keep two laws:

L1  Terms rise. Each acquisition writes a term above all earlier ones, also one by the holder before, and also after
    the Lease was deleted. So a term names one stretch of leadership of one candidate.
L2  Leaderships do not overlap. A leader acts until ``renew_s`` after it *sent* its last successful write. Another
    candidate acquires at the earliest ``lease_s`` after it *received* that write's result. Sent is before received, and
    ``renew_s < lease_s``, so the leader has stopped before. Both measure stretches with their own steady clock; no two
    clocks are compared. The law needs clocks whose rates differ by less than ``lease_s / renew_s``.

       leader     sent ------------------ stops acting (renew_s)
       other            received ------------------------------ may acquire (lease_s)

``spec.leaseTransitions`` counts changes of the holder only: an acquisition by the same holder leaves it, so it is no
term. The term is an annotation of the Lease.

A missing Lease (deleted, or lost with a restored etcd) is no permission: a leader may be acting on it. A candidate
waits for ``lease_s`` from when it first found it missing. Its term is then above the floor that the caller supplies,
the highest term that any object carries. So a term in which a leader has acted on any object is not used again.

A Lease without a holder is permission at once: its last leader has released it. Whoever creates one by hand vouches
that nobody leads; the chart does so at its installation, so that the first leader need not wait.

A candidate that finds the Lease missing twice may have missed one that came and went. So the one who creates it acts
only after a renewal ``lease_s`` later: by then every candidate that looks at least every ``renew_s`` has seen it, and
one that looks more rarely begins to wait again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Final

from lmerge.errors import UsageError

TERM: Final = "lmerge.dev/term"
VERSION: Final = "lmerge.dev/version"  # of the program that acquired the Lease; no rule depends on it


@dataclass(frozen=True)
class LeaseTimes:
    """How long a leadership lasts, in seconds. ``retry_s``: how often a candidate looks and a leader renews."""

    lease_s: float = 3.0
    renew_s: float = 2.0
    retry_s: float = 0.5

    def __post_init__(self) -> None:
        # A leader must be able to try twice before it has to stop.
        if not 0 < 2 * self.retry_s <= self.renew_s or self.renew_s * 1.2 > self.lease_s:
            raise UsageError(
                f"a lease of {self.lease_s} s cannot be renewed within {self.renew_s} s, tried every {self.retry_s} s"
            )


@dataclass(frozen=True)
class Leadership:
    """A stretch of leadership: its term, and the candidate's own time until which it lasts.

    ``is_confirmed`` is False while the Lease has just been created: the candidate renews it and does not act.
    """

    term: int
    until: float
    is_confirmed: bool = True


class Candidacy:
    """What one candidate has seen of the Lease, and what it may write. ``now`` is its own steady clock, in seconds.

    ``identity`` names one process: no other ever uses it. ``version``: of its program, for people.
    """

    def __init__(self, identity: str, times: LeaseTimes, version: str = "") -> None:
        self.identity = identity
        self.version = version
        self.times = times
        self.leadership: Leadership | None = None
        self.highest_term = 0
        self._observed: tuple[object, ...] | None = None
        self._observed_at = 0.0
        self._looked_at = float("-inf")
        self._confirm_from = float("-inf")

    def observe(self, lease: dict[str, Any] | None, sent: float, now: float) -> None:
        """Take in the Lease as it was read, or None if there is none.

        ``sent``: when the read was sent; ``now``: when the answer had come.
        """
        mark = _mark(lease)
        # Missing twice is missing all the time only if no Lease can have come and gone between the two looks.
        is_gap = lease is None and now - self._looked_at > self.times.renew_s
        if mark != self._observed or is_gap:
            self._observed, self._observed_at = mark, now
        self._looked_at = sent
        self.highest_term = max(self.highest_term, term_of(lease))
        if self.leadership is not None and (lease is None or not self._is_own(lease)):
            self.leadership = None

    def may_acquire(self, lease: dict[str, Any] | None, now: float) -> bool:
        """Return whether to try to acquire the Lease as it was just observed."""
        if self.leadership is not None:
            return False
        holder = (lease.get("spec") or {}).get("holderIdentity") if lease is not None else None
        if lease is not None and (not holder or holder == self.identity):
            return True  # released by a leader that had stopped, or held by this candidate, which does not act
        return now - self._observed_at >= self.times.lease_s

    def acquisition(self, lease: dict[str, Any] | None, floor: int, wall: str) -> tuple[dict[str, Any], int]:
        """Return the Lease to write, and its term. ``floor``: no term up to it is used. ``wall``: time for people."""
        term = max(self.highest_term, term_of(lease), floor) + 1
        changed = copy.deepcopy(lease) if lease is not None else {"metadata": {}, "spec": {}}
        spec = changed.setdefault("spec", {})
        transitions = int(spec.get("leaseTransitions") or 0)
        spec["leaseTransitions"] = transitions + (spec.get("holderIdentity") != self.identity)
        spec |= {"holderIdentity": self.identity, "acquireTime": wall, "renewTime": wall}
        spec["leaseDurationSeconds"] = max(1, round(self.times.lease_s))
        annotations = changed["metadata"].get("annotations") or {}
        changed["metadata"]["annotations"] = annotations | {TERM: str(term), VERSION: self.version}
        return changed, term

    def renewal(self, lease: dict[str, Any], wall: str) -> dict[str, Any]:
        """Return the leader's Lease with a newer time."""
        changed = copy.deepcopy(lease)
        changed["spec"]["renewTime"] = wall
        return changed

    def release(self, lease: dict[str, Any], wall: str) -> dict[str, Any]:
        """Return the Lease without a holder, for a leader that has stopped acting."""
        self.leadership = None
        changed = copy.deepcopy(lease)
        changed["spec"] |= {"holderIdentity": "", "renewTime": wall}
        return changed

    def written(self, lease: dict[str, Any], sent: float, now: float, *, is_created: bool = False) -> Leadership:
        """Take in the answer of an own write that was sent at ``sent``. Return the leadership that it gives."""
        if self.leadership is None:
            self._confirm_from = now + self.times.lease_s if is_created else sent
        is_confirmed = sent >= self._confirm_from
        self.leadership = Leadership(term_of(lease), sent + self.times.renew_s, is_confirmed)
        self.highest_term = max(self.highest_term, self.leadership.term)
        self._observed, self._observed_at = _mark(lease), now
        return self.leadership

    def expire(self, now: float) -> bool:
        """Return whether the leadership has just ended because no renewal succeeded in time."""
        if self.leadership is None or now < self.leadership.until:
            return False
        self.leadership = None
        return True

    def other_version(self, lease: dict[str, Any] | None) -> str | None:
        """Return the version of another candidate that holds the Lease, if it differs from this one's; else None."""
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity")
        found = _annotation(lease, VERSION)
        return found if holder and holder != self.identity and found and found != self.version else None

    def _is_own(self, lease: dict[str, Any]) -> bool:
        """Return whether the Lease is still that of this leadership: same holder, same term."""
        holder = (lease.get("spec") or {}).get("holderIdentity")
        return self.leadership is not None and (holder, term_of(lease)) == (self.identity, self.leadership.term)


def term_of(found: dict[str, Any] | None) -> int:
    """Return the term that an object carries, 0 if it carries none or something that is no term."""
    text = _annotation(found, TERM)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def _annotation(found: dict[str, Any] | None, name: str) -> str:
    """Return an annotation of an object; the empty text if it has none, or something that is no text."""
    value = (((found or {}).get("metadata") or {}).get("annotations") or {}).get(name)
    return value if isinstance(value, str) else ""


def _mark(lease: dict[str, Any] | None) -> tuple[object, ...]:
    """Return what changes with every write of the Lease, by whomever."""
    if lease is None:
        return (None,)
    return (lease["metadata"].get("uid"), lease["metadata"].get("resourceVersion"))
