"""Read a description: a file of YAML or JSON, or a resource of Kubernetes, to a ``ReplicatedQuery``.

Every problem is reported, not only the first. Each is a line that names the file, the line where there is one, the
field and what is allowed::

    flights.yaml:14: spec.replicas: 0 is below the minimum of 1
    flights.yaml:9: spec.servers: unknown field 'counts'; there are addresses, args, command, count, ...

Raises UsageError only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import jsonschema
import yaml

from lmerge.addresses import PORT_MAX, check_address
from lmerge.core.policy import parse_closing, parse_policy
from lmerge.errors import UsageError
from lmerge.wire.names import problem_of
from lmerge_controller.model.query import (
    MOUNTS,
    CutoverSpec,
    HealthSpec,
    JumpStartSource,
    JumpStartSpec,
    MergeSpec,
    ReplicatedQuery,
    ResourcesSpec,
    RestartSpec,
    RetentionSpec,
    RunSpec,
    ServersSpec,
    SpreadSpec,
    VersionSpec,
    VolumeSpec,
)
from lmerge_controller.model.schema import document_schema, with_defaults

# A description is a few kilobytes. The limit is there for a wrong file.
BYTES_MAX: Final = 2**20
# Aliases of YAML make a small file a large value.
FIELDS_MAX: Final = 20_000
_DEPTH_MAX: Final = 50
_PROBLEMS_MAX: Final = 20
_VALUE_SHOWN: Final = 60

FieldPath: TypeAlias = tuple[str | int, ...]
_Lines: TypeAlias = Mapping[FieldPath, int]
_Problem: TypeAlias = tuple[FieldPath, str]


def read_query(path: Path) -> ReplicatedQuery:
    """Return the query that a file of YAML or JSON describes. Raises UsageError."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as problem:
        raise UsageError(f"cannot read {str(path)!r}: {problem.strerror}") from None
    if len(content) > BYTES_MAX:
        raise UsageError(f"{path}: a description has at most {BYTES_MAX:,} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path}: byte {problem.start} is not UTF-8") from None
    return parse_query(text, source=str(path), folder=str(path.resolve().parent))


