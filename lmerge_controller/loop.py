"""The loop of one merged query: observe, plan, persist, act, report, wait. Called by backends and by `lmerge plan`.

    running()  ->  ServerCalls.observe()  ->  plan()  ->  persist()  ->  act() each  ->  report()  ->  wait()

It is level-triggered: each round looks at everything anew, so a round that fails costs its time alone. An error of
one action does not stop the others. An error of a round is reported to the log, and the next round comes later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lmerge import clock
from lmerge.errors import LmergeError
from lmerge_controller.backend import ActionOutcome, Backend
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.observe.server_calls import ServerCalls
from lmerge_controller.plan.actions import Action, DemoteInput, DetachInput, PromoteInput, ReleaseInput
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.observed import ObservedQuery
from lmerge_controller.plan.planning import plan

_log: Final = logging.getLogger(__name__)

# After a round that failed, such as one without an API server. Doubled each time.
RETRY_MIN_S: Final = 0.5
RETRY_MAX_S: Final = 30.0
# A round asks all servers; events in a row must not make rounds without a pause.
ROUND_MIN_S: Final = 0.05

DescribedQuery = Callable[[], ReplicatedQuery]


async def observe(query: ReplicatedQuery, backend: Backend, servers: ServerCalls) -> ObservedQuery:
    """Return what is so now: what runs, and how the servers are. Changes nothing. Raises LmergeError of the backend."""
    parts = await backend.running()
    found = await servers.observe(parts.addresses, query.merge.name)
    return ObservedQuery(clock.wall_us() / 1_000_000, parts, found)


class QueryLoop:
    """Keeps one merged query as it is described.

    ``described`` returns the present description each round, so that it may change while the loop runs. ``may_act``
    returns whether this process may act now (it leads, on Kubernetes); it is asked before each action.
    """

    def __init__(
        self,
        described: DescribedQuery,
        backend: Backend,
        servers: ServerCalls,
        *,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._described = described
        self._backend = backend
        self._servers = servers
        self._may_act = may_act

    async def run(self) -> None:
        """Run rounds until the task is cancelled. Ends between two actions, never in the middle of one."""
        failures = 0
        while True:
            try:
                wait_s = (await self.round()).next_check_s
                failures = 0
            except LmergeError as error:
                wait_s = min(RETRY_MAX_S, RETRY_MIN_S * 2.0**failures)
                failures = min(failures + 1, 10)
                _log.warning("%s: nothing was done: %s", self._described().name, error)
            await asyncio.sleep(min(ROUND_MIN_S, wait_s))
            await self._backend.wait(max(0.0, wait_s - ROUND_MIN_S))

    async def round(self) -> QueryPlan:
        """Observe, plan, persist, act and report, once; return the plan. Raises LmergeError: nothing could be done."""
        query = self._described()
        observed = await observe(query, self._backend, self._servers)
        made = plan(query, observed)
        if made.record != observed.parts.record and self._may_act():
            await self._backend.persist(made.record)
        outcomes = [await self._act(query, action) for action in made.actions]
        await self._backend.report(made, outcomes)
        return made

    async def _act(self, query: ReplicatedQuery, action: Action) -> ActionOutcome:
        if not self._may_act():
            return ActionOutcome(action, "this controller does not lead any more")
        task = asyncio.ensure_future(self._begin(query, action))
        try:
            await asyncio.shield(task)
        except LmergeError as error:
            return ActionOutcome(action, str(error))
        except asyncio.CancelledError:
            await asyncio.wait([task])  # it has begun, and ends within the time limits of a call
            raise
        return ActionOutcome(action)

    async def _begin(self, query: ReplicatedQuery, action: Action) -> None:
        if isinstance(action, PromoteInput | DemoteInput | DetachInput | ReleaseInput):
            await self._servers.act(query.merge.name, action)
        else:
            await self._backend.act(action)
