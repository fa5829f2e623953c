"""The status as JSON, and the fence, without an API server: what is written, when, and what never is."""

from __future__ import annotations

from typing import Any

import pytest

from lmerge_controller.kubernetes.api import DEPLOYMENTS, Api, Json, Resource
from lmerge_controller.kubernetes.api_errors import ApiUnreachable, NotAllowed, WriteConflict
from lmerge_controller.kubernetes.backend import problem_reason
from lmerge_controller.kubernetes.crd import schema_digest
from lmerge_controller.kubernetes.election import LeadershipLost
from lmerge_controller.kubernetes.fence import FencedWriter
from lmerge_controller.kubernetes.lease_rules import TERM
from lmerge_controller.kubernetes.statuses import (
    condition_rows,
    definition_row,
    degraded_status,
    is_news,
    planned_status,
)
from lmerge_controller.plan.conditions import Condition, ConditionStatus, ConditionType, QueryPlan
from lmerge_controller.plan.record import Record


def plan_of(message: str = "fine", joined: tuple[str, ...] = ("a",)) -> QueryPlan:
    rows = (
        Condition(ConditionType.AVAILABLE, ConditionStatus.TRUE, "Joined", message),
        Condition(ConditionType.DEGRADED, ConditionStatus.FALSE, "AsDescribed", "nothing is wrong"),
    )
    return QueryPlan((), rows, Record(0.0, "v1"), 1.0, joined=joined, replicas_count=2)


def rows_of(status: Json) -> dict[str, tuple[str, str]]:
    return {row["type"]: (row["status"], row["reason"]) for row in status["conditions"]}


def test_a_status_shows_the_plan() -> None:
    status = planned_status({"record": {"kept": 1}}, plan_of(), 7, 0.0)
    assert (status["observedGeneration"], status["serving"], status["joinedOf"]) == (7, "v1", "1/2")
    assert status["record"] == {"kept": 1}
    assert rows_of(status)["Available"] == ("True", "Joined")


def test_a_condition_that_stays_keeps_its_time() -> None:
    before = {"conditions": condition_rows({}, [("A", "True", "R", "m"), ("B", "True", "R", "m")], 1, 0.0)}
    after = condition_rows(before, [("A", "True", "Other", "n"), ("B", "False", "R", "m")], 2, 60.0)
    assert [row["lastTransitionTime"] for row in after] == ["1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"]


def test_messages_alone_are_written_now_and_then() -> None:
    before = planned_status({"schema": schema_digest()}, plan_of("1 interval"), 1, 0.0)
    other = planned_status(before, plan_of("2 intervals"), 1, 5.0)
    assert not is_news(before, other, 5.0)
    assert is_news(before, other, 30.0)
    assert not is_news(before, planned_status(before, plan_of("1 interval"), 1, 99.0), 99.0)
    assert is_news(before, planned_status(before, plan_of("1 interval", joined=()), 1, 1.0), 1.0)


def test_a_missing_right_stands_before_what_follows_from_it() -> None:
    status = planned_status({}, plan_of(), 1, 0.0, "patch pods/status")
    assert rows_of(status)["Degraded"] == ("True", "RightMissing")


def test_a_problem_keeps_what_was_found_before() -> None:
    status = degraded_status(planned_status({}, plan_of(), 1, 0.0), "InvalidDescription", "replicas: 0", 2, 1.0)
    assert rows_of(status) == {"Available": ("True", "Joined"), "Degraded": ("True", "InvalidDescription")}


def test_a_definition_with_another_schema_is_named() -> None:
    assert definition_row({}) == []
    assert definition_row({"schema": schema_digest()})[0][1] == "True"
    for status in ({"schema": "0123456789ab"}, {"term": 1}):
        kind, value, reason, text = definition_row(status)[0]
        assert (kind, value, reason) == ("DefinitionCurrent", "False", "OtherSchema")
        assert "drops fields" in text


