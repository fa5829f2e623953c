"""Defects of what windows compute: aggregates, ranks, users' modules, their names and their checks."""

from seeded import Defect

MODULES = "lmerge/temporal/modules"
TESTS = "tests/temporal/modules"
AGGREGATES = f"{TESTS}/test_aggregates.py"
HISTORY = f"{AGGREGATES}::test_every_result_is_that_of_the_definition_after_every_step_of_a_history"
STATE = f"{AGGREGATES}::test_a_state_depends_on_its_events_alone_and_comes_back_from_plain_values"
TOP = f"{TESTS}/test_top_k.py"
USERS = f"{TESTS}/test_user_modules.py"
CHECKS = f"{TESTS}/test_checks.py"
REFUTED = f"{CHECKS}::test_a_module_that_does_not_is_refuted_by_a_smallest_window"

DEFECTS = (
    Defect(
        "aggregates: floats are added as they come",
        f"{MODULES}/moments.py",
        "            state.scale_to(power)\n",
        "            return up >> power - state.power\n",
        HISTORY,
    ),
    Defect(
        "aggregates: NaN is never removed",
        f"{MODULES}/moments.py",
        "                state.nan += sign\n",
        "                state.nan += 1\n",
        HISTORY,
    ),
    Defect(
        "aggregates: a state keeps the power of a value that has left",
        f"{MODULES}/moments.py",
        "        total, squares, power = state.reduced()\n",
        "        total, squares, power = state.total, state.squares, state.power\n",
        STATE,
    ),
    Defect(
        "aggregates: a missing value counts as one",
        f"{MODULES}/accumulators.py",
        "        return state if self._value_of(event.row) is None else state + 1\n",
        "        return state + 1\n",
        HISTORY,
    ),
    Defect(
        "aggregates: the average of integers is truncated",
        f"{MODULES}/builtin.py",
        "        return rounded_ratio(state.total * unit.up, (unit.down << state.power) * state.count)\n",
        "        return float(state.total * unit.up // ((unit.down << state.power) * state.count))\n",
        HISTORY,
    ),
    Defect(
        "aggregates: the deviation of a sample is that of all",
        f"{MODULES}/builtin.py",
        "            down = (unit.down**2 << 2 * state.power) * count * (count - of_sample)\n",
        "            down = (unit.down**2 << 2 * state.power) * count * count\n",
        HISTORY,
    ),
    Defect(
        "aggregates: the rank of a percentile is off by one",
        f"{MODULES}/builtin.py",
        "        return kept.at(state, max(math.ceil(part * count), 1) - 1) if count else None\n",
        "        return kept.at(state, min(math.floor(part * count), count - 1)) if count else None\n",
        HISTORY,
    ),
    Defect(
        "aggregates: the part of a percentile is the float beside it",
        f"{MODULES}/builtin.py",
        "Fraction(str(value))",
        "Fraction(value)",
        f"{TESTS}/test_duckdb.py::test_a_percentile_is_what_duckdb_computes",
    ),
    Defect(
        "aggregates: a percentile between two values takes the lower one",
        f"{MODULES}/builtin.py",
        "        high = kept.at(state, place + 1) if rest else low\n",
        "        high = low\n",
        HISTORY,
    ),
    Defect(
        "aggregates: an integer sum beyond 64 bits passes",
        f"{MODULES}/builtin.py",
        "        if not lowest <= total <= highest:\n",
        "        if not lowest <= total <= 2 * highest:\n",
        f"{AGGREGATES}::test_an_integer_sum_that_leaves_64_bits_names_column_and_window_and_one_that_returns_does_not",
    ),
    Defect(
        "aggregates: the last event is the last by row",
        f"{MODULES}/ordered.py",
        "            state.add((event.vs, self._key(event.row), event.row))\n",
        "            state.add((0, self._key(event.row), event.row))\n",
        f"{AGGREGATES}::test_first_and_last_go_by_start_then_by_row",
    ),
    Defect(
        "aggregates: a window of first waits for the ends of its events",
        f"{MODULES}/ordered.py",
        "    starts_only = True\n",
        "    starts_only = False\n",
        f"{TESTS}/test_aggregates_in_windows.py::test_windows_of_aggregates_are_those_of_the_definitions",
    ),
    Defect(
        "aggregates: two columns share a sum",
        f"{MODULES}/moments.py",
        "        super().__init__(argument)\n",
        "        super().__init__(())\n",
        f"{AGGREGATES}::test_aggregates_of_one_column_share_what_they_keep",
    ),
    Defect(
        "aggregates: a sum that came first keeps the squares away from a deviation",
        f"{MODULES}/moments.py",
        "        return other if isinstance(other, Moments) and other.squares else self\n",
        "        return self\n",
        f"{AGGREGATES}::test_aggregates_of_one_column_share_what_they_keep",
    ),
    Defect(
        "aggregates: a merge changes what is merged in",
        f"{MODULES}/ordered.py",
        "        state.items.update(other.items)\n        state.nan += other.nan\n",
        "        state.items.update(other.items)\n        other.items.clear()\n        state.nan += other.nan\n",
        f"{AGGREGATES}::test_states_that_are_merged_are_the_state_of_all_events_and_a_copy_is_independent",
    ),
    Defect(
        "aggregates: a copied state is the same one",
        f"{MODULES}/moments.py",
        "        return self.merge(Moment(), state)\n",
        "        return state\n",
        f"{AGGREGATES}::test_states_that_are_merged_are_the_state_of_all_events_and_a_copy_is_independent",
    ),
    Defect(
        "top-k: rows are numbered, and ties at k are cut",
        f"{MODULES}/top_k.py",
        "            if place == 1 or key != last:\n",
        "            if place >= 1:\n",
        f"{TOP}::test_all_ties_at_rank_k_come_out_and_the_ranks_behind_them_are_skipped",
    ),
    Defect(
        "top-k: a missing value is first if the order descends",
        f"{MODULES}/top_k.py",
        "        return lambda value: (1,) if value is None else (0, Descending(key(value)))\n",
        "        return lambda value: (-1,) if value is None else (0, Descending(key(value)))\n",
        f"{TOP}::test_missing_values_are_last_in_either_direction_and_nan_is_the_largest",
    ),
    Defect(
        "users' modules: what is not read is shown",
        f"{MODULES}/edge.py",
        "event.vs if self.reads_start else NEG_INF",
        "event.vs",
        f"{USERS}::test_a_module_sees_of_times_what_it_declares",
    ),
    Defect(
        "users' modules: a row in which a value is missing is given",
        f"{MODULES}/edge.py",
        "            if values[at] is None:\n",
        "            if values[at] is Ellipsis:\n",
        f"{USERS}::test_rows_with_a_missing_value_are_not_given_and_an_aggregate_of_none_is_missing",
    ),
    Defect(
        "users' modules: rows come in the order of whole events",
        f"{MODULES}/edge.py",
        "        ordered = sorted(given, key=lambda one: (one.vs, one.ve, key(one.row)))\n",
        "        ordered = list(given)\n",
        f"{USERS}::test_the_order_in_which_rows_come_depends_on_what_the_module_gets_alone",
    ),
    Defect(
        "users' modules: one module has one state for all its arguments",
        f"{MODULES}/states.py",
        "        super().__init__((id(module), calls.arguments))\n",
        "        super().__init__(id(module))\n",
        f"{USERS}::test_a_module_over_two_columns_has_a_state_for_each_and_over_one_it_has_one",
    ),
    Defect(
        "users' modules: an exception goes on as it is",
        f"{MODULES}/edge.py",
        "    except Exception as error:\n",
        "    except ArithmeticError as error:\n",
        f"{USERS}::test_what_a_module_may_not_return_or_raise_is_named",
    ),
    Defect(
        "users' modules: an aggregate may return nothing for a type that cannot be missing",
        f"{MODULES}/edge.py",
        "        if value is None and not column.nullable:\n            raise",
        "        if value is None:\n            return None\n        if False:\n            raise",
        f"{USERS}::test_what_a_module_may_not_return_or_raise_is_named",
    ),
    Defect(
        "users' modules: every event is a call",
        f"{MODULES}/states.py",
        "        return self.settled(cell) if len(cell.pending) > PENDING_MAX else cell\n",
        "        return self.settled(cell)\n",
        f"{USERS}::test_an_incremental_module_is_called_once_with_what_came_and_once_with_what_went",
    ),
    Defect(
        "users' modules: events wait without a limit",
        f"{MODULES}/states.py",
        "        return self.settled(cell) if len(cell.pending) > PENDING_MAX else cell\n",
        "        return cell\n",
        f"{USERS}::test_rows_that_wait_are_bounded",
    ),
    Defect(
        "users' modules: a state of another version is restored",
        f"{MODULES}/states.py",
        "        if version != self._module.version:\n",
        "        if version is None:\n",
        f"{USERS}::test_a_state_of_another_version_is_refused",
    ),
    Defect(
        "users' modules: left clipping is allowed for the right one",
        f"{MODULES}/adapters.py",
        'if module.is_timed and "start" in declared.needs and clip.cuts_left:',
        'if module.is_timed and "start" in declared.needs and clip.cuts_right:',
        f"{TESTS}/test_examples.py::test_left_clipping_would_lose_the_order_of_starts_and_is_refused",
    ),
    Defect(
        "users' modules: results of a time-insensitive module keep lifetimes that they do not have",
        f"{MODULES}/adapters.py",
        "    if stamp.keeps_own and not (module.is_timed and isinstance(module, OperatorModule)):\n",
        "    if stamp.keeps_own and not module.is_timed and stamp is Stamp.TIME_BOUND:\n",
        f"{USERS}::test_policies_that_do_not_go_with_a_module_are_refused",
    ),
    Defect(
        "names: of two modules of one name the first is taken",
        f"{MODULES}/registry.py",
        "        if len(origins) > 1:\n",
        "        if len(origins) > 2:\n",
        f"{TESTS}/test_registry.py::test_two_modules_of_one_name_are_an_error_that_names_both",
    ),
    Defect(
        "names: a list of modules imports them",
        f"{MODULES}/registry.py",
        "        for name in sorted(names):\n            self._one_origin(name)\n",
        "        for name in sorted(names):\n            self.find(name)\n",
        f"{TESTS}/test_registry.py::test_installed_modules_are_listed_without_importing_them",
    ),
    Defect(
        "checks: a filter that does not commute is believed",
        f"{MODULES}/checks.py",
        '            ("filter_commutes", declared.filter_commutes, self._differs_when_filtered),\n',
        "",
        REFUTED,
    ),
    Defect(
        "checks: the time of a change is the start of its event",
        f"{MODULES}/checks.py",
        "        bound = before[-1].ve if is_adjust else event.vs\n",
        "        bound = event.vs\n",
        REFUTED,
    ),
    Defect(
        "checks: the first counterexample is shown, whatever its size",
        f"{MODULES}/checks.py",
        "    while place < len(case.events) > 1:\n",
        "    while place < 0:\n",
        REFUTED,
    ),
)
