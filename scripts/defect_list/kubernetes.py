"""Defects of the backend for Kubernetes. Those that need an API server are proved where one can be started."""

from seeded import Defect

RULES = "lmerge_controller/kubernetes/lease_rules.py"
CACHE_TEST = "tests/controller/kubernetes/test_reflector.py::"
MANIFESTS = "lmerge_controller/kubernetes/manifests.py"
OWN_VOLUMES = (
    "tests/controller/kubernetes/test_manifests.py::test_a_replica_gets_the_account_and_the_volumes_of_its_version"
)
SPARK_TEST = "tests/spark/test_spark_manifests.py::"
RULES_TEST = "tests/controller/kubernetes/test_lease_rules.py::"

DEFECTS = (
    Defect(
        "the documented upgrade of the CRD conflicts with helm",
        "docs/day-two.md",
        "kubectl apply --server-side --force-conflicts --filename",
        "kubectl apply --server-side --filename",
        "tests/controller/kubernetes/test_crd_owners.py"
        "::test_a_crd_that_helm_installed_is_upgraded_by_the_command_of_day_two",
    ),
    Defect(
        "a watch that is given up waits for its peer",
        "lmerge_controller/kubernetes/api.py",
        "        response.connection.transport.abort()\n",
        "        response.connection.transport.close()\n",
        CACHE_TEST + "test_a_watch_that_is_given_up_waits_for_no_answer",
    ),
    Defect(
        "an acquisition by the holder before keeps its term",
        RULES,
        "floor) + 1\n",
        "floor) + (self.identity != ((lease or {}).get('spec') or {}).get('holderIdentity'))\n",
        RULES_TEST + "test_the_holder_before_gets_a_new_term",
    ),
    Defect(
        "a missing lease is taken at once",
        RULES,
        "        return now - self._observed_at >= self.times.lease_s\n",
        "        return lease is None or now - self._observed_at >= self.times.lease_s\n",
        RULES_TEST + "test_a_term_is_above_the_floor_where_the_lease_was_lost",
    ),
    Defect(
        "a leader measures from when its renewal was answered",
        RULES,
        "Leadership(term_of(lease), sent + self.times.renew_s, is_confirmed)",
        "Leadership(term_of(lease), now + self.times.renew_s, is_confirmed)",
        RULES_TEST + "test_a_leader_stops_by_when_it_sent_its_last_renewal",
    ),
    Defect(
        "who creates the lease acts before others have seen it",
        RULES,
        "now + self.times.lease_s if is_created else sent",
        "sent",
        RULES_TEST + "test_who_creates_the_lease_acts_after_the_others_have_seen_it",
    ),
    Defect(
        "a candidate that has not looked for long counts the time as missing",
        RULES,
        "        if mark != self._observed or is_gap:\n",
        "        if mark != self._observed:\n",
        RULES_TEST + "test_a_lease_that_may_have_come_and_gone_between_two_looks_is_waited_for_again",
    ),
    Defect(
        "a leader does not notice that another term has begun",
        RULES,
        "(holder, term_of(lease)) == (self.identity, self.leadership.term)",
        "holder == self.identity",
        RULES_TEST + "test_a_leader_that_finds_another_holder_or_term_or_no_lease_leads_no_longer",
    ),
    Defect(
        "a leader that has stopped is taken for one of another version",
        RULES,
        "return found if holder and holder !=",
        "return found if holder !=",
        RULES_TEST + "test_a_candidate_sees_which_other_version_leads",
    ),
    Defect(
        "a status of an earlier term is accepted",
        "lmerge_controller/kubernetes/crd.py",
        "self.term >= oldSelf.term",
        "self.term >= 0",
        "tests/controller/kubernetes/test_crd.py::test_the_committed_definition_is_what_the_schema_gives",
    ),
    Defect(
        "an older event undoes an own write",
        "lmerge_controller/kubernetes/object_cache.py",
        "        if version <= newest and newest:\n",
        "        if old is None and version <= newest and newest:\n",
        CACHE_TEST + "test_an_older_event_does_not_undo_an_own_write",
    ),
    Defect(
        "a late answer brings a deleted object back",
        "lmerge_controller/kubernetes/object_cache.py",
        "else self._deleted.get(key, 0)",
        "else 0",
        CACHE_TEST + "test_the_late_answer_to_a_write_does_not_bring_a_deleted_object_back",
    ),
    Defect(
        "history that is gone is watched again from the same place",
        "lmerge_controller/kubernetes/reflector.py",
        "        except HistoryGone:\n            self._version = None\n",
        "        except HistoryGone:\n            pass\n",
        CACHE_TEST + "test_history_that_is_gone_is_listed_again",
    ),
    Defect(
        "a watch that is begun again is current only after a change",
        "lmerge_controller/kubernetes/reflector.py",
        "selector=self._selector, accepted=self._note_current,",
        "selector=self._selector,",
        CACHE_TEST + "test_a_quiet_watch_after_a_problem_is_current",
    ),
    Defect(
        "a quiet watch is taken for a lost connection",
        "lmerge_controller/kubernetes/api.py",
        "total=seconds + CALL_S_MAX, sock_connect",
        "total=seconds / 2, sock_connect",
        CACHE_TEST + "test_a_quiet_watch_is_ended_by_the_server_and_no_problem",
    ),
    Defect(
        "a watch that ends at once is begun again at once",
        "lmerge_controller/kubernetes/reflector.py",
        "        if has_changes or steady_s() - began >= WATCH_S_MIN:\n",
        "        if True:\n",
        CACHE_TEST + "test_watches_that_end_at_once_are_begun_again_ever_more_slowly",
    ),
    Defect(
        "replicas find the token under another name than that of their Secret's key",
        "lmerge_controller/kubernetes/manifests.py",
        'settings.token_key, "token", "/etc/lmerge/token"),',
        'settings.token_key, settings.token_key, "/etc/lmerge/token"),',
        "tests/controller/kubernetes/test_manifests.py::test_a_token_under_another_key_is_mounted_as_the_same_file",
    ),
    Defect(
        "a Deployment that was created without pods counts as started",
        "lmerge_controller/kubernetes/pod_states.py",
        ' and one["spec"].get("replicas") != 0:\n',
        ":\n",
        "tests/controller/kubernetes/test_manifests.py::test_a_deployment_that_wishes_no_pod_is_not_started_yet",
    ),
    Defect(
        "a write undoes what others have described since the decision",
        "lmerge_controller/kubernetes/fence.py",
        "if current is None or _spec_mark(newer) != _spec_mark(current):",
        "if current is None:",
        "tests/controller/kubernetes/test_statuses.py::test_a_spec_that_others_wrote_in_between_is_kept",
    ),
    Defect(
        "a busy server is asked again before the time that it asked for",
        "lmerge_controller/kubernetes/reflector.py",
        "max(self._backoff_s, wished or 0.0)",
        "self._backoff_s",
        CACHE_TEST + "test_a_server_that_is_too_busy_is_given_the_time_that_it_asks_for",
    ),
    Defect(
        "a pod that ends hides its successor",
        "lmerge_controller/kubernetes/pod_states.py",
        'return not meta.get("deletionTimestamp"), not',
        "return True, not",
        "tests/controller/kubernetes/test_manifests.py::test_the_youngest_pod_that_is_not_ending_is_the_process",
    ),
    Defect(
        "a pod is ready as soon as it runs",
        "lmerge_controller/kubernetes/manifests.py",
        '        "readinessGates": [{"conditionType": JOINED_GATE}],\n',
        "",
        "tests/controller/kubernetes/test_manifests.py::test_a_pod_is_ready_only_when_its_replica_has_joined",
    ),
    Defect(
        "a write is not conditional on what the decision saw",
        "lmerge_controller/kubernetes/fence.py",
        "        if term_of(found) > term:\n",
        "        if term_of(found) < 0:\n",
        "tests/controller/kubernetes/test_statuses.py::test_a_leader_of_an_earlier_term_writes_nothing",
    ),
    Defect(
        "a created Deployment has pods at once",
        "lmerge_controller/kubernetes/fence.py",
        '            made["spec"]["replicas"] = 0\n',
        "",
        "tests/controller/kubernetes/test_statuses.py::test_what_is_created_has_no_pods_until_the_second_write",
    ),
    Defect(
        "a status is written for each message that counts",
        "lmerge_controller/kubernetes/statuses.py",
        "before != after and age_s >= MESSAGES_EVERY_S",
        "before != after",
        "tests/controller/kubernetes/test_statuses.py::test_messages_alone_are_written_now_and_then",
    ),
    Defect(
        "another definition is not noticed",
        "lmerge_controller/kubernetes/statuses.py",
        "    if found == own:\n",
        "    if found:\n",
        "tests/controller/kubernetes/test_statuses.py::test_a_definition_with_another_schema_is_named",
    ),
    Defect(
        "a replica with a service account gets no token of it",
        MANIFESTS,
        '"automountServiceAccountToken": True}',
        '"automountServiceAccountToken": False}',
        OWN_VOLUMES,
    ),
    Defect(
        "a claim cannot be written to", MANIFESTS, '"readOnly": volume.kind != "claim"', '"readOnly": True', OWN_VOLUMES
    ),
    Defect(
        "the volumes of a version replace the restricted profile",
        MANIFESTS,
        'spec["securityContext"] |= {"fsGroup"',
        'spec["securityContext"] = {"fsGroup"',
        OWN_VOLUMES,
    ),
    Defect(
        "a version whose volumes change is not started anew",
        "lmerge_controller/model/query.py",
        "if value or name not in later",
        "if name not in later",
        "tests/controller/model/test_reading.py::"
        "test_a_version_that_names_no_volume_has_the_fingerprint_of_releases_before",
    ),
    Defect(
        "the image of Spark runs as a user whom Kubernetes cannot judge",
        "deploy/spark/Dockerfile",
        "USER 185:185",
        "USER spark",
        SPARK_TEST + "test_the_image_is_of_a_user_that_kubernetes_sees_not_to_be_root_and_has_all_packages",
    ),
    Defect(
        "the image of Spark lacks a package",
        "deploy/spark/Dockerfile",
        "COPY lmerge_controller lmerge_controller\n",
        "",
        SPARK_TEST + "test_the_image_is_of_a_user_that_kubernetes_sees_not_to_be_root_and_has_all_packages",
    ),
    Defect(
        "a submission in cluster mode may not make its network policy",
        "deploy/spark/kubernetes.yaml",
        "    resources: [networkpolicies]\n    verbs: [get, list, create, patch, delete]",
        "    resources: [networkpolicies]\n    verbs: [get, list]",
        SPARK_TEST + "test_spark_may_do_what_it_does_and_no_more",
    ),
    Defect(
        "executors get the key of the servers",
        "deploy/spark/kubernetes.yaml",
        "              - secret: {name: lmerge-tls, items: [{key: ca.crt, path: tls/ca.crt}]}",
        "              - secret: {name: lmerge-tls}",
        SPARK_TEST + "test_who_runs_the_query_can_write_the_checkpoints_and_has_no_key_of_the_servers",
    ),
    Defect(
        "a driver in cluster mode belongs to nobody",
        "deploy/spark/kubernetes.yaml",
        "    kind: Pod\n    metadata: {}\n",
        "    kind: Pod\n",
        SPARK_TEST + "test_what_is_submitted_belongs_to_the_pod_that_submits_it",
    ),
    Defect(
        "executors are refused by the restricted profile",
        "deploy/spark/kubernetes.yaml",
        "            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        "            capabilities: {drop: [ALL]}\n",
        SPARK_TEST + "test_every_pod_meets_the_restricted_profile",
    ),
)
