"""The facts that a durable merge persists beside its output: its name, algorithm, policy, ``complete_from``, schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Protocol

from lmerge.core.elements import NEG_INF
from lmerge.core.merge import Merge
from lmerge.service.output.transaction import Changes
from lmerge.wire.generated import lmerge_pb2 as pb


class RecordedMerge(Protocol):
    """The part of a merge's output that is persisted as facts."""

    @property
    def name(self) -> str: ...
    @property
    def merge(self) -> Merge: ...

    complete_from: int
    epoch: int
    gaps: int
    schema: pb.Schema | None
    has_bare_events: bool


class MergeRecord:
    """The facts that were handed to the store, and the texts that ``keep`` persists."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._stored: dict[str, object] = {}

    @property
    def kept(self) -> Mapping[str, str]:
        return self._kept

    def keep(self, name: str, text: str) -> None:
        """Persist ``text`` with the changes of this turn."""
        self._kept = self._kept | {name: text}

    def forget(self) -> None:
        """Forget all texts, and hand all facts to the store again: a new epoch has begun."""
        self._kept, self._stored = {}, {}

    def note(self, changes: Changes, hub: RecordedMerge) -> None:
        """At the end of a turn: add the facts that have changed to ``changes``."""
        merge = hub.merge
        now: dict[str, object] = {
            "name": hub.name,
            "algorithm": merge.algorithm,
            "policy": merge.policy,
            "complete_from": hub.complete_from,
            "gaps": hub.gaps,
            "schema": hub.schema,
            "kept": self._kept,
            "epoch": hub.epoch,
            "bare_events": hub.has_bare_events or None,
        }
        for name, value in now.items():
            if name not in self._stored or (self._stored[name] is not value and self._stored[name] != value):
                changes.facts[name] = _dump(value)
        self._stored = now

    def load(self, facts: Mapping[str, bytes], hub: RecordedMerge) -> None:
        """Set the state of ``hub`` from facts that were read from a store."""
        hub.complete_from = complete_from(facts)
        hub.gaps = int(facts.get("gaps", b"0"))
        hub.epoch = int(facts.get("epoch", b"0"))
        schema = facts.get("schema", b"")
        hub.schema = pb.Schema.FromString(schema[1:]) if schema else None
        noted = facts.get("bare_events")
        if noted is None:  # written by an older version: derive it from the events that are there
            noted = _dump(hub.merge.stable_point > NEG_INF or hub.merge.live_count > 0 or None)
        hub.has_bare_events = hub.schema is None and bool(noted)
        self._kept = json.loads(facts.get("kept", b"{}"))


def complete_from(facts: Mapping[str, bytes]) -> int:
    """Return the time from which the output of these facts is complete."""
    return int(facts.get("complete_from", b"%d" % NEG_INF))


def _dump(value: object) -> bytes:
    if value is None:
        return b""
    if isinstance(value, pb.Schema):
        return b"=" + value.SerializeToString()  # so that a schema without columns differs from none
    return json.dumps(value).encode() if isinstance(value, dict) else str(value).encode()
