"""The chart's values: described, complete, and wrong ones refused. Without helm: by the schema that helm enforces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from chart_world import CHART, EXAMPLES, merged

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
CHECKER = jsonschema.Draft7Validator(SCHEMA)


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over all schemas of objects with properties, with their paths."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield path, schema
        for name, below in schema.items():
            yield from objects(below, f"{path}.{name}" if name not in ("properties", "anyOf") else path)
    elif isinstance(schema, list):
        for below in schema:
            yield from objects(below, path)


def at(path: str, value: Any) -> dict[str, Any]:
    """Return the values with ``value`` at a path with dots."""
    over: Any = value
    for name in reversed(path.split(".")):
        over = {name: over}
    return merged(VALUES, over)


def test_the_defaults_are_valid() -> None:
    CHECKER.check_schema(SCHEMA)
    CHECKER.validate(VALUES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid(example: Path) -> None:
    CHECKER.validate(merged(VALUES, yaml.safe_load(example.read_text())))


def test_every_value_is_described_and_every_object_is_closed() -> None:
    found = list(objects(SCHEMA))
    assert len(found) > 25
    for path, schema in found:
        assert schema.get("additionalProperties") is False, path
        for name, below in schema["properties"].items():
            assert len(below.get("description", "")) > 3, f"{path}.{name}"


def test_every_value_has_a_default_and_every_default_is_in_the_schema() -> None:
    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        if "properties" not in schema:
            return
        assert (
            schema["properties"].keys() - {"global", "limits", "cpu", "memory", "ephemeral-storage"} <= values.keys()
        ), path
        for name, value in values.items():
            if isinstance(value, dict):
                compare(schema["properties"][name], value, f"{path}.{name}")

    compare(SCHEMA, VALUES, "")


WRONG = {
    "servers.count": (0, 17, -1, "two", 1.5, None),
    "servers.cuont": (2,),
    "servers.merges": (["a", "a"], [""], [" a"], "a"),
    "servers.extraArgs": ([""], "--policy=eager", [1]),
    "servers.host": ("example.com", "", "0.0.0.0 --insecure"),
    "servers.logFormat": ("xml",),
    "servers.resources.requests.cpu": ("many", -1, ""),
    "servers.resources.limits.memory": ("2 GB", "2Gb"),
    "servers.resources.limit": ({},),
    "servers.persistence.size": ("big", 0, ""),
    "servers.persistence.sync": ("sometimes",),
    "servers.persistence.whenDeleted": ("delete", "Keep"),
    "servers.persistence.accessModes": ([], ["ReadOnlyMany"]),
    "servers.spread.nodes": ("Never", True),
    "servers.disruptionBudget.maxUnavailable": (0, "50%"),
    "servers.drainSeconds": (-1, 4000),
    "servers.probes.periodSeconds": (0,),
    "servers.service.type": ("ExternalName",),
    "image.digest": ("sha256:abc", "latest"),
    "image.tag": ("a b", "a/b"),
    "image.pullPolicy": ("Sometimes",),
    "tls.mode": ("mtls", "", None),
    "tls.days": (0,),
    "tls.extraNames": (["-x"], ["a b"]),
    "tls.certManager.duration": ("90 days", ""),
    "tls.certManager.issuer.kind": ("Secret",),
    "tokens.clients.a": (
        {},
        {"roles": ["publish"]},
        {"roles": [], "merges": ["*"]},
        {"roles": ["root"], "merges": ["*"]},
    ),
    "tokens.clients.A_b": ({"roles": ["publish"], "merges": ["*"]},),
    "tokens.enabled": ("yes",),
    "controller.count": (0, 6),
    "monitoring.podMonitor.interval": ("15", "fast"),
    "drill.schedule": ("at six", "* * *"),
    "drill.kubernetes": ({"drain": True},),
    "drill.kubernetes.query": ("Flights", "a b", None),
    "priorityClass.value": (2_000_000_000,),
    "networkPolicy.clients": ({}, ["all"]),
    "unknown": (1,),
}


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused(path: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        CHECKER.validate(at(path, value))


def test_a_client_can_be_left_out() -> None:
    CHECKER.validate(at("tokens.clients.test", None))
