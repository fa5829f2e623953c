"""Defects of windows: what a group keeps of events, and its state."""

from seeded import Defect

WINDOWS = "lmerge/temporal/windows"
WINDOW_STATE = "tests/temporal/test_window_state.py"
WINDOW_TEST = "tests/temporal/test_windows.py"
HERE = "tests/temporal/test_windows_of_batches.py"
COLUMNS = "tests/temporal/native/test_window_columns.py"
BY_WINDOW = f"{HERE}::test_new_events_by_window_give_what_each_by_itself_gives"

DEFECTS = (
    Defect(
        "of several groups that fail in a step the one whose events came first is named",
        "lmerge/temporal/operators/operator.py",
        "        raise min(failures, key=lambda failure: key_order(failure[0]))[1]\n",
        "        raise failures[0][1]\n",
        "tests/temporal/test_group_apply.py::test_the_first_group_that_fails_is_named_in_whatever_order_events_come",
    ),
    Defect(
        "windows: the group whose events came first and that fails is named",
        f"{WINDOWS}/window_operator.py",
        "                failures.append((group.key, error))\n            group.touched.clear()\n",
        "                raise error\n            group.touched.clear()\n",
        "tests/temporal/native/test_windows.py::test_the_first_group_whose_sum_is_too_large_is_named",
    ),
    Defect(
        "windows: a grid drops an event that ends at its next start",
        f"{WINDOWS}/grid_group.py",
        "            self.events.drop_ended(self._grid.start_above(begun) - 1)\n",
        "            self.events.drop_ended(self._grid.start_above(begun))\n",
        f"{WINDOW_TEST}::test_what_is_emitted_is_what_the_definition_has[tumbling-CountRows-eager]",
    ),
    Defect(
        "windows: a grid keeps every event of an incremental module",
        f"{WINDOWS}/grid_group.py",
        "[change for change in inserts if change.new >= reach]",
        "inserts",
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
        "entry.end, entry.events, ends,",
        "entry.end, 1, ends,",
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
    Defect(
        "windows: new events as columns are taken before what is left out is known",
        f"{WINDOWS}/window_operator.py",
        "        is_whole = self._takes_rows and skip is not None and skip.until == NEG_INF\n",
        "        is_whole = self._takes_rows and skip is not None\n",
        f"{COLUMNS}::test_feedback_reaches_columns",
    ),
    Defect(
        "windows: new events as columns keep nothing for windows to come",
        f"{WINDOWS}/grid_group.py",
        "        self.events.insert_block(kept)\n",
        "",
        f"{COLUMNS}::test_columns_give_what_rows_give",
    ),
    Defect(
        "windows: a row without a key is named before what is wrong before it",
        f"{WINDOWS}/placing.py",
        "    except LmergeError:  # of a key: what is wrong with a row before it comes first\n",
        "    except ZeroDivisionError:\n",
        f"{HERE}::test_a_row_without_a_key_is_named_behind_what_is_wrong_before_it",
    ),
    Defect(
        "windows: rows of a batch come without times to a module that gets them",
        "lmerge/temporal/modules/edge.py",
        "        return [Lifetime(values, NEG_INF, INF) for values in found] if self._is_timed else list(found)\n",
        "        return list(found)\n",
        BY_WINDOW,
    ),
)
