"""Defects of hopping windows that share panes, and of events that stay columns until a row of them is asked for."""

from seeded import Defect

PANES = "lmerge/temporal/windows/pane_group.py"
INDEX = "lmerge/temporal/event_index.py"
BLOCKS = "native/temporal/src/row_blocks.rs"
TEST = "tests/temporal/test_pane_windows.py"
SAME = f"{TEST}::test_panes_give_what_windows_of_their_own_give[0-final]"

BEHIND = f"{TEST}::test_an_event_that_begins_behind_its_streams_time_is_in_the_windows_that_have_begun[final]"

DEFECTS = (
    Defect(
        "panes: an event that begins behind its stream's time is in no pane",
        PANES,
        " or vs >= behind:\n",
        ":\n",
        BEHIND,
    ),
    Defect(
        "panes: one is dropped before a window has begun that has it",
        PANES,
        "first = min(self.windows.keys()[0] if self.windows else INF, self._grid.start_above(stable))",
        "first = self.windows.keys()[0] if self.windows else INF",
        BEHIND,
    ),
    Defect(
        "panes: a spanning event counts once per pane",
        PANES,
        "            if start > vs:\n",
        "            if start >= 0:\n",
        SAME,
    ),
    Defect(
        "panes: a window lacks what is carried over its start",
        PANES,
        "        if pane is not None and pane.carried.events:\n",
        "        if pane is not None and not pane.carried.events:\n",
        SAME,
    ),
    Defect(
        "panes: a window has one pane too many",
        PANES,
        "irange(entry.start, entry.start + self._grid.size, (True, False)):\n            started",
        "irange(entry.start, entry.start + self._grid.size, (True, True)):\n            started",
        SAME,
    ),
    Defect(
        "panes: one is dropped that the first window has",
        PANES,
        "irange(maximum=first, inclusive=(True, False))",
        "irange(maximum=first)",
        SAME,
    ),
    Defect(
        "panes: a snapshot has none of them",
        PANES,
        '        return {"panes": found}\n',
        '        return {"panes": []}\n',
        f"{TEST}::test_panes_go_on_after_a_restore[final]",
    ),
    Defect(
        "panes: windows add events by themselves",
        PANES,
        "        is_divided = kind.size % kind.hop == 0 and",
        "        is_divided = kind.size % kind.hop == 1 and",
        f"{TEST}::test_an_event_is_added_once_where_many_windows_overlap",
    ),
    Defect(
        "grid: a window ends behind the end of all time",
        "lmerge/temporal/windows/grid_group.py",
        "WindowEntry(start, min(INF, start + self._grid.size))",
        "WindowEntry(start, start + self._grid.size)",
        f"{TEST}::test_windows_at_the_ends_of_time_have_ends_within_it[final-python]",
    ),
    Defect(
        "grid: an event before the first window gets one",
        "lmerge/temporal/windows/grid_group.py",
        "        if self._grid.first_over(vs) <= NEG_INF:\n",
        "        if vs <= NEG_INF:\n",
        f"{TEST}::test_an_event_before_the_first_window_of_a_grid_is_refused[python]",
    ),
    Defect(
        "windows: an event that has ended is named as what holds the output",
        "lmerge/temporal/windows/holding.py",
        "    if not entry.ends or entry.ends[-1] < input_stable:\n",
        "    if not entry.ends or entry.ends[-1] >= input_stable:\n",
        "tests/temporal/paper/test_internals.py::test_s9_the_event_that_holds_the_output_is_named",
    ),
    Defect(
        "columns: behind the last window of a grid a time is named that there is not",
        INDEX,
        "        until = min(until, INF)  # behind the last window of a grid it is no time any more\n",
        "",
        "tests/temporal/native/test_window_columns.py::test_the_last_windows_before_the_end_of_all_time_take_columns[final]",
    ),
)
