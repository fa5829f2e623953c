"""Defects of windows: what a group keeps of events, and its state."""

from seeded import Defect

WINDOWS = "lmerge/temporal/windows"
WINDOW_STATE = "tests/temporal/test_window_state.py"
WINDOW_TEST = "tests/temporal/test_windows.py"
HERE = "tests/temporal/test_windows_of_batches.py"
BY_WINDOW = f"{HERE}::test_new_events_by_window_give_what_each_by_itself_gives"

DEFECTS = (
    Defect(
        "windows: a grid drops an event that ends at its next start",
        f"{WINDOWS}/grid_group.py",
        "            self.events.drop_ended(self._grid.start_above(begun) - 1)\n",
        "            self.events.drop_ended(self._grid.start_above(begun))\n",
        f"{WINDOW_TEST}::test_what_is_emitted_is_what_the_definition_has[with gaps-CountRows-eager]",
    ),
    Defect(
        "windows: a grid keeps every event of an incremental module",
        f"{WINDOWS}/grid_group.py",
        "        if old >= reach or new >= reach:\n",
        "        if True:\n",
        f"{WINDOW_STATE}::test_an_incremental_module_keeps_only_events_in_which_windows_can_begin",
    ),
    Defect(
        "windows: an event without an end is not kept for windows to come",
        f"{WINDOWS}/grid_group.py",
        "        return last is not None and last >= self._grid.start_above(begun)\n",
        "        return last is not None and last == self._grid.start_above(begun)\n",
        f"{WINDOW_TEST}::test_what_is_emitted_is_what_the_definition_has[tumbling-CountRows-eager]",
    ),
    Defect(
        "windows: the snapshot of a window forgets how many events it has",
        f"{WINDOWS}/window_state.py",
        "        windows.append([start, entry.end, entry.events, ends, state])\n",
        "        windows.append([start, entry.end, 1, ends, state])\n",
        f"{WINDOW_STATE}::test_a_restored_operator_goes_on_alike[tumbling-CountWithState-eager]",
    ),
    Defect(
        "windows: new events of a batch are kept though no window begins in them",
        f"{WINDOWS}/grid_group.py",
        "        self.events.insert([change for change in inserts if change.new >= reach])\n",
        "        self.events.insert(inserts)\n",
        BY_WINDOW,
    ),
    Defect(
        "windows: new events of a batch are forgotten though windows begin in them",
        f"{WINDOWS}/grid_group.py",
        "        self.events.insert([change for change in inserts if change.new >= reach])\n",
        "        self.events.insert([change for change in inserts if change.new > reach])\n",
        BY_WINDOW,
    ),
    Defect(
        "windows: new events of a batch enter windows that have not begun",
        f"{WINDOWS}/grid_group.py",
        "            first, last = grid.first_over(vs), min(new, until)\n",
        "            first, last = grid.first_over(vs), new\n",
        BY_WINDOW,
    ),
)
