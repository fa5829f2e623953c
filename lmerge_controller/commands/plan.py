"""``lmerge plan``: show what would be done about a merged query, and why, before anything is.

Of a file with plans, ``query.py`` or their JSON, it shows the plans (``lmerge.cli.query_plan``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lmerge import terminal
from lmerge.cli.connection import secured
from lmerge.cli.query_plan import PlanForm, is_query, show_query

if TYPE_CHECKING:
    from lmerge_controller.model.query import ReplicatedQuery
    from lmerge_controller.plan.conditions import QueryPlan

# With --check: something would be done.
CHANGES_CODE: Final = 3


@secured
def plan(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A description of a merged query, YAML or JSON, or a query.py.")
    ],
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where lmerge up keeps its state; default: .lmerge here.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit code 3 if anything would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
    only: Annotated[str | None, typer.Option("--plan", metavar="NAME", help="Of a query.py: this plan alone.")] = None,
    show: Annotated[
        PlanForm, typer.Option(help="Of a query.py: how its plans are shown. result: run one here, without a merge.")
    ] = PlanForm.TREE,
    *,
    security: Any,
) -> None:
    """Show what would be done about a merged query, and why; or show the plans of a query.py. Changes nothing.

    Examples: lmerge plan examples/flights.yaml; lmerge plan query.py --show explain

    Of a merged query it reads the file, what `lmerge up` has recorded of the processes here, and how the servers are.
    """
    if is_query(file):
        show_query(file, only, PlanForm.JSON if as_json else show)
        return
    from lmerge_controller.model.reading import read_query

    query = read_query(file)
    made = asyncio.run(_planned(query, state, security))
    if as_json:
        terminal.json_lines(json.dumps(_as_json(query, made)) + "\n")
    else:
        for text in _texts(query, made):
            terminal.line(text)
    if check and made.actions:
        raise typer.Exit(CHANGES_CODE)


async def _planned(query: ReplicatedQuery, state: Path | None, security: Any) -> QueryPlan:
    from lmerge import clock
    from lmerge_controller.local.recorded_parts import recorded_parts
    from lmerge_controller.local.state_folder import DEFAULT_BASE, StateFolder
    from lmerge_controller.observe.server_calls import ServerCalls
    from lmerge_controller.plan.observed import ObservedQuery
    from lmerge_controller.plan.planning import plan as planned

    parts = recorded_parts(query, StateFolder((state or DEFAULT_BASE) / query.name))
    async with ServerCalls(security) as servers:
        found = await servers.observe(parts.addresses, query.merge.name)
    return planned(query, ObservedQuery(clock.wall_us() / 1_000_000, parts, found))


def _texts(query: ReplicatedQuery, made: QueryPlan) -> Iterator[str]:
    from lmerge_controller.plan.actions import target_of

    count = len(made.actions)
    yield f"{query.name}: {count or 'nothing'} to do" if count != 1 else f"{query.name}: 1 thing to do"
    for action in made.actions:
        yield f"  {type(action).__name__:<14} {target_of(action):<24} {action.reason}"
    for note in made.notes:
        yield f"  {'!' if note.is_warning else '-'} {note.message}"
    for condition in made.conditions:
        yield f"  {condition.type:<12} {condition.status:<8} {condition.reason}: {condition.message}"


def _as_json(query: ReplicatedQuery, made: QueryPlan) -> Mapping[str, Any]:
    return {
        "query": query.name,
        "actions": [{"action": type(action).__name__, **asdict(action)} for action in made.actions],
        "notes": [asdict(note) for note in made.notes],
        "conditions": [asdict(condition) for condition in made.conditions],
        "next_check_s": made.next_check_s,
        "record": made.record.as_json(),
    }
