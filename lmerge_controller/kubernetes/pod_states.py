"""Read pods and Deployments as processes that the plan understands, with what is wrong with them, for people. Pure.

A replica has one process at a time. Of several pods (one that ends, and its successor) it is the youngest that is not
ending, or the youngest of all. A Deployment without a pod counts as a process that starts: its pod is about to come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from lmerge_controller.kubernetes.manifests import (
    FINGERPRINT,
    INDEX_LABEL,
    JOINED_GATE,
    REPLICA_LABEL,
    ROLE,
    VERSION_LABEL,
)
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase

# Reasons of a waiting container that are no problem.
_NORMAL_WAITS: Final = ("ContainerCreating", "PodInitializing", "")
_MESSAGE_MAX: Final = 500


def processes(
    deployments: Iterable[dict[str, Any]], pods: Iterable[dict[str, Any]], now_s: float, steady_after_s: float
) -> tuple[ObservedProcess, ...]:
    """Return the processes of a query's replicas, in order of name.

    ``steady_after_s``: a container that has run for so long has ended for the last time long enough ago.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for pod in pods:
        name = _label(pod, REPLICA_LABEL)
        if name and (name not in chosen or _rank(pod) > _rank(chosen[name])):
            chosen[name] = pod
    found = {name: process_of(pod, now_s, steady_after_s) for name, pod in chosen.items()}
    for one in deployments:
        name = one["metadata"]["name"]
        # One with no pods wished was created by a leader that ended before its second write: it is not started yet.
        if name not in found and _label(one, REPLICA_LABEL) == name and one["spec"].get("replicas") != 0:
            found[name] = _awaited(one)
    return tuple(found[name] for name in sorted(found))


def process_of(pod: dict[str, Any], now_s: float, steady_after_s: float) -> ObservedProcess:
    """Return the process that a pod is."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    state, last = containers[0].get("state") or {}, containers[0].get("lastState") or {}
    running_since = _seconds((state.get("running") or {}).get("startedAt"))
    ended = state.get("terminated") or last.get("terminated") or {}
    exits = int(containers[0].get("restartCount") or 0) + (1 if "terminated" in state else 0)
    if running_since and now_s - running_since >= steady_after_s:
        exits = 0
    annotations = pod["metadata"].get("annotations") or {}
    return ObservedProcess(
        name=_label(pod, REPLICA_LABEL),
        uid=pod["metadata"]["uid"],
        phase=_phase(pod, status, state),
        version=_label(pod, VERSION_LABEL),
        index=_index(pod),
        fingerprint=annotations.get(FINGERPRINT, ""),
        role=annotations.get(ROLE, "active"),
        started_at_s=running_since or _seconds(pod["metadata"].get("creationTimestamp")) or 0.0,
        exits=exits,
        exited_at_s=_seconds(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        problem=problem_of_pod(pod),
    )


def problem_of_pod(pod: Mapping[str, Any]) -> str:
    """Return why a pod does not run, as its status has it: the reason, then the message. Empty: nothing is wrong."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _problem(condition.get("reason"), condition.get("message"))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state, last = container.get("state") or {}, container.get("lastState") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if (waiting.get("reason") or "") not in _NORMAL_WAITS:
            before = last.get("terminated") or {}
            texts = (waiting.get("message"), _ended(before) if before else "")
            return _problem(waiting["reason"], "; ".join(text for text in texts if text))
        if ended.get("exitCode"):
            return _problem(ended.get("reason"), _ended(ended))
    if status.get("phase") == "Failed":
        return _problem(status.get("reason"), status.get("message"))
    return ""


def joined_gate(pod: Mapping[str, Any]) -> bool:
    """Return whether the readiness gate of a pod is open."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == JOINED_GATE and one.get("status") == "True" for one in conditions)


def _phase(pod: Mapping[str, Any], status: Mapping[str, Any], state: Mapping[str, Any]) -> ProcessPhase:
    if any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in status.get("conditions") or ()):
        return ProcessPhase.UNKNOWN  # its node does not answer
    if pod["metadata"].get("deletionTimestamp"):
        return ProcessPhase.STOPPING
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        return ProcessPhase.EXITED
    if "running" in state:
        return ProcessPhase.RUNNING
    waiting = (state.get("waiting") or {}).get("reason")
    if "terminated" in state or waiting == "CrashLoopBackOff":
        return ProcessPhase.RESTARTING
    return ProcessPhase.STARTING


def _awaited(found: Mapping[str, Any]) -> ObservedProcess:
    """Return the process of a Deployment that has no pod. What keeps it from one is in its conditions."""
    problem = ""
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            problem = _problem(condition.get("reason"), condition.get("message"))
    template = (found["spec"].get("template") or {}).get("metadata") or {}
    annotations = template.get("annotations") or {}
    meta = found["metadata"]
    return ObservedProcess(
        name=meta["name"],
        uid=f"{meta['uid']}-{meta.get('generation', 0)}",
        phase=ProcessPhase.STARTING,
        version=_label(found, VERSION_LABEL),
        index=_index(found),
        fingerprint=annotations.get(FINGERPRINT, ""),
        role=annotations.get(ROLE, "active"),
        started_at_s=_seconds(meta.get("creationTimestamp")) or 0.0,
        problem=problem,
    )


def _rank(pod: Mapping[str, Any]) -> tuple[bool, bool, str, str]:
    is_over = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    meta = pod["metadata"]
    return not meta.get("deletionTimestamp"), not is_over, str(meta.get("creationTimestamp") or ""), meta["uid"]


def _label(found: Mapping[str, Any], label: str) -> str:
    return str((found["metadata"].get("labels") or {}).get(label) or "")


def _index(found: Mapping[str, Any]) -> int:
    text = _label(found, INDEX_LABEL)
    return int(text) if text.isdigit() else 0


def _ended(terminated: Mapping[str, Any]) -> str:
    message = str(terminated.get("message") or "").strip()
    lines = message.splitlines()
    how = f"{terminated.get('reason') or 'ended'} with exit code {terminated.get('exitCode')}"
    return f"{how}: {lines[-1]}" if lines else how


def _problem(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)[:_MESSAGE_MAX]


def _seconds(text: object) -> float | None:
    """Return the seconds since the epoch of a time of the API, or None."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
