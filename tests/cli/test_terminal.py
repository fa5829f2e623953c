"""The output of commands: no control character from outside reaches a terminal, and one module prints."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import lmerge.cli
from lmerge import terminal
from lmerge.cli import certify
from lmerge.cli.enveloped import as_columns, as_json, content
from lmerge.cli.query import QueryFormat, write
from lmerge.cli.status import merge_view, merges_table
from lmerge.core.session import format_row
from lmerge.service.log import JsonFormatter
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import RowCodec, row_formatter
from lmerge.wire.schema import Schema, parse_schema
from lmerge.wire.shown import STATUS_BYTES_MAX, escaped, escaped_json, escaped_line, status_text

FOLDER = Path(lmerge.cli.__file__).parent
# Names that an older server, or one of another kind, may hold: anything that protobuf carries.
ODD = st.sampled_from("a[]/:\\{}\x1b\x00\x07\x08\r\n\t\x7f\x9b\u202e\u2066\ufeff\u200b\u2028")
TEXTS = st.text(st.one_of(ODD, st.characters(exclude_categories=["Cs"])), max_size=12)
MARKUP = st.sampled_from(["[/]", "[red]x[/red]", "[link=http://x]y[/link]", ":smile:", "[bold", "\\[x]"])
HOSTILE = st.one_of(TEXTS, MARKUP, st.builds("".join, st.lists(st.one_of(TEXTS, MARKUP), max_size=3)))


def must_be_harmless(text: str) -> None:
    """Assert that ``text`` has no character that a terminal obeys but newlines."""
    wrong = sorted({character for character in text if not character.isprintable() and character != "\n"})
    assert wrong == [], repr(text)


def printed(monkeypatch: pytest.MonkeyPatch, *renderables: Any) -> str:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    console = Console(file=out, markup=False, emoji=False, highlight=False, width=200, color_system=None)
    for renderable in renderables:
        terminal.table(console, renderable)
    return out.getvalue()


@given(st.text())
def test_escaped_text_is_harmless_and_other_text_is_as_it_was(text: str) -> None:
    for shown in (escaped(text), escaped_line(text), escaped_json(text)):
        must_be_harmless(shown)
    assert "\n" not in escaped_line(text)
    if text.isprintable():
        assert escaped(text) == escaped_line(text) == escaped_json(text) == text


@given(st.recursive(st.one_of(st.none(), st.integers(), HOSTILE), lambda inner: st.lists(inner, max_size=3)))
def test_escaped_json_is_the_same_value(value: Any) -> None:
    assert json.loads(escaped_json(json.dumps(value, ensure_ascii=False))) == value


@given(st.text(max_size=6000))
def test_the_message_of_a_status_fits_the_limit_of_clients(text: str) -> None:
    message = status_text(text)
    must_be_harmless(message)
    assert len(quote(message, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}")) <= STATUS_BYTES_MAX  # as gRPC sends it


@given(st.lists(HOSTILE, min_size=12, max_size=12), st.binary(max_size=40))
def test_no_view_of_a_merge_lets_a_control_character_through(names: list[str], payload: bytes) -> None:
    described = pb.DescribeMergeResponse(
        summary=pb.MergeSummary(merge=names[0], algorithm=names[1]),
        algorithm_reason=names[2],
        policy=names[3],
        engine=names[4],
        store=names[5],
        divergence_policy=names[6],
        divergences=1,
        quarantined=names[7:9],
        gaps=1,
        switches=[names[9]],
        subscribers=[pb.SubscriberStatus(subscriber=names[10])],
        inputs=[pb.InputStatus(replica=names[11], state=names[1])],
        epoch=7,
        detached=[pb.DetachedInput(replica=names[2], reason=names[3])],
    )
    found = pb.CertifyMergeResponse(
        policy=names[0], interval=1, inputs=[pb.CertifyMergeResponse.InputReport(replica=names[1], words=names[2])]
    )
    interval = found.divergent.add(start=1, end=2, missing=names[3])
    interval.digests.add(replica=names[4], events=1)
    interval.differences.add(payload=payload, vs=1, ve=2, present=names[5:7], absent=names[7:9])
    with pytest.MonkeyPatch.context() as patch:
        text = printed(patch, merge_view(described, {names[11]: 1.0}), merges_table(names[0], [described.summary]))
        must_be_harmless(text)
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        certify.show(names[0], found, row_formatter(None))
        terminal.line(names[0])
        must_be_harmless(re.sub("\x1b\\[[0-9;]*m", "", out.getvalue()) if not any(names) else out.getvalue())


@given(HOSTILE, st.binary(max_size=30))
def test_no_line_of_a_stream_lets_a_control_character_through(text: str, payload: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        out, err = io.StringIO(), io.StringIO()
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        for data in (payload, text.encode()):
            line = {"op": "final", "vs": 1, "ve": 2} | content(data, None)
            terminal.json_lines(as_json([line]))
            terminal.lines(as_columns([line, {"op": "token", "token": text}]))
            terminal.json_lines(format_row((0, 1, 2, 0, data)) + "\n")
        terminal.lines(as_columns([{"op": "final", "vs": 1, "ve": 2, "row": {text: text}}]))
        terminal.error(text)
        terminal.JsonError().write(json.dumps({"reason": text}, ensure_ascii=False))
        must_be_harmless(out.getvalue())
        must_be_harmless(err.getvalue())


@pytest.mark.parametrize("output", QueryFormat)
def test_an_answer_is_escaped_for_a_terminal(output: QueryFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "dumb")
    write(pyarrow.table({"a\x1b[31m": ["x\x9b2J[red]\u202e"]}), output, "1 row")
    must_be_harmless(out.getvalue())
    assert "x" in out.getvalue()


def test_rows_are_shown_as_rows_where_there_is_a_schema() -> None:
    schema = parse_schema({"carrier": "string", "delay": "int?"})
    payload = RowCodec(schema).encode({"carrier": "UA", "delay": 7})
    text_of = row_formatter(schema.to_message())
    assert text_of(payload) == "carrier=UA, delay=7"
    assert text_of(b"UA") == "UA"  # no row of this schema: as it is
    assert row_formatter(None)(b"\xff") == "b'\\xff'"
    assert row_formatter(pb.Schema())(b"UA") == "UA"
    assert len(row_formatter(schema.to_message())(RowCodec(schema).encode({"carrier": "x" * 999}))) < 250
    assert isinstance(schema, Schema)


def test_a_log_for_machines_is_harmless_too() -> None:
    import logging

    record = logging.LogRecord("x", logging.INFO, "", 0, "", (), None)
    record.event, record.fields = "input attached", {"input": "a\x9b31m\u202e"}
    text = JsonFormatter().format(record)
    must_be_harmless(text)
    assert json.loads(text)["input"] == "a\x9b31m\u202e"


PRINTING = [path for path in sorted(FOLDER.glob("*.py")) if path.name != "terminal.py"]
PRINTING += sorted((FOLDER.parent / "demo").glob("*.py"))


@pytest.mark.parametrize("path", PRINTING, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_one_module_of_the_commands_prints(path: Path) -> None:
    found = re.findall(
        r"typer\.echo|click\.echo|sys\.std(?:out|err)\.(?:buffer\.)?write|[^.\w]Console\(|\bprint\(", path.read_text()
    )
    assert found == []
