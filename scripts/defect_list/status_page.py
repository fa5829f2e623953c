"""Defects of the status page: its doors, its live data, and what the browser shows."""

from seeded import Defect

PAGE = "tests/service/admin/test_status_page.py"
BROWSER = "tests/service/admin/test_status_browser.py"
OCCURRENCES = "tests/service/merge/test_occurrences.py"
ADMIN = "lmerge/service/admin"

DEFECTS = (
    Defect(
        "the data of the page are open to all",
        "lmerge/service/security/guard.py",
        'OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", ',
        'OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/status/data", ',
        f"{PAGE}::test_the_guard_opens_the_files_of_the_bundle_and_nothing_else",
    ),
    Defect(
        "payloads are shown to callers who may only see the status",
        f"{ADMIN}/status_page.py",
        "    return access.may((SUBSCRIBE, ADMIN), merge)\n",
        "    return True\n",
        f"{PAGE}::test_payloads_come_only_to_those_who_may_read_them",
    ),
    Defect(
        "a stream goes on when its token is revoked",
        "lmerge/service/security/guard.py",
        "        if access.identities:\n            self._streams.add(access)\n        try:\n",
        "        try:\n",
        f"{PAGE}::test_a_stream_ends_with_its_access",
    ),
    Defect(
        "a page of another site reads a local server",
        f"{ADMIN}/status_page.py",
        ' and not is_loopback(request.url.host or ""):\n',
        " and not request.url.host:\n",
        f"{PAGE}::test_a_page_of_another_site_cannot_read_a_local_server_under_its_own_name",
    ),
    Defect(
        "the number of viewers has no bound",
        f"{ADMIN}/status_feed.py",
        "        if self.viewers >= self.settings.page_viewers_max:\n",
        "        if self.viewers < 0:\n",
        f"{PAGE}::test_one_viewer_more_than_the_limit_is_refused_and_comes_when_one_goes",
    ),
    Defect(
        "a viewer that does not read is kept",
        f"{ADMIN}/status_page.py",
        "        return now_s - self._waits_since_s > self._timeout_s\n",
        "        return False\n",
        f"{PAGE}::test_a_viewer_that_does_not_read_is_dropped_and_no_other_waits",
    ),
    Defect(
        "a viewer that was slow misses what has changed",
        f"{ADMIN}/status_feed.py",
        "        if version is not None and version == self.version - 1:\n",
        "        if version is not None:\n",
        f"{PAGE}::test_a_later_message_has_only_what_is_new_and_a_viewer_that_was_slow_gets_all",
    ),
    Defect(
        "a death waits for the next sample",
        f"{ADMIN}/status_feed.py",
        "        return (0 if hub is None else hub.state.occurrences.count) != self.noted\n",
        "        return False\n",
        f"{PAGE}::test_a_death_is_reported_between_two_samples",
    ),
    Defect(
        "payloads are not escaped",
        f"{ADMIN}/status_report.py",
        '                    "payload": _text(payload_text(event.payload)),\n',
        '                    "payload": payload_text(event.payload),\n',
        f"{PAGE}::test_events_that_differ_are_shown_escaped",
    ),
    Defect(
        "a server that stops waits for its viewers",
        f"{ADMIN}/http_server.py",
        "        await self._status_page.stop()  # first: its streams do not end by themselves\n",
        "",
        f"{PAGE}::test_a_server_that_stops_ends_its_viewers_at_once",
    ),
    Defect(
        "a server that stops waits for a viewer that came late",
        f"{ADMIN}/status_page.py",
        "            if self._is_stopping:\n",
        "            if False:\n",
        f"{PAGE}::test_a_viewer_that_comes_while_the_server_stops_does_not_hold_it_up",
    ),
    Defect(
        "a file is sent compressed to who does not accept that",
        f"{ADMIN}/status_bundle.py",
        '(not quality or quality.strip("0.") != "")',
        "True",
        f"{PAGE}::test_files_are_compressed_where_that_is_accepted_and_never_sent_twice",
    ),
    Defect(
        "the death of an input is noted as a leave",
        "lmerge/service/merge/occurrences.py",
        "    DetachCause.CONNECTION_ENDED: OccurrenceKind.DIED,\n",
        "    DetachCause.CONNECTION_ENDED: OccurrenceKind.LEFT,\n",
        f"{OCCURRENCES}::test_a_leave_a_death_and_a_broken_promise_are_distinct",
    ),
    Defect(
        "an input that has died vanishes from the page",
        f"{ADMIN}/page/merge.js",
        "[...merge.inputs, ...this.#gone(merge)]",
        "[...merge.inputs]",
        f"{BROWSER}::test_a_replica_that_is_killed_is_shown_within_a_second",
    ),
    Defect(
        "names become markup",
        f"{ADMIN}/page/dom.js",
        "  if (node.textContent !== text) node.textContent = text;\n",
        "  if (node.textContent !== text) node.innerHTML = text;\n",
        f"{BROWSER}::test_names_and_payloads_are_shown_as_text",
    ),
    Defect(
        "a page whose server hangs looks live",
        f"{ADMIN}/page/live.js",
        "const MISSED_INTERVALS = 3;\n",
        "const MISSED_INTERVALS = 30000;\n",
        f"{BROWSER}::test_a_server_that_hangs_is_not_live",
    ),
    Defect(
        "a page does not connect again",
        f"{ADMIN}/page/live.js",
        "    this.#timer = setTimeout(() => this.#connect(), wait);\n",
        "",
        f"{BROWSER}::test_a_page_that_is_not_live_shows_it_and_comes_back_by_itself",
    ),
    Defect(
        "a chart cannot be read by the keyboard",
        f"{ADMIN}/page/chart.js",
        "        keydown: (event) => this.#key(event),\n",
        "",
        f"{BROWSER}::test_everything_can_be_done_with_the_keyboard",
    ),
    Defect(
        "a long name makes a narrow page scroll",
        f"{ADMIN}/page/page.css",
        " overflow-wrap: anywhere; }\n",
        " }\n",
        f"{BROWSER}::test_no_width_needs_a_horizontal_scroll",
    ),
    Defect(
        "the dark theme has the ink of the light one",
        f"{ADMIN}/page/page.css",
        "--ink: #e4e8ed; --quiet: #98a4b1;",
        "--ink: #1c2127; --quiet: #98a4b1;",
        f"{BROWSER}::test_both_themes_have_enough_contrast",
    ),
)