def test_what_keeps_a_query_from_being_operated_has_a_reason() -> None:
    assert problem_reason(NotAllowed("list pods", "403", 403, "list pods"))[0] == "RightMissing"
    assert problem_reason(ApiUnreachable("list pods", "no answer"))[0] == "ClusterUnreachable"


class RecordingApi(Api):
    """Takes writes, and answers as the API server would."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.newer: list[Json] = []  # what others have made of the object: each makes one write fail

    async def get(self, resource: Resource, namespace: str | None, name: str, *, timeout_s: float = 1.0) -> Json:
        return self.newer.pop(0)

    async def apply(self, resource: Resource, body: Json, *, manager: str, subresource: str = "") -> Json:
        self.bodies.append(body)
        if self.newer and body["metadata"].get("resourceVersion") != self.newer[0]["metadata"]["resourceVersion"]:
            raise WriteConflict("patch deployments n/d", "409 Conflict", 409)
        meta = body["metadata"] | {"resourceVersion": str(len(self.bodies)), "uid": "u"}
        return body | {"metadata": meta}

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str, grace_s: int | None = None
    ) -> None:
        self.bodies.append({"deleted": uid})


def stored(term: int) -> dict[str, Any]:
    meta = {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "5", "annotations": {TERM: str(term)}}
    return {"metadata": meta, "spec": {"replicas": 1}}


def changed_by_others(term: int, generation: int) -> dict[str, Any]:
    found = stored(term)
    found["metadata"] |= {"resourceVersion": "6", "generation": generation}
    return found


def body() -> dict[str, Any]:
    return {"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": 1}}


async def test_a_leader_of_an_earlier_term_writes_nothing() -> None:
    api = RecordingApi()
    writer = FencedWriter(api, lambda: 6, lambda resource, found: None)
    with pytest.raises(LeadershipLost, match="term 7"):
        await writer.apply(DEPLOYMENTS, body(), stored(7))
    with pytest.raises(LeadershipLost, match="term 7"):
        await writer.delete(DEPLOYMENTS, stored(7))
    assert api.bodies == []


async def test_a_change_is_conditional_and_carries_the_term() -> None:
    api = RecordingApi()
    await FencedWriter(api, lambda: 8, lambda resource, found: None).apply(DEPLOYMENTS, body(), stored(7))
    (written,) = api.bodies
    assert written["metadata"] == body()["metadata"] | {"annotations": {TERM: "8"}, "resourceVersion": "5", "uid": "u"}


async def test_a_status_that_others_wrote_in_between_is_no_obstacle() -> None:
    api, seen = RecordingApi(), stored(7)
    api.newer = [changed_by_others(7, generation=1)]
    seen["metadata"]["generation"] = 1
    await FencedWriter(api, lambda: 8, lambda resource, found: None).apply(DEPLOYMENTS, body(), seen)
    assert [one["metadata"]["resourceVersion"] for one in api.bodies] == ["5", "6"]


@pytest.mark.parametrize(
    ("newer", "error"), [({"term": 7, "generation": 2}, WriteConflict), ({"term": 9, "generation": 1}, LeadershipLost)]
)
async def test_a_spec_that_others_wrote_in_between_is_kept(newer: dict[str, int], error: type[Exception]) -> None:
    api, seen = RecordingApi(), stored(7)
    seen["metadata"]["generation"] = 1
    api.newer = [changed_by_others(**newer), changed_by_others(**newer)]
    with pytest.raises(error):
        await FencedWriter(api, lambda: 8, lambda resource, found: None).apply(DEPLOYMENTS, body(), seen)
    assert all(one["metadata"]["resourceVersion"] == "5" for one in api.bodies)


async def test_what_is_created_has_no_pods_until_the_second_write() -> None:
    api = RecordingApi()
    await FencedWriter(api, lambda: 8, lambda resource, found: None).apply(DEPLOYMENTS, body(), None)
    assert [one["spec"]["replicas"] for one in api.bodies] == [0, 1]
    assert api.bodies[1]["metadata"]["resourceVersion"] == "1"
