"""Defects of the chart and of the image. Most of their tests need helm."""

from seeded import Defect

SERVERS = "charts/lmerge/templates/servers.yaml"
TOKENS = "charts/lmerge/templates/tokens.yaml"
TLS = "charts/lmerge/templates/tls.yaml"
HELPERS = "charts/lmerge/templates/_helpers.tpl"
PROGRAM = "charts/lmerge/files/test/stream_test.py"
SCHEMA = "charts/lmerge/values.schema.json"
RENDERING = "tests/chart/test_rendering.py"
DEPARTURE = "lmerge/service/admin/departure.py"

DEFECTS = (
    Defect(
        "a helm whose hash is not known is run in CI",
        "scripts/kube_tools.sh",
        "if ! are_right; then",
        "if false; then",
        "tests/scripts/test_kube_tools.py::test_programs_with_other_hashes_are_removed",
    ),
    Defect(
        "the access file holds the tokens themselves",
        TOKENS,
        '"sha256" (sha256sum $token)',
        '"sha256" (sha256sum $token) "token" $token',
        f"{RENDERING}::test_the_access_file_holds_digests_of_the_tokens_and_no_token",
    ),
    Defect(
        "the digest is of the name, so no token is valid",
        TOKENS,
        "(sha256sum $token)",
        "(sha256sum $name)",
        f"{RENDERING}::test_the_access_file_holds_digests_of_the_tokens_and_no_token",
    ),
    Defect(
        "the certificate does not name the single servers",
        TLS,
        'list $full (printf "*.%s" $headless)',
        "list $full",
        f"{RENDERING}::test_the_certificate_is_for_every_name_of_the_servers",
    ),
    Defect(
        "a pod may write to its root",
        HELPERS,
        "readOnlyRootFilesystem: true",
        "readOnlyRootFilesystem: false",
        f"{RENDERING}::test_every_pod_passes_the_restricted_profile[defaults]",
    ),
    Defect(
        "a server has the credentials of the API, which it does not use",
        SERVERS,
        "      automountServiceAccountToken: false\n",
        "      automountServiceAccountToken: true\n",
        f"{RENDERING}::test_only_what_calls_the_api_has_its_credentials[defaults]",
    ),
    Defect(
        "a server with certificates is asked by gRPC in clear, and never ready",
        SERVERS,
        '(dict "tls" $tls "path" "/readyz")',
        '(dict "tls" false "path" "/readyz")',
        f"{RENDERING}::test_the_kubelet_asks_in_the_way_that_the_server_answers",
    ),
    Defect(
        "a pod is killed in the middle of its drain",
        HELPERS,
        "if gt (int (add $v.servers.drainSeconds 15))",
        "if gt (int (add $v.servers.drainSeconds -100))",
        f"{RENDERING}::test_values_that_do_not_fit_together_are_refused[a drain without time]",
    ),
    Defect(
        "the budget allows all servers to be away",
        HELPERS,
        "(ge (int $v.servers.disruptionBudget.maxUnavailable) (int $v.servers.count))",
        "(gt (int $v.servers.disruptionBudget.maxUnavailable) (int $v.servers.count))",
        f"{RENDERING}::test_values_that_do_not_fit_together_are_refused[a drain of nodes that stops all]",
    ),
    Defect(
        "the judge of helm test counts events and does not compare them",
        PROGRAM,
        "    lost, more = expected - seen, seen - expected\n",
        "    lost, more = Counter[Event](), Counter[Event]()\n    if seen.total() < expected.total():\n"
        "        lost = expected - seen\n",
        "tests/chart/test_stream_program.py::test_the_judge_passes_the_truth_and_finds_what_is_planted",
    ),
    Defect(
        "a misspelt value of the servers is ignored",
        SCHEMA,
        '      "description": "The servers: independent, each with a volume of its own.",\n'
        '      "additionalProperties": false,\n',
        '      "description": "The servers: independent, each with a volume of its own.",\n'
        '      "additionalProperties": true,\n',
        "tests/chart/test_values.py::test_a_wrong_value_is_refused[servers.cuont-2]",
    ),
    Defect(
        "an announced server refuses whoever still comes",
        DEPARTURE,
        "        self.is_announced = True\n",
        "        self.is_announced = self._registry.draining = True\n",
        "tests/service/admin/test_departure.py::"
        "test_an_announced_server_is_not_ready_and_serves_until_its_clients_have_left",
    ),
    Defect(
        "a drain does not wait for clients",
        DEPARTURE,
        "left.waited_seconds >= wait_s or",
        "left.waited_seconds >= 0 or",
        "tests/service/admin/test_departure.py::"
        "test_an_announced_server_is_not_ready_and_serves_until_its_clients_have_left",
    ),
    Defect(
        "an administrator of one merge ends the server",
        "lmerge/service/security/guard.py",
        "                identity.must_everywhere(rule.roles, rule.attempt)\n",
        "                identity.must(rule.roles, rule.attempt, next(iter(identity.rights)).merges[0])\n",
        "tests/service/admin/test_departure.py::test_only_an_administrator_of_every_merge_ends_a_server",
    ),
    Defect(
        "dashboards link to runbooks elsewhere than alerts",
        "charts/lmerge/templates/monitoring.yaml",
        "replace $runbooks $elsewhere | toJson",
        "toJson",
        "tests/chart/test_rendering.py::test_alerts_and_dashboards_link_to_the_runbooks_of_the_installation",
    ),
)
