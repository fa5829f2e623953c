"""Defects of the drill: its judge, its verdict, and what it refuses and undoes."""

from seeded import Defect

JUDGING = "lmerge_controller/drill/judging"
JUDGE = "tests/controller/drill/test_judge.py"
VERDICT = "tests/controller/drill/test_verdict.py"
REDUNDANCY = "tests/controller/drill/test_redundancy.py"
REPORTS = "tests/controller/drill/test_reports.py"
DESCRIBED = "tests/controller/drill/test_described.py"
JOURNAL = "tests/controller/drill/test_journal.py"

WATCHED = "tests/controller/drill/test_watched.py"
KUBE = "tests/controller/kubernetes/test_drill_target.py"
LOCAL_QUERY = "tests/controller/drill/test_local_query.py"

DEFECTS = (
    Defect(
        "the drill on Kubernetes: a drained node loses the pods of others",
        "lmerge_controller/drill/targets/kube_release.py",
        'return pods(place, f"{QUERY_LABEL}={place.query}") if place.query else []',
        'return pods(place, "") if place.query else []',
        f"{KUBE}::test_a_node_is_drained_of_the_release_and_the_query_alone",
    ),
    Defect(
        "the drill on Kubernetes: a node that someone else has cordoned is uncordoned",
        "lmerge_controller/drill/kube_calls.py",
        '        if found["spec"].get("unschedulable") and _owner(found) != place.owner:\n',
        '        if _owner(found) not in ("", place.owner):\n',
        f"{KUBE}::test_a_node_that_someone_else_has_cordoned_stays_so",
    ),
    Defect(
        "the drill on Kubernetes: a killed pod has its grace period",
        "lmerge_controller/drill/kube_calls.py",
        'uid=meta["uid"], grace_s=0)',
        'uid=meta["uid"])',
        f"{KUBE}::test_a_killed_pod_is_gone_at_once_and_another_one_ends_the_fault",
    ),
    Defect(
        "the drill on Kubernetes: a query whose merge is not seen is broken",
        "lmerge_controller/drill/aim.py",
        "        return list(dict.fromkeys([*self.guarded, *found]))\n",
        "        return found\n",
        f"{KUBE}::test_the_merge_of_the_query_is_guarded_even_if_the_servers_do_not_show_it",
    ),
    Defect(
        "the drill on Kubernetes: all servers are drained with their node",
        "lmerge_controller/drill/targets/kube_release.py",
        "        if all(_node(pod) == node for pod in servers):\n",
        "        if not servers:\n",
        f"{KUBE}::test_the_last_servers_are_not_drained",
    ),
    Defect(
        "the drill's watch: a stable point that moved only during the fault has gone on",
        f"{JUDGING}/watched.py",
        "max(fault.until_s for fault in faults)",
        "max(fault.at_s for fault in faults)",
        f"{WATCHED}::test_a_stable_point_that_moves_only_during_the_fault_has_not_gone_on",
    ),
    Defect(
        "the drill's watch: a user's stream that stands passes",
        f"{JUDGING}/watched.py",
        "    if not has_gone_on(stream, faults):\n",
        "    if not faults:\n",
        f"{WATCHED}::test_a_stable_point_that_stays_after_the_last_fault_fails",
    ),
    Defect(
        "the drill at a local query: a fault is over before its process runs again",
        "lmerge_controller/drill/targets/local_query.py",
        "            if found is not None and found != old and found.is_alive:\n",
        "            if found is not None:\n",
        f"{LOCAL_QUERY}::test_a_fault_is_over_when_another_process_runs",
    ),
    Defect(
        "the drill at a local query: what is frozen is not in the journal",
        "lmerge_controller/drill/undo.py",
        '    "continue-group": continue_group,\n',
        "",
        f"{LOCAL_QUERY}::test_what_a_killed_drill_has_frozen_goes_on",
    ),
    Defect(
        "the drill's judge: a lost event is not counted",
        f"{JUDGING}/judge.py",
        "            elif ve < self.stable_point:\n",
        "            elif ve < self.stable_point and not self._flaws:\n",
        f"{JUDGE}::test_flaws_are_bounded_and_counts_are_not",
    ),
    Defect(
        "the drill's judge: a loss is called unfinished",
        f"{JUDGING}/judge.py",
        "            elif ve < self.stable_point:\n",
        "            elif vs > self.stable_point:\n",
        f"{JUDGE}::test_a_planted_loss_is_found",
    ),
    Defect(
        "the drill's judge: a table of events without copies",
        f"{JUDGING}/judge.py",
        "            self._ends.setdefault((vs, payload), []).append(ve)",
        "            self._ends[vs, payload] = [ve]",
        f"{JUDGE}::test_a_planted_duplicate_is_found",
    ),
    Defect(
        "the drill's judge: a frozen event may change",
        f"{JUDGING}/judge.py",
        "        if vold < self.stable_point:\n",
        "        if vold < vs:\n",
        f"{JUDGE}::test_a_change_of_a_frozen_event_is_a_contradiction",
    ),
    Defect(
        "the drill's judge: <= for < where an event is frozen",
        f"{JUDGING}/judge.py",
        "        if vold < self.stable_point:\n",
        "        if vold <= self.stable_point:\n",
        f"{JUDGE}::test_the_boundary_of_the_frozen_is_that_of_the_paper",
    ),
    Defect(
        "the drill's judge: an insert below the stable point is taken",
        f"{JUDGING}/judge.py",
        '        if vs < self.stable_point:\n            return f"it starts before',
        '        if ve < self.stable_point:\n            return f"it starts before',
        f"{JUDGE}::test_the_boundary_of_the_frozen_is_that_of_the_paper",
    ),
    Defect(
        "the drill's judge: the stable point may go back",
        f"{JUDGING}/judge.py",
        '                return f"the stable point goes back from {self.stable_point}"\n',
        '                return ""\n',
        f"{JUDGE}::test_a_stable_point_that_goes_back_is_a_contradiction",
    ),
    Defect(
        "the drill's judge: events that the truth does not have are ignored",
        f"{JUDGING}/judge.py",
        "        for (vs, payload), copies in ends.items():\n",
        "        for (vs, payload), copies in ():\n",
        f"{JUDGE}::test_an_event_that_the_truth_does_not_have_is_found",
    ),
    Defect(
        "the drill's verdict: an output that never goes on has no pause",
        f"{JUDGING}/pauses.py",
        "(after or [max(ended_s, since_s)])",
        "after",
        f"{VERDICT}::test_an_output_that_never_goes_on_pauses_to_the_end",
    ),
    Defect(
        "the drill's verdict: a fault that did not take place passes",
        f"{JUDGING}/verdict.py",
        '    return problems if faults else ["no fault took place"]',
        "    return []",
        f"{VERDICT}::test_a_fault_that_did_not_take_place_is_no_success",
    ),
    Defect(
        "the drill's verdict: a redundancy that never comes back passes",
        f"{JUDGING}/verdict.py",
        "        if limits.recovery_s is None or window.fault.problem:",
        "        if limits.recovery_s is None or window.recovery_s is None:",
        f"{VERDICT}::test_a_redundancy_that_comes_late_or_never_is_named",
    ),
    Defect(
        "the drill: a users' merge that only one server has is not looked at",
        "lmerge_controller/drill/redundancy.py",
        "    for number, merge in enumerate(merges):\n",
        "    for number, merge in enumerate(merges[:1]):\n",
        f"{REDUNDANCY}::test_a_users_merge_on_one_server_protects_that_server",
    ),
    Defect(
        "the drill: the last server is broken",
        "lmerge_controller/drill/redundancy.py",
        "    if len(able) <= victims:\n",
        "    if len(able) < victims:\n",
        f"{REDUNDANCY}::test_a_users_merge_on_one_server_protects_that_server",
    ),
    Defect(
        "the drill: a later process of the same id is signalled",
        "lmerge_controller/drill/process_marks.py",
        "    return bool(mark) and mark_of(pid) == mark\n",
        "    return bool(mark_of(pid))\n",
        f"{JOURNAL}::test_a_later_process_of_the_same_id_is_not_touched",
    ),
    Defect(
        "the drill: a journal removes folders that no drill has made",
        "lmerge_controller/drill/undo.py",
        "    if folder.name.startswith(FOLDER_PREFIX) and not folder.is_symlink():\n",
        "    if folder.exists():\n",
        f"{JOURNAL}::test_only_folders_of_drills_are_removed",
    ),
    Defect(
        "the drill: what could not be undone is forgotten",
        "lmerge_controller/drill/undo.py",
        "            failures.append(error)\n            continue\n",
        "            failures.append(error)\n",
        f"{JOURNAL}::test_what_cannot_be_undone_stays_in_the_journal",
    ),
    Defect(
        "the drill: the journal of a running drill is undone",
        "lmerge_controller/drill/journal.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        f"{JOURNAL}::test_a_journal_of_a_running_drill_is_left_alone",
    ),
    Defect(
        "the drill: a disk that is not full passes as a full one",
        "lmerge_controller/drill/redundancy.py",
        "            return all(server.problem or server.store != DURABLE for server in found)\n",
        "            return True\n",
        f"{REDUNDANCY}::test_a_fault_without_an_effect_is_not_noticed",
    ),
    Defect(
        "the drill: a stream that is frozen by the drill stays frozen",
        "lmerge_controller/drill/probe/fleet.py",
        "        send_signal(pid, mark, signal.SIGCONT)\n        journal.done(note)\n",
        "        journal.done(note)\n",
        "tests/controller/drill/test_drills.py::test_what_is_frozen_goes_on_and_counts_again",
    ),
    Defect(
        "the drill's page: reasons are not escaped",
        "lmerge_controller/drill/report/page.py",
        "<li>{_text(reason)}</li>",
        "<li>{reason}</li>",
        f"{REPORTS}::test_what_comes_from_outside_is_only_text",
    ),
    Defect(
        "the drill's page: a pause is drawn where it ended",
        "lmerge_controller/drill/report/timeline.py",
        "        for column in range(first, last + 1):\n",
        "        for column in range(last, last + 1):\n",
        f"{REPORTS}::test_a_silence_is_as_wide_as_it_lasted",
    ),
    Defect(
        "the drill's JUnit: a refused drill passes",
        "lmerge_controller/drill/report/junit.py",
        'DrillStatus.REFUSED: "error"',
        'DrillStatus.REFUSED: "system-err"',
        f"{REPORTS}::test_junit_counts_refused_drills_as_errors",
    ),
    Defect(
        "the drill: an exit code of 0 although a drill failed",
        "lmerge_controller/drill/report/result.py",
        "    if DrillStatus.FAILED in statuses:\n",
        "    if statuses == {DrillStatus.FAILED}:\n",
        f"{REPORTS}::test_the_exit_code_is_that_of_the_worst_drill",
    ),
    Defect(
        "the drill's metrics: a failure is counted from zero each time",
        "lmerge_controller/drill/report/metrics.py",
        "self.values[name].get(drill, 0.0) + (result.status is status)",
        "float(result.status is status)",
        f"{REPORTS}::test_metrics_go_on_from_the_file_that_is_there",
    ),
    Defect(
        "the drill: a command that failed in part is not undone",
        "lmerge_controller/drill/targets/described.py",
        "            undo()  # it may have been done in part\n",
        "",
        f"{DESCRIBED}::test_a_command_that_fails_is_undone_and_named",
    ),
    Defect(
        "the drill: commands break another victim than meant",
        "lmerge_controller/drill/targets/described.py",
        "nodes[number - 1] if number <= len(nodes)",
        "nodes[0] if number <= len(nodes)",
        f"{DESCRIBED}::test_commands_break_and_undo_the_victim_that_is_meant",
    ),
    Defect(
        "the drill: a cutover that cannot be certified in time is tried",
        "lmerge_controller/drill/cutover.py",
        "if interval_us > INTERVAL_US_MAX:",
        "if interval_us < 0:",
        "tests/controller/drill/test_drills.py::"
        "test_a_cutover_is_refused_where_servers_compare_too_seldom_to_certify_in_time",
    ),
)
