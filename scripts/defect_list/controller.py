"""Defects of the controller's plan, and of the call that changes a role."""

from seeded import Defect

REPLICAS = "lmerge_controller/plan/replicas.py"
CUTOVER = "lmerge_controller/plan/cutover.py"
ASSESSMENT = "lmerge_controller/plan/assessment.py"
DRAFTING = "lmerge_controller/plan/drafting.py"
SERVERS = "lmerge_controller/plan/servers.py"
PLANNING = "lmerge_controller/plan/planning.py"
READING = "lmerge_controller/model/reading.py"
LOOP = "lmerge_controller/loop.py"
TESTS = "tests/controller/plan/test_planning.py::"
EVERY = "tests/controller/plan/test_plan_properties.py::"
OBSERVATION = EVERY + "test_every_observation_has_a_plan_that_is_safe_and_is_not_repeated"
LOOP_TESTS = "tests/controller/test_loop.py::"
BAD_VERSION = TESTS + "test_a_bad_version_is_given_up_and_not_tried_again"

DEFECTS = (
    Defect(
        "the last good replica may be ended",
        REPLICAS,
        "    return rules.view.all_reachable and not replica.carries",
        "    return True",
        TESTS + "test_the_last_good_replica_is_not_replaced",
    ),
    Defect(
        "several replicas are replaced at a time",
        REPLICAS,
        "        if others:\n",
        "        if others and False:\n",
        TESTS + "test_two_lagging_replicas_are_replaced_one_after_the_other",
    ),
    Defect(
        "a replica is replaced at its first lag",
        REPLICAS,
        "    return lasted_s > limit_s",
        "    return lasted_s >= 0",
        TESTS + "test_a_lagging_replica_is_replaced_once_it_has_lagged_for_long",
    ),
    Defect(
        "a process that has ended is started without a back-off",
        REPLICAS,
        "    return left_s <= 0",
        "    return True",
        TESTS + "test_a_dead_replica_is_started_again_after_its_back_off",
    ),
    Defect(
        "a quarantined name is not released",
        REPLICAS,
        "    if replica.quarantined_at:\n        _release",
        "    if False:\n        _release",
        TESTS + "test_a_quarantined_replica_is_stopped_released_and_started",
    ),
    Defect(
        "the last good replica is not let in where its name is refused",
        REPLICAS,
        '            _release(rules, replica, "it carries the output elsewhere, so its process is not ended")\n',
        "",
        "tests/controller/plan/test_plan_properties.py::test_from_a_random_world_it_converges_without_harm",
    ),
    Defect(
        "a new version counts before it is certified",
        REPLICAS,
        'return "active" if version == self.record.serving or self.promotes else "observe"',
        'return "active"',
        TESTS + "test_a_cutover_starts_certifies_promotes_and_lets_go",
    ),
    Defect(
        "an observer of the serving version stays one",
        REPLICAS,
        "            if counts and observes and not",
        "            if counts and observes and rules.promotes and not",
        TESTS + "test_a_replica_that_came_back_as_an_observer_is_promoted",
    ),
    Defect(
        "a difference of the new version is overlooked",
        CUTOVER,
        "            if found.unequal_intervals > 0:",
        "            if found.unequal_intervals > 9_999:",
        BAD_VERSION + "[differs-publishes other events]",
    ),
    Defect(
        "the end of a replica of the new version is overlooked",
        CUTOVER,
        "        if process is not None and _has_ended(process, attempt):",
        "        if process is not None and False:",
        BAD_VERSION + "[crashes-has ended]",
    ),
    Defect(
        "a cutover has no time-out",
        CUTOVER,
        "    if view.now_s - attempt.since_s > query.cutover.timeout_s:",
        "    if view.now_s < attempt.since_s:",
        BAD_VERSION + "[stuck-not taken over within 15 s]",
    ),
    Defect(
        "a version that was given up is tried again at once",
        CUTOVER,
        "    if refusal(query, record) is not None:",
        "    if False:",
        BAD_VERSION + "[crashes-has ended]",
    ),
    Defect(
        "one certified replica certifies all",
        CUTOVER,
        "all(_is_certified(query, replica, attempt) for replica in new)",
        "any(_is_certified(query, replica, attempt) for replica in new)",
        TESTS + "test_a_version_is_promoted_only_when_all_its_replicas_are_certified",
    ),
    Defect(
        "one interval fewer certifies",
        CUTOVER,
        "found.equal_intervals >= query.cutover.intervals",
        "found.equal_intervals >= query.cutover.intervals - 1",
        TESTS + "test_a_version_is_promoted_only_when_all_its_replicas_are_certified",
    ),
    Defect(
        "a fact is acted upon each time it is seen",
        DRAFTING,
        "        if at_s is not None:",
        "        if at_s is not None and False:",
        OBSERVATION,
    ),
    Defect(
        "a server that begins to answer is noticed seconds later",
        DRAFTING,
        "        if begun_s is not None:\n",
        "        if begun_s is not None and not self.acted:\n",
        TESTS + "test_what_goes_on_is_looked_at_again_after_a_quarter_of_its_time_and_what_is_settled_seldom",
    ),
    Defect(
        "replicas are started without a limit",
        DRAFTING,
        "        if self._starts_left <= 0:",
        "        if self._starts_left < -9_999:",
        TESTS + "test_starts_are_limited_within_a_minute",
    ),
    Defect(
        "a replica that is joined at one of two servers counts as joined",
        ASSESSMENT,
        "sum(found.is_joined for _, found in self.inputs) == self.servers_count",
        "any(found.is_joined for _, found in self.inputs)",
        TESTS + "test_a_replica_that_is_joined_at_one_of_two_servers_spares_no_other",
    ),
    Defect(
        "an input without a stable point lags since minus infinity",
        ASSESSMENT,
        "found.stable_point == NEG_INF < server.stable_point < INF for",
        "False for",
        TESTS + "test_a_replica_that_has_joined_and_published_no_stable_point_is_joining_until_it_takes_too_long",
    ),
    Defect(
        "a replica is started again although the stream has ended",
        REPLICAS,
        "        return rules.view.is_complete or (process",
        "        return False or (process",
        TESTS + "test_a_replica_that_has_completed_its_stream_is_not_started_again",
    ),
    Defect(
        "a completed replica is started again while others go on",
        REPLICAS,
        "(process is not None and replica.is_complete)",
        "False",
        TESTS + "test_a_replica_that_has_completed_its_own_stream_is_not_started_while_the_output_goes_on",
    ),
    Defect(
        "a completed replica is left to be restarted for ever",
        REPLICAS,
        "        if process.phase is ProcessPhase.RESTARTING and process.exit_code == 0:",
        "        if False:",
        TESTS + "test_a_completed_replica_that_something_else_restarts_is_stopped",
    ),
    Defect(
        "a single replica is never replaced by its changed program",
        ASSESSMENT,
        "    if described is None or query.replicas != 1:",
        "    if True:",
        TESTS + "test_a_single_replica_whose_program_changed_is_replaced_once_a_second_one_is_good",
    ),
    Defect(
        "a lost record makes the described version serve",
        ASSESSMENT,
        "    if most == 0 or counts.get(query.active, 0) == most:",
        "    if True:",
        TESTS + "test_without_a_record_the_version_that_is_joined_serves",
    ),
    Defect(
        "servers are replaced all at once",
        SERVERS,
        '    if ended or any(acted.fact.startswith("server ") for acted in record.acted):\n        return False',
        "    if False:\n        return False",
        TESTS + "test_changed_servers_are_replaced_one_at_a_time",
    ),
    Defect("what was acted upon is forgotten", PLANNING, "acted=draft.acted_facts, starts_s", "starts_s", OBSERVATION),
    Defect(
        "a controller that does not lead acts",
        LOOP,
        "        if not self._may_act():\n            return",
        "        if False:\n            return",
        LOOP_TESTS + "test_a_controller_that_does_not_lead_neither_persists_nor_acts",
    ),
    Defect(
        "an action is begun before the decision is persisted",
        LOOP,
        "            await self._backend.persist(made.record)",
        "            pass",
        LOOP_TESTS + "test_an_error_of_one_action_is_reported_and_does_not_stop_the_others",
    ),
    Defect(
        "a field that comes twice is accepted",
        READING,
        "            if key.value in seen:",
        "            if False:",
        "tests/controller/model/test_reading.py::test_a_problem_names_file_line_field_and_what_is_allowed",
    ),
    Defect(
        "the role of another incarnation is changed",
        "lmerge/service/admin/commands.py",
        "    if request.incarnation not in (0, attached.incarnation):",
        "    if False:",
        "tests/service/admin/test_change_role.py::test_another_incarnation_is_left_as_it_is",
    ),
    Defect(
        "intervals of an earlier incarnation certify the present one",
        "lmerge/core/divergence/compared_input.py",
        "for index in sorted(self.is_equal) if self.first <= index < self.completed]",
        "for index in sorted(self.is_equal)]",
        "tests/service/admin/test_change_role.py::test_equal_and_unequal_intervals_are_those_of_the_incarnation",
    ),
    Defect(
        "the end of a process that an earlier cutover let go rolls the next one back",
        "lmerge_controller/plan/cutover.py",
        "is ProcessPhase.STOPPING and process.started_at_s < attempt.since_s:",
        "is ProcessPhase.STOPPING and process.started_at_s < float('-inf'):",
        "tests/controller/plan/test_planning.py"
        "::test_the_end_of_a_process_of_an_earlier_cutover_is_no_failure_of_this_one",
    ),
)
