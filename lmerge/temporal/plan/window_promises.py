"""What the results of windows promise: by kind of window, form, timestamps, grouping, and what the module declares.

Four questions decide it (IV.G, departures D15 and D16):

* Is a result emitted once? In the form ``final`` always, over any input. In ``watermark`` if events come in order and
  are never revised, since none can come into a window that has ended. But a session can still grow then, and where an
  operator below holds events back, such as cleanse, the watermark passes them. In ``eager`` only on a grid, if the
  module declares that more events take no result away.
* Do results come in the order of their starts? The windows of a grid do, and those of one group. Those of several
  groups that have windows of their own come in the order of their ends.
* Are several results of one start always in one batch, which is sorted? Then ties are deterministic.
* Is there one row for each window and group? Then row and start are a key.
"""

from __future__ import annotations

from lmerge.core.properties import DETERMINISTIC_TIES, INSERT_ONLY, KEY, NOTHING, ORDERED, STRICTLY_ORDERED, Properties
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.windows.kinds import Hopping, Sessions, Snapshots
from lmerge.temporal.windows.policies import Form, Stamp

IN_ORDER = frozenset({INSERT_ONLY, ORDERED})


def promises_of_windows(node: WindowNode, given: Properties, *, is_behind: bool) -> tuple[Properties, str]:
    """Return what a node of windows promises over an input that promises ``given``, and why.

    ``is_behind``: whether events of the input can come when the watermark has passed their starts.
    """
    form, is_single = node.policies.form, isinstance(node, AggregateNode)
    scope = "group and window" if node.keys else "window"
    rows = f"one row for each {scope}" if is_single else f"rows for each {scope}"
    key = frozenset({KEY}) if is_single else NOTHING
    once = _emitted_once(node, given, is_behind)
    if once is None:
        return key, f"{rows}; the form {form} revises"
    disorder = _disorder(node, given)
    if disorder is not None:
        return frozenset({INSERT_ONLY}) | key, f"{rows}, {once}, but {disorder}"
    if is_single and not node.keys:
        return frozenset({INSERT_ONLY, STRICTLY_ORDERED}), f"{rows}, {once}, in order of the window"
    if form is Form.EAGER:
        return IN_ORDER | key, f"{rows}, {once}, in order of the window, then of arrival"
    return IN_ORDER | {DETERMINISTIC_TIES} | key, f"{rows}, {once}, in order of the window, then of the row"


def _emitted_once(node: WindowNode, given: Properties, is_behind: bool) -> str | None:
    """Return why no result is revised, or None if results are."""
    form, kind = node.policies.form, node.window
    if form is Form.FINAL:
        return "emitted once"
    if form is Form.WATERMARK and given >= IN_ORDER and not (is_behind or isinstance(kind, Sessions)):
        return "emitted once, as events come in order"
    if form is Form.SETTLED and closes_with_its_end(node):
        return "emitted once, when its window closes"
    if isinstance(kind, Hopping) and INSERT_ONLY in given and _declares(node, "insert_only"):
        return "never taken away, as the module declares insert_only"
    return None


def _disorder(node: WindowNode, given: Properties) -> str | None:
    """Return why results do not come in the order of their starts, or None if they do."""
    kind, stamp, form = node.window, node.policies.stamp, node.policies.form
    is_grid = isinstance(kind, Hopping)
    if node.keys and not is_grid:
        ends = "their ends" if isinstance(kind, (Snapshots, Sessions)) else "the last of their events"
        return f"windows of groups come in order of {ends}"
    if stamp in (Stamp.UNCHANGED, Stamp.TIME_BOUND):
        return "a result can start behind the next window"
    if stamp is Stamp.CLIP and not _are_disjoint(node):
        return "windows overlap, and results start within them"
    if form is Form.EAGER or (form is Form.SETTLED and not closes_with_its_end(node)):
        if not (given >= IN_ORDER and _are_disjoint(node)):
            return "several windows are open at once"
        is_one_group = not (node.keys or (isinstance(node, ApplyNode) and node.is_apart))
        if stamp is Stamp.CLIP and not (is_one_group and _declares(node, "preserves_order")):
            return "later events can make results that start earlier"
    return None


def closes_with_its_end(node: WindowNode) -> bool:
    """Whether the windows of a grid close in order, each when the stable point reaches its end."""
    return isinstance(node.window, Hopping) and not node.rules.sees_ends and node.policies.stamp is not Stamp.TIME_BOUND


def _are_disjoint(node: WindowNode) -> bool:
    kind = node.window
    return kind.hop >= kind.size if isinstance(kind, Hopping) else isinstance(kind, (Snapshots, Sessions))


def _declares(node: WindowNode, name: str) -> bool:
    """Whether the module declares a property that the run checks (``windows.declared``)."""
    return isinstance(node, ApplyNode) and not node.call.takes_empty and bool(getattr(node.declared, name))