def parse_query(text: str, *, source: str = "description", folder: str = "") -> ReplicatedQuery:
    """Return the query that a text describes. ``source``: the name in errors. ``folder``: of its relative paths."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as problem:
        raise UsageError(_yaml_text(problem, source)) from None
    if len(documents) != 1:
        raise UsageError(f"{source}: it describes {len(documents)} objects; a description is exactly one")
    lines: dict[FieldPath, int] = {}
    problems = list(_note_lines(nodes[0], (), lines))
    if len(lines) > FIELDS_MAX:
        raise UsageError(f"{source}: a description has at most {FIELDS_MAX:,} fields, and no alias within itself")
    return _query(documents[0], source, folder, lines, problems)


def query_of(document: Any, *, source: str, folder: str = "") -> ReplicatedQuery:
    """Return the query of a document that was read elsewhere, such as a resource of Kubernetes. Raises UsageError."""
    return _query(document, source, folder, {}, [])


def _note_lines(node: yaml.Node | None, path: FieldPath, lines: dict[FieldPath, int]) -> Iterator[_Problem]:
    """Note the line of each field, from 1. Yields fields that come twice: the loader would take the last one."""
    if node is None or path in lines or len(lines) > FIELDS_MAX:
        return
    if len(path) > _DEPTH_MAX:
        yield path[:1], "it is nested too deeply"
        return
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            field = (*path, str(key.value))
            yield from _note_lines(value, field, lines)
            lines[field] = key.start_mark.line + 1
            if key.value in seen:
                yield field, "the field comes twice"
            seen.add(key.value)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _note_lines(value, (*path, index), lines)


def _query(document: Any, source: str, folder: str, lines: _Lines, problems: list[_Problem]) -> ReplicatedQuery:
    if not problems:
        problems += [problem for error in _errors(document) for problem in _described(error)]
    if not problems:
        filled = {**document, "spec": with_defaults(document["spec"])}
        problems += _contradictions(filled)
        if not problems:
            return _made(filled, folder)
    shown = [_located(source, lines, *problem) for problem in dict.fromkeys(problems)]
    rest = len(shown) - _PROBLEMS_MAX
    raise UsageError("\n".join([*shown[:_PROBLEMS_MAX], *([f"and {rest} more"] if rest > 0 else [])]))


def _errors(document: Any) -> list[Any]:
    validator = jsonschema.Draft202012Validator(document_schema())
    return sorted(validator.iter_errors(document), key=lambda error: [str(part) for part in error.absolute_path])


def _described(error: Any) -> Iterator[_Problem]:
    """Yield what an error of jsonschema is about, as a field and a text for people."""
    path, value, allowed = tuple(error.absolute_path), error.instance, error.validator_value
    kind = error.validator
    if kind == "additionalProperties" and allowed is False:
        fields = error.schema["properties"]
        for name in value:
            if name not in fields:
                yield (*path, str(name)), f"unknown field; there are {', '.join(sorted(fields))}"
    elif kind == "required":
        for name in allowed:
            if name not in value:
                yield path, f"{name} is required"
    elif kind == "oneOf":
        names = [part["required"][0] for part in allowed]
        given = ", ".join(name for name in names if name in value)
        yield path, f"exactly one of {', '.join(names)} is required, but there {f'are {given}' if given else 'is none'}"
    else:
        yield path, f"{_shown(value)} {_fault(kind, allowed)}"


def _fault(kind: str, allowed: Any) -> str:
    texts = {
        "type": f"is not of type {allowed}",
        "enum": f"is not one of {', '.join(map(str, allowed))}" if isinstance(allowed, list) else "",
        "const": f"is not {allowed}",
        "minimum": f"is below the minimum of {allowed}",
        "exclusiveMinimum": f"is not above {allowed}",
        "maximum": f"is above the maximum of {allowed}",
        "minLength": "is empty",
        "maxLength": f"has more than {allowed} characters",
        "minItems": "is empty",
        "maxItems": f"has more than {allowed} items",
        "maxProperties": f"has more than {allowed} fields",
        "pattern": f"does not have the form {allowed}",
        "anyOf": "is neither a whole number nor a text",
    }
    return texts.get(kind) or f"breaks the rule {kind} {allowed}"


def _contradictions(document: Mapping[str, Any]) -> Iterator[_Problem]:
    """Yield what the schema cannot express: relations between fields, and the rules of lmerge's own texts."""
    spec = document["spec"]
    names = [version["name"] for version in spec["versions"]]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("spec", "versions", index, "name"), f"{name} names two versions"
        yield from _wrong_volumes(spec["versions"][index]["volumes"], ("spec", "versions", index, "volumes"))
    if "active" not in spec and len(names) > 1:
        yield ("spec",), f"active is required where there are several versions: one of {', '.join(names)}"
    elif spec.get("active", names[0]) not in names:
        yield ("spec", "active"), f"{_shown(spec['active'])} is no version; there are {', '.join(names)}"
    if len(names) > 1 and spec["merge"]["divergence"] == "none":
        text = "none compares nothing, so no version can be certified; with several versions it is one of alarm, ..."
        yield ("spec", "merge", "divergence"), text
    yield from _wrong_merge(spec["merge"])
    yield from _wrong_servers(spec["servers"])
    if (spec["jumpStart"]["from"] == "table") != ("table" in spec["jumpStart"]):
        yield ("spec", "jumpStart"), "table is required by from: table, and allowed with nothing else"
    if spec["restart"]["backoffMaxSeconds"] < spec["restart"]["backoffSeconds"]:
        yield ("spec", "restart", "backoffMaxSeconds"), "it is below backoffSeconds"
    for path, number in _numbers(spec, ("spec",)):
        if not math.isfinite(number):
            yield path, "it is no finite number"


def _wrong_volumes(volumes: Sequence[Mapping[str, Any]], path: FieldPath) -> Iterator[_Problem]:
    places = [volume["path"].rstrip("/") for volume in volumes]
    for index, place in enumerate(places):
        if place in MOUNTS:
            yield (*path, index, "path"), f"{place or '/'} is used by lmerge itself"
        elif place in places[:index]:
            yield (*path, index, "path"), f"{place} comes twice"


def _wrong_merge(merge: Mapping[str, Any]) -> Iterator[_Problem]:
    problem = problem_of(merge["name"]) if "name" in merge else None
    if problem is not None:
        yield ("spec", "merge", "name"), f"the name of a merge {problem}"
    for field, parse in (("policy", parse_policy), ("closing", parse_closing)):
        try:
            parse(merge[field])
        except UsageError as error:
            yield ("spec", "merge", field), str(error)


