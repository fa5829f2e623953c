"""Defects of the native transport: ``native/transport/src``. The tests are the unit tests of its modules."""

from seeded import Defect

SOURCE = "native/transport/src/"

DEFECTS = (
    Defect(
        "a reader that does not wait is woken",
        SOURCE + "call.rs",
        "        if std::mem::take(&mut state.messages.waits) {\n",
        "        state.messages.waits = false;\n        {\n",
        "call::tests::a_reader_is_woken_once_and_only_if_it_waits",
    ),
    Defect(
        "messages of a peer are read ahead without a bound",
        SOURCE + "queues.rs",
        "self.messages.len() >= MESSAGES_AHEAD",
        "false",
        "call::tests::no_more_than_two_messages_are_read_ahead",
    ),
    Defect(
        "answers are read ahead without a bound",
        SOURCE + "queues.rs",
        "self.messages.len() >= MESSAGES_AHEAD",
        "false",
        "client_call::tests::no_more_than_two_answers_are_read_ahead",
    ),
    Defect(
        "a writer never waits for the socket",
        SOURCE + "queues.rs",
        "self.messages.len() > 1 && self.bytes > BYTES_AHEAD",
        "false",
        "call::tests::a_writer_waits_while_the_socket_takes_nothing",
    ),
    Defect(
        "a single large message makes its writer wait",
        SOURCE + "queues.rs",
        "self.messages.len() > 1 && self.bytes",
        "self.bytes",
        "client_call::tests::a_writer_waits_while_the_socket_takes_nothing",
    ),
    Defect(
        "a writer that waits is not woken when there is room",
        SOURCE + "queues.rs",
        "let is_due = self.waits && !self.is_over_limit();",
        "let is_due = false;",
        "call::tests::a_writer_waits_while_the_socket_takes_nothing",
    ),
    Defect(
        "the last end of a call counts",
        SOURCE + "call.rs",
        "        if state.status.is_none() {\n            state.status = Some(status);",
        "        {\n            state.status = Some(status);",
        "call::tests::the_status_comes_behind_the_answers_and_only_the_first_counts",
    ),
    Defect(
        "a peer goes twice",
        SOURCE + "call.rs",
        "        if !state.is_gone {\n",
        "        {\n",
        "call::tests::a_peer_that_has_gone_ends_reads_and_writes",
    ),
    Defect(
        "a request is taken behind the end of the requests",
        SOURCE + "client_call.rs",
        "if state.status.is_some() || state.has_ended_requests {\n            return Write::Gone;",
        "if state.status.is_some() {\n            return Write::Gone;",
        "client_call::tests::the_requests_end_behind_those_that_were_written",
    ),
    Defect(
        "the last status of a client's call counts",
        SOURCE + "client_call.rs",
        "        if state.status.is_none() {\n            self.end_with(&mut state, status);",
        "        {\n            self.end_with(&mut state, status);",
        "client_call::tests::the_status_comes_behind_the_answers_and_only_the_first_counts",
    ),
    Defect(
        "answers that come behind a cancellation are read",
        SOURCE + "client_call.rs",
        "                return;\n            }\n            state.answers.push(answer);",
        "            }\n            state.answers.push(answer);",
        "client_call::tests::a_cancelled_call_drops_what_was_not_read_and_takes_no_more",
    ),
    Defect(
        "a server of HTTP/1 is not recognised",
        SOURCE + "channel.rs",
        'first.starts_with(b"HTTP/1")',
        'first.starts_with(b"HTTP/2")',
        "channel::tests::what_a_peer_has_sent_first_shows_why_a_connection_has_ended",
    ),
    Defect(
        "the source of an error is shown again",
        SOURCE + "channel.rs",
        "        if !text.contains(&next) {\n",
        "        {\n",
        "channel::tests::an_error_is_shown_with_its_sources_once",
    ),
    Defect(
        "each call that waits for a connection makes an attempt of its own",
        SOURCE + "channel.rs",
        "if self.attempts.load(Ordering::Acquire) != before {",
        "if self.attempts.load(Ordering::Acquire) < before {",
        "channel::tests::calls_that_wait_for_one_attempt_share_its_reason",
    ),
)
