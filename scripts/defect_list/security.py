"""Defects of rights, tokens, certificates and quotas."""

from seeded import Defect

AUTH = "lmerge/service/security/auth.py"
ACCESS = "lmerge/service/security/access_file.py"
GUARD = "lmerge/service/security/guard.py"
QUOTA = "lmerge/service/security/quota.py"
DOORS_TEST = "tests/service/security/test_guard.py"
AUTH_TEST = "tests/service/security/test_auth.py"

DEFECTS = (
    Defect(
        "any role permits every call on its merge",
        AUTH,
        "        if role not in self.roles or not _matches(self.merges, merge):\n",
        "        if not _matches(self.merges, merge):\n",
        f"{AUTH_TEST}::test_no_role_includes_another[publish]",
    ),
    Defect(
        "a token for flights is valid for flightsx",
        AUTH,
        "    return any(fnmatchcase(name, pattern) for pattern in patterns)\n",
        '    return any(name.startswith(pattern.rstrip("*")) for pattern in patterns)\n',
        f"{AUTH_TEST}::test_a_pattern_is_for_the_whole_name",
    ),
    Defect(
        "a token publishes under any replica name",
        AUTH,
        "        return replica is None or _matches(self.replicas, replica)\n",
        "        return True\n",
        f"{AUTH_TEST}::test_a_token_publishes_under_its_own_name_only_and_cannot_fence_another",
    ),
    Defect(
        "a common name counts as a name of ours",
        AUTH,
        "for uri in self.uris if (right :=",
        "for uri in (*self.uris, self.common_name, *self.dns) if (right :=",
        f"{AUTH_TEST}::test_only_uris_count_as_names_of_ours",
    ),
    Defect(
        "a token is valid at the moment of its expiry",
        ACCESS,
        "now_us >= self.expires_us:\n",
        "now_us > self.expires_us:\n",
        f"{AUTH_TEST}::test_expiry_is_a_moment_not_a_day",
    ),
    Defect(
        "an existing id is enough, whatever the secret",
        ACCESS,
        "        if entry is None or not is_right:\n",
        "        if entry is None:\n",
        f"{AUTH_TEST}::test_the_file_holds_only_the_digest_of_a_token",
    ),
    Defect(
        "a broken access file locks all callers out",
        ACCESS,
        "            self.problem = str(error)\n",
        "            self.problem = str(error)\n            self._take([])\n",
        f"{AUTH_TEST}::test_a_file_that_breaks_leaves_the_last_good_one_in_force",
    ),
    Defect(
        "an entry that is disabled is still valid",
        ACCESS,
        "        if not self.enabled:\n",
        "        if False:\n",
        f"{DOORS_TEST}::test_a_method_is_open_to_the_right_token_and_to_no_other[grpc-ListMerges]",
    ),
    Defect(
        "a method without a rule is open",
        GUARD,
        "        if rule is None:\n            raise PermissionDenied(",
        "        if rule is None:\n            return CallAccess(self, ShownCredentials((), None), (), peer)\n"
        "            raise PermissionDenied(",
        f"{DOORS_TEST}::test_a_method_without_a_rule_is_closed_to_everyone",
    ),
    Defect(
        "the rights of open streams are never checked again",
        GUARD,
        "        for access in list(self._streams):\n",
        "        for access in ():\n",
        f"{AUTH_TEST}::test_streams_end_when_their_token_loses_the_right_that_let_them_in",
    ),
    Defect(
        "a token may do what the certificate beside it may not",
        GUARD,
        "        for identity in self.identities:\n            check(identity)\n        self._granted",
        "        for identity in self.identities[-1:]:\n            check(identity)\n        self._granted",
        f"{AUTH_TEST}::test_with_a_certificate_and_a_token_both_must_allow_it",
    ),
    Defect(
        "a caller who may not publish uses up the attach quota of others",
        GUARD,
        '        self.require((PUBLISH,), f"publish into',
        '        self._guard.count_attach(self._peer, merge, replica)\n        self.require((PUBLISH,), f"publish into',
        "tests/service/security/test_quota.py::test_a_caller_that_may_not_publish_uses_up_no_attaches",
    ),
    Defect(
        "metrics are open to strangers",
        GUARD,
        'OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", *_PAGE_PATHS})\n',
        'OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics", *_PAGE_PATHS})\n',
        f"{DOORS_TEST}::test_of_http_only_the_probes_are_open",
    ),
    Defect(
        "the list of merges shows all of them to every caller",
        GUARD,
        "    return access is None or access.sees(merge)\n",
        "    return True\n",
        f"{DOORS_TEST}::test_the_list_of_merges_has_only_those_in_which_the_caller_has_rights",
    ),
    Defect(
        "an open address needs no security",
        "lmerge/service/settings.py",
        "        if self.insecure or is_loopback(self.host):\n",
        "        if True:\n",
        "tests/service/security/test_tls.py::test_settings_that_would_leave_access_open_are_refused",
    ),
    Defect(
        "a token is sent to any host unencrypted",
        "lmerge/client/connection/security.py",
        "security.insecure or is_loopback(host_of(target)):\n",
        "True:\n",
        "tests/client/connection/test_security.py::test_a_token_does_not_leave_the_machine_unencrypted",
    ),
    Defect(
        "certificates that do not fit their key are taken",
        "lmerge/service/security/tls.py",
        '        load_pair(context, str(self._paths["certificate"]), str(self._paths["key"]))\n',
        "",
        "tests/service/security/test_tls.py::test_files_that_do_not_fit_together_leave_the_last_good_ones",
    ),
    Defect(
        "the oldest input is ended for the bytes of a new one",
        "lmerge/service/merge/live_limit.py",
        "        since = {key: count - self._at_ease.get(key, 0) for key, count in brought.items()}\n",
        "        since = dict(brought)\n",
        "tests/service/security/test_quota.py::test_the_input_that_brought_the_growth_is_ended_and_not_the_oldest",
    ),
    Defect(
        "a bucket is full again at every call",
        QUOTA,
        "left + (now_s - before_s) * self._rate_per_s)\n",
        "left + 1.0)\n",
        "tests/service/security/test_quota.py::test_a_bucket_gives_its_burst_at_once_and_then_its_rate",
    ),
    Defect(
        "a replica that comes with lmerge sends no token",
        "lmerge_replicas/flights/__main__.py",
        "        security=security,\n    ) as publisher",
        "    ) as publisher",
        "tests/client/connection/test_security.py::test_a_replica_that_comes_with_lmerge_takes_it_too",
    ),
    Defect(
        "an option of security is not passed to a replica",
        "lmerge/cli/replica.py",
        "    return given + [option for option, is_set in flags.items() if is_set]",
        "    return []",
        "tests/client/connection/test_security.py::test_a_replica_that_comes_with_lmerge_takes_it_too[grpc-options]",
    ),
)