def _wrong_servers(servers: Mapping[str, Any]) -> Iterator[_Problem]:
    path = ("spec", "servers")
    addresses = servers.get("addresses", [])
    for index, address in enumerate(addresses):
        try:
            check_address(address)
        except UsageError as error:
            yield (*path, "addresses", index), str(error)
        if address in addresses[:index]:
            yield (*path, "addresses", index), f"{address} comes twice"
    for field in ("port", "httpPort"):
        if servers[field] > 0 and servers[field] + servers.get("count", 1) - 1 > PORT_MAX:
            yield (*path, field), f"the last server's port would be above {PORT_MAX}"
    count, first, second = servers.get("count", 0), servers["port"], servers["httpPort"]
    if count and first > 0 and second > 0 and abs(first - second) < count:
        yield (*path, "httpPort"), f"the ports of {count} servers from {first} and from {second} are partly the same"


def _numbers(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, float]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _numbers(item, (*path, name))
    elif isinstance(value, float):
        yield path, value


def _made(document: Mapping[str, Any], folder: str) -> ReplicatedQuery:
    """Return the query of a valid document with defaults."""
    spec, metadata = document["spec"], document["metadata"]
    merge, servers, health, restart = spec["merge"], spec["servers"], spec["health"], spec["restart"]
    return ReplicatedQuery(
        name=metadata["name"],
        namespace=str(metadata.get("namespace") or ""),
        generation=int(metadata.get("generation") or 0),
        folder=folder,
        merge=MergeSpec(
            name=merge.get("name", metadata["name"]),
            algorithm=merge["algorithm"],
            policy=merge["policy"],
            closing=merge["closing"],
            divergence=merge["divergence"],
            certify_interval=merge["certifyInterval"],
            feedback=merge.get("feedback"),
            retention=RetentionSpec(merge["retention"]["bytes"], merge["retention"].get("time")),
        ),
        servers=ServersSpec(
            count=servers.get("count", 0),
            addresses=tuple(servers.get("addresses", ())),
            version=servers["version"],
            port=servers["port"],
            http_port=servers["httpPort"],
            store=servers.get("store"),
            command=tuple(servers.get("command", ())),
            args=tuple(servers["args"]),
        ),
        versions=tuple(_version(version) for version in spec["versions"]),
        active=spec.get("active", spec["versions"][0]["name"]),
        replicas=spec["replicas"],
        spread=SpreadSpec(spec["spread"]["topologyKey"], spec["spread"]["maxSkew"]),
        cutover=CutoverSpec(spec["cutover"]["intervals"], float(spec["cutover"]["timeoutSeconds"])),
        health=HealthSpec(health.get("lagMax"), float(health["lagForSeconds"]), float(health["joinWithinSeconds"])),
        jump_start=JumpStartSpec(JumpStartSource(spec["jumpStart"]["from"]), spec["jumpStart"].get("table", "")),
        restart=RestartSpec(
            float(restart["backoffSeconds"]), float(restart["backoffMaxSeconds"]), restart["perMinuteMax"]
        ),
    )


def _version(version: Mapping[str, Any]) -> VersionSpec:
    resources = version["resources"]
    return VersionSpec(
        name=version["name"],
        run=_run(version["run"]),
        alternatives=tuple(_run(run) for run in version["alternatives"]),
        image=version.get("image"),
        env=tuple(sorted(version["env"].items())),
        resources=ResourcesSpec(_quantities(resources.get("requests", {})), _quantities(resources.get("limits", {}))),
        service_account=version.get("serviceAccount"),
        fs_group=version.get("fsGroup"),
        volumes=tuple(_volume(volume) for volume in version["volumes"]),
    )


def _run(run: Mapping[str, Any]) -> RunSpec:
    return RunSpec(tuple(run.get("command", ())), run.get("replica", ""), run.get("program", ""), tuple(run["args"]))


def _volume(volume: Mapping[str, Any]) -> VolumeSpec:
    (kind,) = volume.keys() - {"path"}
    return VolumeSpec(kind, volume[kind], volume["path"])


def _quantities(table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(quantity)) for name, quantity in table.items()))


def _located(source: str, lines: _Lines, path: FieldPath, text: str) -> str:
    """Return a line about a field. A field that is not in the text has the line of what it would be in."""
    place = next((lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in lines), None)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return ": ".join(part for part in (f"{source}:{place}" if place else source, field, text) if part)


def _yaml_text(problem: Exception, source: str) -> str:
    mark = getattr(problem, "problem_mark", None)
    place = source if mark is None else f"{source}:{mark.line + 1}"
    return f"{place}: it is no YAML: {getattr(problem, 'problem', None) or 'it is nested too deeply'}"


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _VALUE_SHOWN else text[: _VALUE_SHOWN - 3] + "..."
