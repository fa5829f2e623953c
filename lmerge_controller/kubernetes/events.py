"""Events of a query: each decision once, with its reason. They are for people; a lost one changes nothing."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from datetime import datetime, timezone
from typing import Final

from lmerge.clock import wall_us
from lmerge_controller.kubernetes.api import EVENTS, QUERIES, Api, Json
from lmerge_controller.kubernetes.api_errors import ApiProblem

log = logging.getLogger(__name__)

NOTE_MAX: Final = 1024
# The same event is not repeated within so long, so that a state that lasts does not fill the list.
REPEAT_S: Final = 600.0
_REMEMBERED_MAX: Final = 10_000


class EventWriter:
    """Writes Events. ``identity``: the name of this process in them."""

    def __init__(self, api: Api, identity: str) -> None:
        self._api = api
        self._identity = identity[:128]
        self._written: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._problem = ""

    async def emit(self, query: Json, action: str, reason: str, note: str, *, is_warning: bool = False) -> None:
        """Write one, if it is news. ``action``: what was done; ``reason``: one CamelCase name; ``note``: for people."""
        now_s, meta = wall_us() / 1e6, query["metadata"]
        mark = meta["uid"], reason, note
        if now_s - self._written.get(mark, -REPEAT_S) < REPEAT_S:
            return
        self._written[mark] = now_s
        self._written.move_to_end(mark)
        while len(self._written) > _REMEMBERED_MAX:
            self._written.popitem(last=False)
        log.log(logging.WARNING if is_warning else logging.INFO, "%s: %s: %s", meta["name"], reason, note)
        regarding = {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion") if key in meta}
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{meta['name']}.{os.urandom(8).hex()}", "namespace": meta["namespace"]},
            "eventTime": datetime.fromtimestamp(now_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "lmerge.dev/controller",
            "reportingInstance": self._identity,
            "action": action[:128],
            "reason": reason[:128],
            "note": note[:NOTE_MAX],
            "type": "Warning" if is_warning else "Normal",
            "regarding": {"apiVersion": QUERIES.api_version, "kind": QUERIES.kind} | regarding,
        }
        try:
            await self._api.create(EVENTS, body)
            self._problem = ""
        except ApiProblem as problem:
            if str(problem.problem) != self._problem:
                self._problem = str(problem.problem)
                log.warning("no Events are written: %s", problem)
