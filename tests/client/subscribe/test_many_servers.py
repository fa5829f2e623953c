"""A reader of several servers, over crashes, restarts and resumes at random: a legal stream, the reference, nothing
lost and nothing twice; gaps only where no server has the events any more.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from server_model import Model

from lmerge.core.elements import INF, Event
from lmerge.testing.streams.merge_inputs import reference

pytestmark = pytest.mark.usefixtures("engine")

STEPS_MAX = 200_000


def run(seed: int, *, servers: int, gaps: bool = False) -> Model:
    random = Random(f"{seed} {servers} {gaps}")
    events = reference(random, random.randint(5, 40), duplicates=random.random() < 0.5)
    model = Model(random, events, servers=servers, gaps=gaps)
    for _ in range(STEPS_MAX):
        if not model.step():
            break
    else:
        raise AssertionError(f"the stream never ended: {model.follower.sources}")
    while model.read():
        pass
    assert model.received.stable_point == INF
    return model


def differences(model: Model) -> Counter[Event]:
    received, real = Counter(model.before + model.received.events()), Counter(model.reference)
    return Counter({e: n for e, n in ((received - real) + (real - received)).items() if e.ve >= model.since})


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_as_long_as_one_server_is_there_nothing_is_lost_and_nothing_delivered_twice(servers: int) -> None:
    for seed in range(20):
        model = run(seed, servers=servers)
        assert model.gaps == [], f"seed {seed}"
        assert not differences(model), f"seed {seed}"


@pytest.mark.parametrize("servers", [1, 2])
def test_where_all_servers_go_down_the_stream_is_legal_and_every_loss_lies_in_a_reported_gap(servers: int) -> None:
    for seed in range(15):
        model = run(seed, servers=servers, gaps=True)
        for event in differences(model):
            assert any(event.ve >= gap.start and event.vs < gap.end for gap in model.gaps), (seed, event, model.gaps)


@pytest.mark.long
@pytest.mark.parametrize("servers", [2, 3])
def test_as_long_as_one_server_is_there_nothing_is_lost_for_many_seeds(servers: int, long_seeds: range) -> None:
    for seed in long_seeds:
        model = run(10_000 + seed, servers=servers)
        assert model.gaps == [], f"seed {seed}"
        assert not differences(model), f"seed {seed}"
