"""A description is read with its defaults; a problem of a wrong one names its line, its field and what is allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lmerge.errors import UsageError
from lmerge_controller.model.query import JumpStartSource, RunSpec
from lmerge_controller.model.reading import BYTES_MAX, parse_query, query_of, read_query
from lmerge_controller.model.schema import spec_schema, with_defaults

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

SMALL = """\
apiVersion: lmerge.dev/v1alpha1
kind: ReplicatedQuery
metadata:
  name: prices
spec:
  servers:
    count: 2
  versions:
    - name: v1
      run:
        command: [prices, --to, "{servers}"]
"""


# Nine lines that describe 10^8 values.
BOMB = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


RUN: dict[str, Any] = {"name": "v1", "run": {"command": ["prices"]}}


def document(**spec: Any) -> dict[str, Any]:
    """Return a small valid description whose spec has these fields."""
    base = {"servers": {"count": 2}, "versions": [RUN]}
    return {
        "apiVersion": "lmerge.dev/v1alpha1",
        "kind": "ReplicatedQuery",
        "metadata": {"name": "prices"},
        "spec": {**base, **spec},
    }


def problem_of(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_query(text, source="prices.yaml")
    return str(caught.value)


def problems_with(**spec: Any) -> str:
    with pytest.raises(UsageError) as caught:
        query_of(document(**spec), source="prices")
    return str(caught.value)


def test_what_is_absent_has_the_default_of_the_schema() -> None:
    query = parse_query(SMALL)
    assert (query.name, query.merge.name, query.active, query.replicas) == ("prices", "prices", "v1", 2)
    assert query.merge.divergence == "alarm"
    assert query.merge.retention.bytes == 32 * 2**20
    assert query.cutover.timeout_s == 600
    assert query.restart.delay_s(0) == 0
    assert query.jump_start.source is JumpStartSource.NONE
    assert query.versions[0].run == RunSpec(command=("prices", "--to", "{servers}"))
    assert query.servers.are_ours


def test_the_defaults_of_the_values_are_those_of_the_schema() -> None:
    query = parse_query(SMALL)
    for value in (
        query.merge,
        query.servers,
        query.spread,
        query.cutover,
        query.health,
        query.jump_start,
        query.restart,
    ):
        required = {"name": "prices"} if value is query.merge else {"count": 2} if value is query.servers else {}
        assert type(value)(**required) == value


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    query = read_query(path)
    assert query.folder == str(EXAMPLES)
    assert query.version(query.active) is not None


def test_json_is_read_as_yaml_is() -> None:
    assert parse_query(json.dumps(document())) == query_of(document(), source="x")


def test_a_resource_of_kubernetes_may_have_metadata_and_a_status() -> None:
    resource = document()
    resource["metadata"] |= {"namespace": "web", "generation": 4, "labels": {"a": "b"}}
    query = query_of({**resource, "status": {"anything": 1}}, source="x")
    assert (query.namespace, query.generation) == ("web", 4)


def test_every_field_of_the_schema_is_described_and_closed() -> None:
    def walk(schema: Any, path: str) -> None:
        assert schema.get("description") or path.endswith(("[]", "{}")), path
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
            for name, part in schema["properties"].items():
                walk(part, f"{path}.{name}")
        if isinstance(schema.get("items"), dict) and "properties" in schema["items"]:
            walk(schema["items"], f"{path}[]")

    jsonschema.Draft202012Validator.check_schema(spec_schema())
    walk(spec_schema(), "spec")


def test_defaults_are_filled_into_a_copy() -> None:
    spec = document()["spec"]
    filled = with_defaults(spec)
    assert "merge" not in spec
    assert filled["merge"]["policy"] == "lazy"
    assert with_defaults(filled) == filled


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        ("    count: 2", "    count: 0", "prices.yaml:7: spec.servers.count: 0 is below the minimum of 1"),
        ("    count: 2", "    cuont: 2", "prices.yaml:7: spec.servers.cuont: unknown field; there are addresses,"),
        ("    count: 2", "    count: two", "prices.yaml:7: spec.servers.count: 'two' is not of type integer"),
        ("    - name: v1", "    - name: V1", "prices.yaml:9: spec.versions[0].name: 'V1' does not have the form"),
        ("  name: prices", "  nane: prices", "prices.yaml:3: metadata: name is required"),
        ("kind: ReplicatedQuery", "kind: Query", "prices.yaml:2: kind: 'Query' is not ReplicatedQuery"),
        ("  servers:", "  servers:\n  servers:", "prices.yaml:7: spec.servers: the field comes twice"),
        ("spec:", "spec: [", "prices.yaml:7: it is no YAML"),
        ("    count: 2", "    {}", "spec.servers: exactly one of count, addresses is required, but there is none"),
    ],
)
def test_a_problem_names_file_line_field_and_what_is_allowed(line: str, replacement: str, message: str) -> None:
    assert line in SMALL
    assert message in problem_of(SMALL.replace(line, replacement, 1))


def test_every_problem_is_reported() -> None:
    found = problem_of(SMALL.replace("count: 2", "count: 99") + "  replicas: 0\n  active: v9\n")
    assert [line.split(": ")[1] for line in found.splitlines()] == ["spec.replicas", "spec.servers.count"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"active": "v2"}, "spec.active: 'v2' is no version; there are v1"),
        ({"replicas": 17}, "spec.replicas: 17 is above the maximum of 16"),
        ({"merge": {"policy": "often"}}, "spec.merge.policy: unknown policy 'often'"),
        ({"merge": {"name": "a\nb"}}, "spec.merge.name: the name of a merge must be printable"),
        ({"merge": {"closing": "quorum:0"}}, "spec.merge.closing"),
        ({"servers": {"addresses": ["here"]}}, "spec.servers.addresses[0]: 'here' is no address"),
        ({"servers": {"addresses": ["h:1", "h:1"]}}, "spec.servers.addresses[1]: h:1 comes twice"),
        ({"servers": {"count": 2, "addresses": ["h:1"]}}, "exactly one of count, addresses"),
        ({"servers": {"count": 3, "port": 65534}}, "the last server's port would be above 65535"),
        ({"servers": {"count": 3, "port": 7170, "httpPort": 7172}}, "are partly the same"),
        ({"jumpStart": {"from": "table"}}, "spec.jumpStart: table is required by from: table"),
        ({"jumpStart": {"table": "x"}}, "spec.jumpStart: table is required by from: table"),
        ({"restart": {"backoffSeconds": 9, "backoffMaxSeconds": 8}}, "spec.restart.backoffMaxSeconds"),
        ({"cutover": {"timeoutSeconds": float("nan")}}, "spec.cutover.timeoutSeconds: it is no finite number"),
        ({"cutover": {"timeoutSeconds": 0}}, "spec.cutover.timeoutSeconds: 0 is not above 0"),
        ({"versions": []}, "spec.versions: [] is empty"),
        ({"versions": [{"name": "v1", "run": {"replica": "a", "program": "b"}}]}, "are replica, program"),
        ({"versions": [{"name": "v1", "run": {}}]}, "exactly one of command, replica, program is required"),
    ],
)
def test_contradictions_are_found(spec: dict[str, Any], message: str) -> None:
    assert message in problems_with(**spec)


def test_several_versions_need_an_active_one_distinct_names_and_a_comparison() -> None:
    two = [{"name": name, "run": {"command": [name]}} for name in ("v1", "v2")]
    assert "active is required where there are several versions: one of v1, v2" in problems_with(versions=two)
    assert "v1 names two versions" in problems_with(versions=[two[0], two[0]], active="v1")
    assert "no version can be certified" in problems_with(versions=two, active="v1", merge={"divergence": "none"})


@pytest.mark.parametrize(
    "text", ["", "---\n---\n", "[1]", "a: b", "1", "!!python/object:os.system {}", "a: &x [*x]", BOMB]
)
def test_what_is_no_description_is_refused(text: str) -> None:
    assert problem_of(text).startswith("prices.yaml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large.yaml", tmp_path / "binary.yaml"
    large.write_bytes(b"#" * (BYTES_MAX + 1))
    binary.write_bytes(b"\xff\xfe")
    for path, message in ((tmp_path / "none.yaml", "No such file"), (large, "at most"), (binary, "is not UTF-8")):
        with pytest.raises(UsageError, match=message):
            read_query(path)


def test_a_fingerprint_changes_with_what_a_version_runs_and_with_nothing_else() -> None:
    first = query_of(document(), source="x")
    same = query_of(document(replicas=3, health={"lagMax": 5}), source="y", folder="/elsewhere")
    other = query_of(document(versions=[{"name": "v1", "run": {"command": ["prices"]}, "env": {"A": "1"}}]), source="z")
    assert first.versions[0].fingerprint == same.versions[0].fingerprint != other.versions[0].fingerprint
    assert re.fullmatch("[0-9a-f]{12}", first.versions[0].fingerprint)
    grown = query_of(document(servers={"count": 3}), source="x")
    moved = query_of(document(servers={"count": 2, "version": "2"}), source="x")
    assert first.servers_fingerprint == grown.servers_fingerprint != moved.servers_fingerprint


def test_a_version_that_names_no_volume_has_the_fingerprint_of_releases_before() -> None:
    (plain,) = query_of(document(), source="x").versions
    assert plain.fingerprint == "1195159b63cd"
    more = ({"serviceAccount": "a"}, {"fsGroup": 1}, {"volumes": [{"claim": "c", "path": "/c"}]})
    others = [query_of(document(versions=[RUN | extra]), source="x").versions[0].fingerprint for extra in more]
    assert len({plain.fingerprint, *others}) == 4


@pytest.mark.parametrize(
    ("volumes", "problem"),
    [
        ([{"claim": "c", "path": "data"}], "volumes[0].path: 'data' does not have the form"),
        ([{"path": "/data"}], "exactly one of claim, configMap, secret is required, but there is none"),
        ([{"claim": "c", "secret": "s", "path": "/data"}], "but there are claim, secret"),
        ([{"claim": "c", "path": "/tmp/"}], "volumes[0].path: /tmp is used by lmerge itself"),
        ([{"claim": "c", "path": "/"}], "volumes[0].path: / is used by lmerge itself"),
        ([{"claim": "c", "path": "/a"}, {"claim": "d", "path": "/a/"}], "volumes[1].path: /a comes twice"),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_refused(volumes: list[dict[str, str]], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        query_of(document(versions=[RUN | {"volumes": volumes}]), source="x")


def test_the_delay_of_a_restart_doubles_up_to_its_maximum() -> None:
    restart = query_of(document(restart={"backoffSeconds": 2, "backoffMaxSeconds": 10}), source="x").restart
    assert [restart.delay_s(exits) for exits in (0, 1, 2, 3, 4, 5, 10_000)] == [0, 2, 4, 8, 10, 10, 10]
