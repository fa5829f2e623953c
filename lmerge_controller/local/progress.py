"""The progress of `lmerge up` as plain lines: what has changed between two states of a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lmerge_controller.local.status_file import LocalStatus


def progress(before: LocalStatus, after: LocalStatus) -> Iterator[str]:
    """Yield a line for each change that a person should see, in order: decisions, processes, joins, the stream."""
    yield from (f"{'! ' if event.is_warning else ''}{event.text}" for event in after.events_after(before))
    yield from _processes(before, after)
    yield from _joins(before, after)
    if after.is_true("Available") and (not before.is_true("Available") or before.addresses != after.addresses):
        yield stream_line(after)
        yield f"read it: {subscribe_command(after)}"
    elif before.is_true("Available") and not after.is_true("Available"):
        yield f"! the stream {after.merge} stands still: {after.condition('Available')['message']}"
    degraded = after.condition("Degraded")
    # At the start everything is degraded, until servers listen and replicas have joined.
    if after.is_true("Degraded") and degraded != before.condition("Degraded") and after.is_true("Available"):
        yield f"! {degraded['message']}"
    if is_settled(after) and not is_settled(before):
        yield f"{after.query} is up: {losses_text(after)}"


def stream_line(status: LocalStatus) -> str:
    """Return where the merged stream is."""
    return f"merged stream {status.merge} at {','.join(status.addresses)}"


def subscribe_command(status: LocalStatus) -> str:
    """Return the command that reads the stream."""
    return f"lmerge subscribe {status.merge} --server {','.join(status.addresses)}"


def losses_text(status: LocalStatus) -> str:
    """Return how many inputs may be lost, as text. The servers report the number: an input may be joined and mute."""
    losses = status.survives_losses
    if losses < 1:
        return f"the loss of {'its' if len(status.joined) < 2 else 'an'} input may stop it"
    return f"it survives the loss of {losses} input{'s' if losses > 1 else ''}"


def is_settled(status: LocalStatus) -> bool:
    """Whether the stream is there, every replica but one may be lost, and nothing is being changed."""
    return (
        status.is_true("Available")
        and not status.is_true("Progressing")
        and 0 < status.replicas_count <= min(len(status.joined), status.survives_losses + 1)
    )


def _processes(before: LocalStatus, after: LocalStatus) -> Iterator[str]:
    earlier = {process["name"]: process for process in before.processes}
    for process in after.processes:
        name, old = process["name"], earlier.get(process["name"], {})
        if process["pid"] is not None and process["pid"] != old.get("pid"):
            yield f"{name} runs as process {process['pid']}"
    yield from (f"{name} has ended" for name in earlier if name not in {found["name"] for found in after.processes})


def _joins(before: LocalStatus, after: LocalStatus) -> Iterator[str]:
    for name in after.joined:
        if name not in before.joined:
            yield f"{name} has joined ({after.joined.index(name) + 1} of {after.replicas_count})"
    running = {process["name"] for process in after.processes}
    yield from (f"! {name} is not joined any more" for name in before.joined if name in running - set(after.joined))
