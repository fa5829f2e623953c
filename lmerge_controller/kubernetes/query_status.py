"""The status of one query: its record, its conditions, the term of its leader. Written through the fence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from lmerge.clock import wall_us
from lmerge_controller.kubernetes.api import Json
from lmerge_controller.kubernetes.api_errors import ObjectMissing, WriteConflict
from lmerge_controller.kubernetes.cluster_copy import ClusterCopy
from lmerge_controller.kubernetes.fence import FencedWriter
from lmerge_controller.kubernetes.object_cache import ObjectKey
from lmerge_controller.kubernetes.statuses import degraded_status, is_news, planned_status
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.record import Record, record_of

# A write that finds the query changed is tried again with the newer one, so often.
_TRIES: Final = 3


class QueryStatus:
    """Reads and writes the status of the query ``key``. Its methods raise LeadershipLost and ApiProblem."""

    def __init__(self, key: ObjectKey, copies: ClusterCopy, writer: FencedWriter) -> None:
        self.key = key
        self._copies, self._writer = copies, writer
        self._claimed_term = 0
        self._written_s = 0.0

    @property
    def query(self) -> Json:
        """Return the query as it is in the copy. Raises ObjectMissing."""
        found = self._copies.query(self.key)
        if found is None:
            raise ObjectMissing(f"find the query {'/'.join(self.key)}", "it has been deleted", 404)
        return found

    @property
    def fields(self) -> dict[str, Any]:
        """Return the status as it is in the copy."""
        return dict(self.query.get("status") or {})

    @property
    def record(self) -> Record | None:
        """Return the record that was persisted last, or None."""
        with suppress(KeyError, TypeError, ValueError):
            return record_of(self.fields["record"])
        return None

    async def persist(self, record: Record) -> None:
        """Store the record."""
        fields = {"record": record.as_json(), "serving": record.serving}
        await self._write(lambda status: dict(status) | fields)

    async def claim(self) -> None:
        """Write the term before the first act of this term: a term that has acted is never used again."""
        term = self._writer.term
        if self._claimed_term != term and int(self.fields.get("term") or 0) != term:
            await self._write(dict)
        self._claimed_term = term

    async def show_plan(self, plan: QueryPlan, generation: int, missing_right: str = "") -> None:
        """Show what was found and decided, if it differs enough from what is shown."""
        now_s = wall_us() / 1e6

        def made(status: Mapping[str, Any]) -> dict[str, Any]:
            return planned_status(status, plan, generation, now_s, missing_right)

        if is_news(self.fields, made(self.fields), now_s - self._written_s):
            await self._write(made)
            self._written_s = now_s

    async def show_problem(self, reason: str, message: str) -> None:
        """Show why nothing can be done now."""
        now_s, before = wall_us() / 1e6, self.fields
        generation = int(self.query["metadata"].get("generation") or 0)
        if is_news(before, degraded_status(before, reason, message, generation, now_s), 0.0):
            await self._write(lambda status: degraded_status(status, reason, message, generation, now_s))

    async def _write(self, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        for attempt in range(_TRIES):
            query = self.query
            try:
                await self._writer.status(query, change(query.get("status") or {}))
            except WriteConflict:
                if attempt + 1 == _TRIES:
                    raise
                await self._writer.read_again(query)
            else:
                return
