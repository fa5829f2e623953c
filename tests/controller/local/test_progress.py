"""What `lmerge up` and `lmerge ps` show of a run, from states of it."""

from __future__ import annotations

from dataclasses import replace

from controller_world import SimulatedQuery, described

from lmerge_controller.local.progress import is_settled, losses_text, progress
from lmerge_controller.local.status_file import LocalStatus, status_of
from lmerge_controller.plan.planning import plan


def status(survives: tuple[int, ...]) -> LocalStatus:
    """Return the status of a run of three joined replicas, whose servers report so many losses."""
    world = SimulatedQuery(described(3))
    for index in range(3):
        world.add("v1", index)
    observed = world.observed()
    servers = zip(observed.servers, survives, strict=True)
    seen = replace(observed, servers=tuple(replace(server, survives_losses=losses) for server, losses in servers))
    return LocalStatus("q").after(plan(world.query, seen), (), 1_000.0)


def test_losses_are_those_of_the_server_that_survives_fewest() -> None:
    assert losses_text(status((2, 2))) == "it survives the loss of 2 inputs"
    assert losses_text(status((2, 1))) == "it survives the loss of 1 input"
    assert losses_text(status((0, 2))) == "the loss of an input may stop it"
    assert losses_text(LocalStatus("q", joined=("q-v1-0",))) == "the loss of its input may stop it"
    assert losses_text(status_of(status((2, 1)).as_json()) or LocalStatus("q")) == "it survives the loss of 1 input"


def test_a_run_is_up_once_the_servers_survive_the_loss_of_all_replicas_but_one() -> None:
    before, after = status((2, 1)), status((2, 2))
    assert len(before.joined) == 3
    assert not is_settled(before)
    assert is_settled(after)
    assert list(progress(before, after)) == ["q is up: it survives the loss of 2 inputs"]
