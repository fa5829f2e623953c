"""The JSON schema of a spec, its defaults, and the document around it. Called by ``reading``, and for the CRD."""

from __future__ import annotations

import copy
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from lmerge_controller.model.query import API_VERSION, KIND

FILE: Final = "replicated_query.schema.json"
# So that `NAME-VERSION-INDEX` is a label of Kubernetes, which has at most 63 characters.
NAME_LENGTH_MAX: Final = 40


@cache
def _spec_schema() -> Any:
    return json.loads((files("lmerge_controller.model") / FILE).read_text("utf-8"))


def spec_schema() -> dict[str, Any]:
    """Return the schema of a spec: a new object, without references."""
    return dict(copy.deepcopy(_spec_schema()))


def document_schema() -> dict[str, Any]:
    """Return the schema of a whole description. ``metadata`` may contain more; ``status`` is ignored."""
    name = {
        "type": "string",
        "minLength": 1,
        "maxLength": NAME_LENGTH_MAX,
        "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        "description": "The name of the query: a part of the names of its replicas.",
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": KIND},
            "metadata": {"type": "object", "required": ["name"], "properties": {"name": name}},
            "spec": spec_schema(),
            "status": {},
        },
    }


def with_defaults(value: Any, schema: Any = None) -> Any:
    """Return a valid spec, or a part of one, with the defaults for what is absent; ``value`` stays as it is."""
    schema = _spec_schema() if schema is None else schema
    if isinstance(value, dict) and "properties" in schema:
        filled = {name: with_defaults(item, schema["properties"][name]) for name, item in value.items()}
        for name, part in schema["properties"].items():
            if name not in filled and "default" in part:
                filled[name] = with_defaults(part["default"], part)
        return filled
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(item, schema["items"]) for item in value]
    return copy.deepcopy(value)
