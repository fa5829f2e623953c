"""Defects of the entry of connections and data, of written output, and of the reset of a spoiled merge."""

from seeded import Defect

RESET = "tests/service/admin/test_reset.py"
HTTP = "tests/service/admin/test_http.py"
MODES = "tests/service/test_modes.py"
NAMES = "tests/wire/test_names.py"
HOSTILE = "tests/service/test_hostile.py"
TERMINAL = "tests/cli/test_terminal.py"
BARE = "tests/service/calls/test_publish.py::test_what_subscribers_get_fits_the_columns_that_were_declared_first"

ENDS = "tests/service/test_input_ends.py"

DEFECTS = (
    Defect(
        "the end of a stream is its status alone",
        "lmerge/service/calls/publish.py",
        "        if self._detached is None and code in _RETRYABLE:\n",
        "        if self._detached is None:\n",
        f"{ENDS}::test_the_reason_of_an_end_is_a_message_and_the_call_waits_until_it_was_read",
    ),
    Defect(
        "a stream ends before its publisher has read why",
        "lmerge/service/calls/publish.py",
        "        await asyncio.wait((reader,))\n",
        "",
        f"{ENDS}::test_the_reason_of_an_end_is_a_message_and_the_call_waits_until_it_was_read",
    ),
    Defect(
        "an invalid schema is kept",
        "lmerge/service/calls/publish.py",
        "            Schema.from_message(declared)\n",
        "            str(declared)\n",
        "tests/service/calls/test_publish.py::test_the_schema_of_the_first_publisher_holds_for_all",
    ),
    Defect(
        "an observer declares the schema for all",
        "lmerge/service/merge/membership.py",
        "if state.output.schema is None and request.role is InputRole.ACTIVE:",
        "if state.output.schema is None:",
        "tests/service/calls/test_publish.py::test_an_observer_declares_no_schema_for_others",
    ),
    Defect(
        "a schema is declared after events were delivered without one",
        "lmerge/service/merge/attachments.py",
        "(schema is None and not has_bare_events)",
        "schema is None",
        BARE,
    ),
    Defect(
        "events without a schema are forgotten with the server",
        "lmerge/service/output/merge_record.py",
        '            "bare_events": hub.has_bare_events or None,\n',
        '            "bare_events": None,\n',
        BARE,
    ),
    Defect(
        "events of an observer count as events without a schema",
        "lmerge/service/merge/hub.py",
        "if is_attached and inp.role is InputRole.ACTIVE and self",
        "if is_attached and self",
        BARE,
    ),
    Defect(
        "a reset leaves a merge without a schema for ever",
        "lmerge/service/output/pipeline.py",
        "        self.schema, self.has_bare_events = None, False\n",
        "        self.schema = None\n",
        "tests/service/calls/test_publish.py::test_after_a_reset_columns_can_be_declared_again",
    ),
    Defect(
        "a store with an invalid schema is opened",
        "lmerge/service/output/durable_merges.py",
        "    if spoilt is not None:\n",
        "    if False:\n",
        f"{RESET}::test_a_store_with_an_invalid_schema_stops_no_other_merge_and_is_mended",
    ),
    Defect(
        "a token of another epoch is accepted",
        "lmerge/service/output/pipeline.py",
        "        if subscriber.epoch not in (None, self.epoch):\n",
        "        if False:\n",
        f"{RESET}::test_tokens_of_another_epoch_are_refused_by_name",
    ),
    Defect(
        "a reset is not in the store",
        "lmerge/service/output/pipeline.py",
        "            self.release.changes.reset()\n",
        "            self.release.changes.take()\n",
        f"{RESET}::test_a_reset_outlives_the_server_and_so_does_that_nothing_is_left",
    ),
    Defect(
        "a fence that was forgotten exists again after a restart",
        "lmerge/service/output/store.py",
        '            run("DELETE FROM incarnation WHERE replica = ?", (replica,))\n',
        "",
        f"{RESET}::test_what_was_forgotten_stays_so_after_a_restart",
    ),
    Defect(
        "a reader merges servers of two epochs",
        "lmerge/client/subscribe/subscriber.py",
        "        if self.epoch == epoch:\n",
        "        if True:\n",
        f"{RESET}::test_a_reader_takes_servers_of_one_epoch_only",
    ),
    Defect(
        "bytes that are no message cause a traceback",
        "lmerge/service/security/guard.py",
        '        except DecodeError:\n            raise Undecodable(f"{method}',
        '        except KeyError:\n            raise Undecodable(f"{method}',
        f"{HOSTILE}::test_hostile_clients_harm_only_themselves[grpc-0]",
    ),
    Defect(
        "a new connection is closed and not one that waits",
        "lmerge/service/admin/http_connections.py",
        "        waiting = next((one for one in candidates if one.is_waiting and one is not newcomer), newcomer)\n",
        "        waiting = newcomer\n",
        f"{HTTP}::test_probes_answer_while_others_are_silent",
    ),
    Defect(
        "a connection that works is closed for a new one",
        "lmerge/service/admin/http_connections.py",
        "        self.is_waiting = False\n",
        "        self.is_waiting = True\n",
        f"{HTTP}::test_a_connection_at_work_is_not_closed_for_a_newcomer",
    ),
    Defect(
        "a header may take unlimited time",
        "lmerge/service/admin/http_connections.py",
        '        self._timer = loop.call_later(self._connections.header_timeout_s, self.close, "time")\n',
        '        self._timer = loop.call_later(3600.0, self.close, "time")\n',
        f"{HTTP}::test_a_header_that_does_not_come_ends_its_connection",
    ),
    Defect(
        "a page of metrics is made without a pause",
        "lmerge/service/admin/metrics_page.py",
        "_STEP_MERGES: Final = 4\n",
        "_STEP_MERGES: Final = 4096\n",
        f"{HTTP}::test_a_page_of_many_merges_holds_the_loop_only_for_steps",
    ),
    Defect(
        "a store is readable by all users",
        "lmerge/service/output/store.py",
        "                make_file(self.path)",
        "                self.path.touch()",
        f"{MODES}::test_what_a_server_writes",
    ),
    Defect(
        "a missing mark counts as a new one",
        "lmerge/service/output/store.py",
        '            self.mark_problem = "it is gone"\n',
        "            return\n",
        f"{MODES}::test_a_mark_that_was_lost_is_reported",
    ),
    Defect(
        "a name may end with a blank",
        "lmerge/wire/names.py",
        "    if name != name.strip():\n",
        "    if False:\n",
        f"{NAMES}::test_the_rule_is_as_documented",
    ),
    Defect(
        "a publisher of the library does not check names",
        "lmerge/client/publish/publisher.py",
        '        check_name("replica", replica)\n',
        "",
        f"{NAMES}::test_every_entry_has_the_one_rule",
    ),
    Defect(
        "a signal that a wait did not notice is not sent again",
        "lmerge/terminal.py",
        "            while not done.is_set():\n                signal.pthread_kill",
        "            if not done.is_set():\n                signal.pthread_kill",
        "tests/cli/test_streams.py::test_a_reader_that_goes_away_is_noticed_whatever_becomes_of_a_signal[lost]",
    ),
    Defect(
        "a background job does not notice that its reader has gone",
        "lmerge/terminal.py",
        "        if gone.is_set():\n            noticed.set()\n            raise KeyboardInterrupt\n",
        "        if gone.is_set():\n            noticed.set()\n",
        "tests/cli/test_streams.py::test_a_reader_that_goes_away_is_noticed_whatever_becomes_of_a_signal[ignored]",
    ),
    Defect(
        "text that rich lays out is not escaped",
        "lmerge/terminal.py",
        "                yield Segment(escaped(segment.text), segment.style)\n",
        "                yield segment\n",
        f"{TERMINAL}::test_no_view_of_a_merge_lets_a_control_character_through",
    ),
    Defect(
        "a port above 65535 is dialled",
        "lmerge/addresses.py",
        "    if int(match[3]) > PORT_MAX:\n",
        "    if False:\n",
        "tests/cli/test_streams.py::test_no_command_dials_an_address_that_is_none[status]",
    ),
    Defect(
        "a quiet stream does not notice that its reader has gone",
        "lmerge/terminal.py",
        'name="stdout", daemon=True).start()\n',
        'name="stdout", daemon=True)\n',
        "tests/cli/test_streams.py::test_a_reader_that_goes_away_ends_a_quiet_stream[subscribe]",
    ),
)
