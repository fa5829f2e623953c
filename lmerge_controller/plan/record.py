"""What the controller must remember from one plan to the next: the part that observation cannot give.

``plan`` returns a new record, and a backend persists it *before* it acts (locally a file, on Kubernetes the status). So
a controller that dies between the two begins again with the decision, not without it. Pure values, and JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lmerge.text_enum import TextEnum


class AttemptStage(TextEnum):
    """The stage of an attempt to cut over. Everything finer is observed."""

    CERTIFYING = "certifying"
    PROMOTING = "promoting"


class NotedKind(TextEnum):
    """A state of a replica, or of a server, that matters once it has lasted."""

    LAGGING = "lagging"
    NOT_JOINED = "not-joined"
    UNREACHABLE = "unreachable"  # a server


@dataclass(frozen=True)
class CutoverAttempt:
    """A cutover that goes on: to which version, with which fingerprint, since when."""

    to: str
    fingerprint: str
    since_s: float
    stage: AttemptStage = AttemptStage.CERTIFYING


@dataclass(frozen=True)
class RefusedVersion:
    """A version to which a cutover was rolled back. It is tried again when its fingerprint changes."""

    name: str
    fingerprint: str
    at_s: float
    reason: str


@dataclass(frozen=True)
class NotedState:
    """Since when one life of a process has been in a state. ``name``: of the process."""

    kind: NotedKind
    name: str
    uid: str
    since_s: float


@dataclass(frozen=True)
class ActedFact:
    """A fact that was acted upon at ``at_s``, so that an observation that is older than the effect repeats nothing."""

    fact: str
    at_s: float


@dataclass(frozen=True)
class Record:
    """What is persisted.

    ``started_s``: when the query was first planned. ``serving``: the version that produces the output. ``attempt``: the
    cutover that goes on. ``refused``: versions that were rolled back, the latest last. ``noted``, ``acted``: bounded by
    the number of replicas. ``starts_s``: when replicas were started within the last minute.
    """

    started_s: float
    serving: str
    attempt: CutoverAttempt | None = None
    refused: tuple[RefusedVersion, ...] = ()
    noted: tuple[NotedState, ...] = ()
    acted: tuple[ActedFact, ...] = ()
    starts_s: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values; ``record_of`` is the inverse."""
        return asdict(self)


def record_of(value: Mapping[str, Any]) -> Record:
    """Return the record of what ``as_json`` returned. Fields that are unknown are ignored: they are a newer version's.

    Raises KeyError, TypeError or ValueError for anything else; a caller then begins with no record.
    """
    attempt = value.get("attempt")
    return Record(
        started_s=float(value["started_s"]),
        serving=str(value["serving"]),
        attempt=None
        if attempt is None
        else CutoverAttempt(
            str(attempt["to"]), str(attempt["fingerprint"]), float(attempt["since_s"]), AttemptStage(attempt["stage"])
        ),
        refused=tuple(
            RefusedVersion(str(v["name"]), str(v["fingerprint"]), float(v["at_s"]), str(v["reason"]))
            for v in value.get("refused", ())
        ),
        noted=tuple(
            NotedState(NotedKind(v["kind"]), str(v["name"]), str(v["uid"]), float(v["since_s"]))
            for v in value.get("noted", ())
        ),
        acted=tuple(ActedFact(str(v["fact"]), float(v["at_s"])) for v in value.get("acted", ())),
        starts_s=tuple(float(at_s) for at_s in value.get("starts_s", ())),
    )
