"""The session format: what is read, what is written, what is refused and with which message."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge.core.batch import Row
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.core.inputs import InputRole
from lmerge.core.session import (
    AdmitLine,
    AttachLine,
    DetachLine,
    ElementLine,
    format_admit,
    format_attach,
    format_detach,
    format_event,
    format_row,
    parse_line,
)
from lmerge.errors import MalformedLine

pytestmark = pytest.mark.python_engine  # no merge here

times = st.integers(NEG_INF, INF)
payloads = st.one_of(st.binary(max_size=20), st.text(max_size=10).map(lambda t: t.encode("utf-8", "surrogatepass")))
rows = st.one_of(
    st.tuples(st.just(INSERT), times, times, st.just(0), payloads),
    st.tuples(st.just(ADJUST), times, times, times, payloads),
    st.tuples(st.just(STABLE), times, st.just(0), st.just(0), st.just(b"")),
)


@given(rows, st.one_of(st.none(), st.text(st.characters(codec="utf-8"), min_size=1)))
def test_what_is_written_is_read_back(row: Row, name: str | None) -> None:
    assert parse_line(format_row(row, name), 1) == ElementLine(name, row)


def test_the_lines_are_those_of_the_design() -> None:
    assert format_row((INSERT, 6, 7, 0, b"A")) == '{"op":"insert","payload":"A","vs":6,"ve":7}'
    assert format_row((ADJUST, 6, 12, 7, b"A"), "a") == (
        '{"op":"adjust","input":"a","payload":"A","vs":6,"vold":7,"ve":12}'
    )
    assert format_row((STABLE, INF, 0, 0, b"")) == '{"op":"stable","vc":"inf"}'
    assert format_row((INSERT, NEG_INF, INF, 0, b"\xff")) == (
        '{"op":"insert","payload":{"b64":"/w=="},"vs":"-inf","ve":"inf"}'
    )
    assert format_event(1, b"A", 2) == '{"payload":"A","vs":1,"ve":2}'
    attach = '{"op":"attach","input":"a","properties":["insert-only","ordered"],"join_at":null,"role":"active"}'
    assert format_attach("a", ("ordered", "insert-only")) == attach
    assert parse_line(attach, 1) == AttachLine("a", frozenset({"insert-only", "ordered"}), None, InputRole.ACTIVE)
    assert parse_line(format_detach("a"), 1) == DetachLine("a")
    assert format_admit('"a"') == '{"op":"admit","input":"\\"a\\""}'
    assert parse_line(format_admit("a"), 1) == AdmitLine("a")


def test_short_attach_lines_and_blank_lines_are_read() -> None:
    assert parse_line('{"op":"attach","input":"a"}', 1) == AttachLine("a", frozenset(), None, InputRole.ACTIVE)
    joining = parse_line('{"op":"attach","input":"a","join_at":"-inf"}', 1)
    assert joining == AttachLine("a", frozenset(), NEG_INF, InputRole.ACTIVE)
    assert parse_line("  \n", 1) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ("3", "must be a JSON object"),
        ('{"op":"go"}', '"op" must be one of'),
        ("{}", '"op" must be one of'),
        ('{"op":"stable"}', 'needs "vc"'),
        ('{"op":"stable","vc":1,"ve":2}', 'unknown key "ve"'),
        ('{"op":"stable","vc":1.0}', "whole number"),
        ('{"op":"stable","vc":true}', "whole number"),
        ('{"op":"stable","vc":null}', "whole number"),
        ('{"op":"stable","vc":"INF"}', "whole number"),
        ('{"op":"stable","vc":9223372036854775808}', "out of the 64-bit range"),
        ('{"op":"stable","vc":1,"vc":2}', "there twice"),
        ('{"op":"insert","vs":1,"ve":2}', 'needs "payload"'),
        ('{"op":"insert","payload":5,"vs":1,"ve":2}', '"payload" must be a string'),
        ('{"op":"insert","payload":{"b64":"?"},"vs":1,"ve":2}', "not base64"),
        ('{"op":"insert","payload":{"b64":"AA==","x":1},"vs":1,"ve":2}', '"payload" must be a string'),
        ('{"op":"insert","payload":"\\ud800","vs":1,"ve":2}', "surrogate"),
        ('{"op":"adjust","payload":"A","vs":1,"ve":2}', 'needs "vold"'),
        ('{"op":"attach"}', 'needs "input"'),
        ('{"op":"attach","input":""}', "must be a name"),
        ('{"op":"attach","input":7}', "must be a name"),
        ('{"op":"attach","input":"a","properties":"key"}', "list of strings"),
        ('{"op":"attach","input":"a","properties":["fast"]}', "unknown property 'fast'"),
        ('{"op":"attach","input":"a","role":"boss"}', '"role" must be'),
        ('{"op":"attach","input":"a","join_at":1.5}', "whole number"),
        ('{"op":"detach","input":"a","why":1}', 'unknown key "why"'),
        ('{"op":"admit"}', 'needs "input"'),
        ('{"op":"admit","input":"a","join_at":3}', 'unknown key "join_at"'),
        ("[" * 100_000, "nested too deeply"),
        ('{"op":"stable","vc":' + "9" * 5000 + "}", "line 7"),
    ],
)
def test_a_malformed_line_is_named_with_its_problem(text: str, problem: str) -> None:
    with pytest.raises(MalformedLine) as caught:
        parse_line(text, 7)
    assert str(caught.value).startswith("line 7: ")
    assert problem in str(caught.value)
    assert caught.value.line == 7


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(st.sampled_from(["op", "input", "payload", "vs", "ve", "vold", "vc", "b64"]), s)
        ),
    )
)
def test_any_bytes_are_read_or_refused(item: object) -> None:
    with suppress(MalformedLine):
        parse_line(json.dumps(item), 1)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(MalformedLine, match="line 2: not UTF-8"):
        parse_line(b'{"op":"stable","vc":\xff}', 2)
