"""The CustomResourceDefinition of ReplicatedQuery, made from the JSON schema of a spec. Pure.

The same schema serves files and Kubernetes. What differs is how Kubernetes writes it: a structural schema without
``additionalProperties: false`` (unknown fields are refused by strict clients, and dropped otherwise), exclusive bounds
as in OpenAPI 3.0, and CEL rules for what holds between fields (``reading._contradictions`` has the same rules).

``status.schema`` has the digest of the definition's own schema as its default. The controller never writes that field:
the API server fills it in. So a controller that finds another digest there runs with another definition, whose API
server drops fields that only the controller's schema has.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from lmerge_controller.model.query import API_VERSION, GROUP, KIND, PLURAL, SHORT_NAME
from lmerge_controller.model.schema import NAME_LENGTH_MAX, spec_schema

# Larger integers are no exact JSON numbers for all readers; ``format: int64`` bounds them.
_EXACT_MAX: Final = 2**53
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}

_SPEC_RULES: Final = (
    ("has(self.active) || size(self.versions) == 1", "active is required where there are several versions"),
    (
        "!has(self.active) || self.versions.exists(v, v.name == self.active)",
        "active is no version: it names one of versions",
    ),
    (
        "size(self.versions) == 1 || self.merge.divergence != 'none'",
        "with several versions merge.divergence is not none: nothing could be certified",
    ),
    (
        "(self.jumpStart.from == 'table') == has(self.jumpStart.table)",
        "jumpStart.table is required by from: table, and allowed with nothing else",
    ),
    (
        "self.restart.backoffMaxSeconds >= self.restart.backoffSeconds",
        "restart.backoffMaxSeconds is below backoffSeconds",
    ),
)
_STATUS_RULES: Final = (
    # A leader of an earlier term that was frozen or cut off cannot write over its successor's status.
    (
        "!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)",
        "a controller of a later term has written the status",
    ),
)
_COLUMNS: Final = (
    ("Serving", "string", ".status.serving", "The version that produces the output."),
    ("Joined", "string", ".status.joinedOf", "Replicas that are joined, of those that are kept."),
    ("Available", "string", '.status.conditions[?(@.type=="Available")].status', "A joined replica feeds a server."),
    ("Redundant", "string", '.status.conditions[?(@.type=="Redundant")].status', "Any one loss would be survived."),
    ("Degraded", "string", '.status.conditions[?(@.type=="Degraded")].reason', "What is wrong."),
    ("Age", "date", ".metadata.creationTimestamp", "Since when it is described."),
)


def schema_digest() -> str:
    """Return the digest of the schema of a spec, as this program has it."""
    return hashlib.sha256(json.dumps(spec_schema(), sort_keys=True).encode()).hexdigest()[:12]


def definition() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    version = {
        "name": API_VERSION.rpartition("/")[2],
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.joinedReplicas"},
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": text} for name, kind, path, text in _COLUMNS
        ],
        "schema": {"openAPIV3Schema": _root()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "annotations": {"lmerge.dev/schema": schema_digest()}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["lmerge"],
            },
            "versions": [version],
        },
    }


def _root() -> dict[str, Any]:
    spec = structural(spec_schema())
    versions = spec["properties"]["versions"]
    versions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    rule = f"size(self.metadata.name) <= {NAME_LENGTH_MAX} && !self.metadata.name.contains('.')"
    message = f"the name has at most {NAME_LENGTH_MAX} characters and no dot: it is a part of its replicas' names"
    return {
        "type": "object",
        "description": "A merged query: several replicas of it produce one stream together.",
        "required": ["spec"],
        "properties": {
            "apiVersion": _TEXT,
            "kind": _TEXT,
            "metadata": {"type": "object"},
            "spec": spec | {"x-kubernetes-validations": _rules(_SPEC_RULES)},
            "status": _status(),
        },
        "x-kubernetes-validations": _rules(((rule, message),)),
    }


def _status() -> dict[str, Any]:
    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": _TEXT | {"maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": _TEXT | {"maxLength": 1024},
            "message": _TEXT | {"maxLength": 32768},
            "lastTransitionTime": _TEXT | {"format": "date-time"},
            "observedGeneration": _COUNT | {"format": "int64"},
        },
    }
    return {
        "type": "object",
        "description": "What the controller has found and decided.",
        "properties": {
            "observedGeneration": _COUNT | {"format": "int64", "description": "Of the spec that the rest is about."},
            "term": _COUNT | {"format": "int64", "description": "Of the leader that wrote it."},
            "schema": _TEXT | {"default": schema_digest(), "description": "Of this definition. Nothing writes it."},
            "serving": _TEXT | {"description": "The version that produces the output."},
            "joined": {"type": "array", "items": _TEXT, "description": "The replicas that are joined at every server."},
            "joinedReplicas": _COUNT | {"description": "Their number."},
            "joinedOf": _TEXT | {"description": "Their number, of how many are kept."},
            "record": {
                "type": "object",
                "description": "What the controller must remember from one decision to the next.",
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
        "x-kubernetes-validations": _rules(_STATUS_RULES),
    }


def _rules(rules: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"rule": rule, "message": message} for rule, message in rules]


def structural(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of JSON Schema 2020-12 as a structural schema of Kubernetes.

    A default that means the same as no value is left out. The API server writes defaults into every description, and
    a controller older than the definition, as behind a rollback, refuses fields that it does not know.
    """
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$schema", "title") or (key == "additionalProperties" and value is False):
            continue
        if key == "default" and value == []:
            continue
        if key == "properties":
            made[key] = {name: structural(part) for name, part in value.items()}
        elif key in ("items", "additionalProperties"):
            made[key] = structural(value)
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            made |= {key.removeprefix("exclusive").lower(): value, key: True}
        elif not (key in ("minimum", "maximum") and abs(value) > _EXACT_MAX):
            made[key] = value
    if made.get("type") == "integer":
        made["format"] = "int64"
    return made
