"""The CustomResourceDefinition: as committed, as a real API server takes it, and what that refuses by it."""

from __future__ import annotations

import copy
from typing import Any

import generate_crd
import pytest
import yaml
from kube_world import KubeServer, api_of, install_definition, make_namespace
from kubernetes_validate import validate

from lmerge.errors import UsageError
from lmerge_controller.kubernetes.api import QUERIES
from lmerge_controller.kubernetes.api_errors import ObjectRefused
from lmerge_controller.kubernetes.crd import definition, schema_digest, structural
from lmerge_controller.model.reading import query_of
from lmerge_controller.model.schema import with_defaults

SMALL: dict[str, Any] = {
    "servers": {"addresses": ["a:7171", "b:7171"]},
    "versions": [{"name": "v1", "run": {"replica": "aggressive"}}],
}


def changed(**fields: Any) -> dict[str, Any]:
    return copy.deepcopy(SMALL) | fields


TWO = [{"name": "v1", "run": {"replica": "a"}}, {"name": "v2", "run": {"command": ["b"]}}]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no replicas": (changed(replicas=0), "spec.replicas"),
    "no servers": (changed(servers={}), "spec.servers"),
    "servers twice": (changed(servers={"count": 2, "addresses": ["a:1"]}), "spec.servers"),
    "a wrong policy of closing": (changed(merge={"closing": "some"}), "spec.merge.closing"),
    "no version": (changed(versions=[]), "spec.versions"),
    "a version twice": (changed(versions=[TWO[0], TWO[0]], active="v1"), "Duplicate value"),
    "no active of two": (changed(versions=TWO), "active is required"),
    "an active that is none": (changed(versions=TWO, active="v3"), "active is no version"),
    "two versions without comparison": (
        changed(versions=TWO, active="v1", merge={"divergence": "none"}),
        "nothing could be certified",
    ),
    "a table that is not used": (changed(jumpStart={"table": "t"}), "jumpStart.table"),
    "no table": (changed(jumpStart={"from": "table"}), "jumpStart.table"),
    "a back-off that falls": (changed(restart={"backoffSeconds": 9, "backoffMaxSeconds": 1}), "backoffMaxSeconds"),
    "no seconds": (changed(cutover={"timeoutSeconds": 0}), "spec.cutover.timeoutSeconds"),
    "two programs of a version": (
        changed(versions=[{"name": "v1", "run": {"replica": "a", "command": ["b"]}}]),
        "spec.versions[0].run",
    ),
}


def query(name: str, spec: dict[str, Any], namespace: str = "crd") -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": QUERIES.api_version, "kind": QUERIES.kind, "metadata": meta, "spec": spec}


def test_the_committed_definition_is_what_the_schema_gives() -> None:
    assert generate_crd.FILE.read_text() == generate_crd.text(), "run `make crd`"
    assert yaml.safe_load(generate_crd.text()) == definition()


@pytest.mark.parametrize("release", ["1.30.0", "1.37.0"])
def test_the_definition_has_the_form_that_kubernetes_expects(release: str) -> None:
    validate(definition(), release.rpartition(".")[0], strict=True)


def test_exclusive_bounds_and_large_numbers_are_written_as_openapi_does() -> None:
    schema = {"type": "integer", "exclusiveMinimum": 0, "maximum": 2**63 - 1, "title": "x"}
    assert structural(schema) == {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "format": "int64"}


def without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_empty_lists(part) for key, part in value.items() if part != []}
    return [without_empty_lists(part) for part in value] if isinstance(value, list) else value


def test_a_default_that_means_nothing_is_not_written_into_descriptions() -> None:
    volumes = {"type": "array", "items": {"type": "string"}, "default": []}
    assert "default" not in structural(volumes)
    assert structural({"type": "integer", "default": 0})["default"] == 0
    assert "default: []" not in generate_crd.text()


async def test_a_description_gets_its_defaults_and_the_digest_of_the_schema(kube: KubeServer) -> None:
    async with await api_of(kube) as api:
        await install_definition(api)
        await make_namespace(api, "crd")
        made = await api.create(QUERIES, query("defaults", SMALL))
        assert made["spec"] == without_empty_lists(with_defaults(SMALL))
        assert query_of(made, source="crd/defaults").replicas == 2
        made["status"] = {"term": 4}
        written = await api.replace(QUERIES, made, "status")
        assert written["status"] == {"term": 4, "schema": schema_digest()}


async def test_a_status_of_an_earlier_term_is_refused(kube: KubeServer) -> None:
    async with await api_of(kube) as api:
        await install_definition(api)
        await make_namespace(api, "crd")
        made = await api.create(QUERIES, query("terms", SMALL))
        made = await api.replace(QUERIES, made | {"status": {"term": 4}}, "status")
        for stale in ({"term": 3}, {}):
            with pytest.raises(ObjectRefused, match="a controller of a later term"):
                await api.replace(QUERIES, made | {"status": stale}, "status")
        await api.replace(QUERIES, made | {"status": {"term": 5}}, "status")


@pytest.mark.parametrize("wrong", list(WRONG))
async def test_what_a_file_may_not_contain_the_api_server_refuses_too(kube: KubeServer, wrong: str) -> None:
    spec, field = WRONG[wrong]
    with pytest.raises(UsageError):
        query_of(query("wrong", spec), source="wrong")
    async with await api_of(kube) as api:
        await install_definition(api)
        await make_namespace(api, "crd")
        with pytest.raises(ObjectRefused) as refused:
            await api.create(QUERIES, query("wrong", spec))
        assert field in str(refused.value)


@pytest.mark.parametrize("name", ["x" * 41, "has.dot"])
async def test_a_name_that_is_no_part_of_a_label_is_refused(kube: KubeServer, name: str) -> None:
    async with await api_of(kube) as api:
        await install_definition(api)
        await make_namespace(api, "crd")
        with pytest.raises(ObjectRefused, match="at most 40 characters"):
            await api.create(QUERIES, query(name, SMALL))
