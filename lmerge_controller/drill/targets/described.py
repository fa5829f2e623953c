"""A target that a file describes: addresses of servers, and commands that break and mend them.

So a drill reaches whatever a command line reaches: pods by kubectl, units by systemctl, containers, machines. The
command that undoes a fault is in the journal before the fault, and runs even if the drill was killed, by the next one.

    servers: [lmerge-0.lmerge:7171, lmerge-1.lmerge:7171]
    inputs: 2
    nodes: [worker-a, worker-b]
    breaks:
      kill server:
        break: [kubectl, delete, pod, "lmerge-{index}", --grace-period=0, --force]
        undo: [kubectl, wait, --for=condition=Ready, "pod/lmerge-{index}", --timeout=180s]
      kill input:
        break: [kubectl, delete, pod, "flights-{index}", --grace-period=0, --force]
        undo: [kubectl, wait, --for=condition=Ready, "pod/flights-{index}", --timeout=180s]
      drain node:
        break: [kubectl, drain, "{node}", --ignore-daemonsets, --delete-emptydir-data, --timeout=120s]
        undo: [kubectl, uncordon, "{node}"]

In the words of a command, ``{number}`` (from 1), ``{index}`` (from 0), ``{address}`` and ``{node}`` are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lmerge.addresses import check_address
from lmerge.errors import LmergeError, UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.scenario import DrillStep
from lmerge_controller.drill.targets.target import AddressedTarget, Break, Undo
from lmerge_controller.drill.undo import run_command

# Draining a node, and waiting until pods are ready again, takes minutes.
TIMEOUT_S: Final = 300.0
FILE_BYTES_MAX: Final = 1_000_000
_ABILITIES: Final = (
    "kill server",
    "stop server",
    "freeze server",
    "fill-disk server",
    "kill input",
    "freeze input",
    "drain node",
    "kill node",
    "stop api-server",
)
_ARGV: Final = {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string", "minLength": 1}}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["servers", "breaks"],
    "additionalProperties": False,
    "properties": {
        "servers": {"type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "string"}},
        "inputs": {"type": "integer", "minimum": 0, "maximum": 16},
        "nodes": {"type": "array", "maxItems": 100, "items": {"type": "string", "minLength": 1}},
        "timeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
        "breaks": {
            "type": "object",
            "propertyNames": {"enum": list(_ABILITIES)},
            "additionalProperties": {
                "type": "object",
                "required": ["break", "undo"],
                "additionalProperties": False,
                "properties": {"break": _ARGV, "undo": _ARGV},
            },
        },
    },
}


@dataclass(frozen=True)
class TargetDescription:
    """The content of a target's file. ``breaks``: ability -> the commands that break and that undo.

    ``inputs``: replicas of the user's query that commands can break.
    """

    servers: tuple[str, ...]
    inputs: int
    nodes: tuple[str, ...]
    breaks: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
    timeout_s: float


def target_of_file(path: Path) -> TargetDescription:
    """Return the description in a YAML file. Raises UsageError, which names the field."""
    import yaml
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {FILE_BYTES_MAX:,} bytes; it is no description of a target")
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as problem:
        raise UsageError(f"cannot read the target in {path}: {' '.join(str(problem).split()):.300}") from None
    found = best_match(Draft202012Validator(_SCHEMA).iter_errors(content))
    if found is not None:
        place = ".".join(map(str, found.absolute_path)) or "the file"
        raise UsageError(f"{path}, {place}: {found.message:.300}")
    return TargetDescription(
        tuple(check_address(address) for address in content["servers"]),
        int(content.get("inputs", 0)),
        tuple(content.get("nodes", ())),
        {ability: (tuple(pair["break"]), tuple(pair["undo"])) for ability, pair in content["breaks"].items()},
        float(content.get("timeoutSeconds", TIMEOUT_S)),
    )


class DescribedTarget(AddressedTarget):
    """Servers and commands from a description."""

    def __init__(self, description: TargetDescription, security: Any, journal: UndoJournal) -> None:
        super().__init__(description.servers, security)
        self._description, self._journal = description, journal

    @property
    def title(self) -> str:
        return f"servers {', '.join(self._description.servers)}"

    @property
    def breaks(self) -> Mapping[str, Break]:
        return dict.fromkeys(self._description.breaks, self._break)

    @property
    def numbers(self) -> Mapping[str, int]:
        about = self._description
        return {"server": len(about.servers), "input": about.inputs, "node": len(about.nodes), "api-server": 1}

    def _break(self, number: int, step: DrillStep) -> Undo:
        breaking, undoing = (self._filled(argv, number) for argv in self._description.breaks[step.ability])
        timeout_s = self._description.timeout_s
        note = self._journal.note("run-command", argv=undoing, timeout_s=timeout_s)

        def undo() -> None:
            run_command(undoing, timeout_s)
            self._journal.done(note)

        try:
            run_command(breaking, timeout_s)
        except LmergeError:
            undo()  # it may have been done in part
            raise
        return undo

    def _filled(self, argv: tuple[str, ...], number: int) -> list[str]:
        servers, nodes = self._description.servers, self._description.nodes
        values = {"{number}": str(number), "{index}": str(number - 1)}
        values["{address}"] = servers[number - 1] if number <= len(servers) else ""
        values["{node}"] = nodes[number - 1] if number <= len(nodes) else ""
        filled = []
        for part in argv:
            for name, value in values.items():
                part = part.replace(name, value)
            filled.append(part)
        return filled
