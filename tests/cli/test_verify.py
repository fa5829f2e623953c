"""`lmerge verify`: what it prints and with which code it ends, from the command line."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_world import run
from typer.testing import CliRunner, Result

from lmerge.cli.main import app
from lmerge.errors import MalformedLine, UsageError
from lmerge.wire.rows import RowCodec

INSERT = '{"op":"insert","payload":"A","vs":1,"ve":5}'
ADJUST = '{"op":"adjust","payload":"A","vs":1,"vold":5,"ve":7}'
STABLE = '{"op":"stable","vc":6}'
END = '{"op":"stable","vc":"inf"}'
LATE = '{"op":"insert","payload":"late","vs":5,"ve":9}'

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a file of lines in the working folder, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def written(name: str, *lines: str) -> str:
        Path(name).write_text("".join(line + "\n" for line in lines))
        return name

    return written


def verify(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments], input=text)


def refusal(*arguments: str, text: str | None = None) -> str:
    """Return the message of a command that is refused."""
    result = verify(*arguments, text=text)
    assert isinstance(result.exception, UsageError), result.output
    assert result.stdout == ""
    return str(result.exception)


def test_a_legal_stream_is_summed_up_in_a_line(write: Write) -> None:
    name = write("a.jsonl", INSERT, ADJUST, STABLE, END)
    result = verify(name)
    assert (result.exit_code, result.stdout) == (
        0, "a.jsonl: legal; 1 insert, 1 adjust, 2 stables, stable(inf), 1 event\n"
    )  # fmt: skip


def test_numbers_have_the_right_noun(write: Write) -> None:
    assert verify(write("a.jsonl", INSERT, LATE)).stdout == (
        "a.jsonl: legal; 2 inserts, 0 adjusts, 0 stables, no stable point, 2 events\n"
    )
    assert verify(write("a.jsonl", STABLE)).stdout == (
        "a.jsonl: legal; 0 inserts, 0 adjusts, 1 stable, stable(6), 0 events\n"
    )


def test_an_empty_file_is_a_legal_stream_without_elements(write: Write) -> None:
    assert (verify(write("a.jsonl")).exit_code, verify("a.jsonl").stdout) == (0, "a.jsonl: legal; no elements\n")
    result = verify("a.jsonl", "--must-end")
    assert result.exit_code == 1
    assert result.stdout == (
        "a.jsonl: NOT legal, 1 fault; no elements\n"
        "  at the end: no element [not-ended]: promised to end with stable(inf), but nothing came after it\n"
    )


def test_faults_are_explained_by_line(write: Write) -> None:
    result = verify(write("a.jsonl", "", INSERT, STABLE, LATE, ADJUST))
    assert result.exit_code == 1
    assert result.stdout == (
        "a.jsonl: NOT legal, 2 faults; 2 inserts, 1 adjust, 1 stable, stable(6), 2 events\n"
        "  line 4: insert(late, 5, 9) [insert-below-stable]: promised no insert below its own stable(6), but Vs is 5"
        " (the stable is in line 3)\n"
        "  line 5: adjust(A, 1, 5, 7) [adjust-below-stable]: promised no adjust with Vold or Ve below its own "
        "stable(6), but Vold is 5 and Ve is 7 (the stable is in line 3)\n"
    )


def test_of_many_faults_the_first_twenty_are_shown(write: Write) -> None:
    result = verify(write("a.jsonl", STABLE, *[LATE] * 23))
    assert result.stdout.startswith("a.jsonl: NOT legal, 23 faults;")
    assert len(result.stdout.splitlines()) == 22
    assert result.stdout.endswith("\n  ... and 3 more\n")


def test_properties_are_judged_and_shown(write: Write) -> None:
    name = write("a.jsonl", INSERT, ADJUST)
    result = verify(name, "--property", "insert-only", "--property", "key")
    assert result.exit_code == 1
    assert "; promises NOT insert-only, key\n" in result.stdout
    assert "[adjust-not-promised]" in result.stdout
    assert verify(name, "--property", "key").exit_code == 0
    assert "rder" in refusal(name, "--property", "sorted")


def test_must_end(write: Write) -> None:
    assert verify(write("a.jsonl", INSERT, END), "--must-end").exit_code == 0
    result = verify(write("b.jsonl", INSERT, STABLE), "--must-end")
    assert result.exit_code == 1
    assert "  line 2: stable(6) [not-ended]: promised to end with stable(inf), but nothing came" in result.stdout
    assert verify("b.jsonl").exit_code == 0


def test_of_a_session_each_attach_is_judged_by_what_it_declares(write: Write) -> None:
    lines = [
        '{"op":"attach","input":"a","properties":["insert-only"]}',
        *(line.replace(',"', ',"input":"a","', 1) for line in (INSERT, ADJUST)),
        '{"op":"attach","input":"stream"}',
        END.replace(',"', ',"input":"stream","', 1),
        '{"op":"attach","input":"a"}',
        END.replace(',"', ',"input":"a","', 1),
    ]
    name = write("s.jsonl", *lines)
    result = verify(name, "--must-end")
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line[0] != " "] == [
        "a, incarnation 1", "a, incarnation 2", "stream"
    ]  # fmt: skip
    assert result.stdout.count("[") == 1, "an incarnation that is replaced need not end"
    assert result.exit_code == 1
    chosen = verify(name, "--input", "stream")
    assert (chosen.exit_code, chosen.stdout.split(":")[0]) == (0, "stream")
    both = verify(name, write("t.jsonl", INSERT))
    assert "s.jsonl, input stream: legal" in both.stdout
    assert "\nt.jsonl: legal" in both.stdout
    assert refusal(name, "--input", "x") == "there is no input 'x'; the inputs are 'a', 'stream' (in s.jsonl)"
    assert "no inputs (in t.jsonl)" in refusal("t.jsonl", "--input", "a")


# Tables.


def test_streams_of_the_same_table(write: Write) -> None:
    one, other = write("a.jsonl", INSERT, ADJUST, END), write("b.jsonl", INSERT.replace("5", "7"), END)
    result = verify(one, other, "--same-table")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "a.jsonl and b.jsonl: the same table up to inf"


def test_streams_of_other_tables_are_shown_event_by_event(write: Write) -> None:
    one = write("a.jsonl", INSERT, INSERT, STABLE)
    other = write("b.jsonl", INSERT.replace("5", '"inf"'), END)
    third = write("c.jsonl", INSERT)
    result = verify(one, other, third, "--same-table")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-4:] == [
        "a.jsonl and b.jsonl: DIFFERENT up to 6, 2 events",
        "  A from 1 that ends at 5: 2 times in a.jsonl, 0 times in b.jsonl",
        "  A from 1 that goes on at 6: 0 times in a.jsonl, 1 time in b.jsonl",
        "a.jsonl and c.jsonl: nothing to compare, because one has no stable point",
    ]
    assert verify(one, other).exit_code == 0


def test_many_differences_are_counted(write: Write) -> None:
    inserts = [INSERT.replace('"vs":1,"ve":5', f'"vs":{at},"ve":{at + 1}') for at in range(30)]
    result = verify(write("a.jsonl", *inserts, END), write("b.jsonl", END), "--same-table")
    assert ": DIFFERENT up to inf, 30 events\n" in result.stdout
    assert result.stdout.endswith("\n  ... and 10 more\n")


def test_a_stream_that_joined_late_is_compared_from_there(write: Write) -> None:
    session = ['{"op":"attach","input":"a","join_at":10}', '{"op":"stable","input":"a","vc":6}']
    result = verify(write("a.jsonl", INSERT.replace("5", '"inf"'), STABLE), write("s.jsonl", *session), "--same-table")
    assert result.exit_code == 0
    assert result.stdout.endswith(
        "a.jsonl and s.jsonl, input a: nothing to compare, because one is right from 10 on, and they are stable up to"
        " 6\n"
    )


def test_one_stream_is_not_compared(write: Write) -> None:
    name = write("a.jsonl", INSERT)
    assert refusal(name, "--same-table") == "--same-table compares streams, and there is only 'a.jsonl'"


# Shapes.


def test_points(write: Write) -> None:
    result = verify(write("a.jsonl", INSERT), "--shape", "point")
    assert result.exit_code == 1
    assert "  line 1: insert(A, 1, 5) [no-point]: promised points (Ve = Vs + 1), but the event lasts until 5\n" in (
        result.stdout
    )


def test_edges(write: Write) -> None:
    schema = '{"k":"int","v":"int"}'
    codec = RowCodec(json.loads(schema))
    encoded = [codec.encode({"k": 1, "v": v}) for v in (1, 2)]
    lines = [line_of(encoded[0], 1, 3), line_of(encoded[1], 4, "inf")]
    result = verify(write("a.jsonl", *lines), "--shape", "edge", "--schema", schema, "--key", "k")
    assert result.exit_code == 1
    assert "[no-edge]: promised edges by k (" in result.stdout
    assert "but the event lasts until 3, the next one starts at 4\n" in result.stdout
    lines[0] = line_of(encoded[0], 1, 4)
    assert verify(write("a.jsonl", *lines), "--shape", "edge", "--schema", schema, "--key", "k").exit_code == 0
    assert "a.jsonl, line 1: the payload is" in refusal(
        write("a.jsonl", INSERT), "--shape", "edge", "--schema", schema, "--key", "k"
    )


def line_of(payload: bytes, vs: int, ve: int | str) -> str:
    return json.dumps({"op": "insert", "payload": {"b64": b64encode(payload).decode()}, "vs": vs, "ve": ve})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--shape", "edge"], "--shape edge needs --schema and --key"),
        (["--shape", "edge", "--key", "k"], "--shape edge needs --schema and --key"),
        (["--shape", "edge", "--schema", "{}"], "--shape edge needs --schema and --key"),
        (["--shape", "edge", "--schema", "{", "--key", "k"], "--schema is not JSON: "),
        (["--shape", "edge", "--schema", '{"k":"int"}', "--key", "z"], "no column 'z'; the columns are k"),
        (["--shape", "edge", "--schema", '{"k":"number"}', "--key", "k"], "number"),
        (["--shape", "point", "--key", "k"], "--schema and --key are for --shape edge, and the shape is point"),
        (["--schema", "{}"], "--schema and --key are for --shape edge, and the shape is interval"),
    ],
)
def test_options_that_do_not_fit(options: list[str], problem: str, write: Write) -> None:
    assert problem in refusal(write("a.jsonl", INSERT), *options)


# Files.


def test_a_file_that_is_given_twice_is_refused(write: Write) -> None:
    name = write("a.jsonl", INSERT)
    assert refusal(name, name) == "a.jsonl is given twice"
    assert refusal("-", name, "-", text="") == "standard input is given twice"


def test_a_malformed_line_is_named_with_its_file(write: Write) -> None:
    result = verify(write("a.jsonl", INSERT), write("b.jsonl", INSERT, "x"))
    assert isinstance(result.exception, MalformedLine)
    assert str(result.exception) == "line 2: not JSON: Expecting value at column 1 (in b.jsonl)"
    assert result.exception.line == 2
    assert "nothing.jsonl" in refusal("nothing.jsonl")


def test_the_program_reads_standard_input_and_ends_with_the_code_of_what_it_found(write: Write) -> None:
    assert run("verify", "-", text=INSERT).stdout.startswith("standard input: legal; 1 insert,")
    found = run("verify", "-", text=f"{STABLE}\n{LATE}\n")
    assert (found.returncode, found.stderr) == (1, "")
    malformed = run("verify", "-", text="x")
    assert (malformed.returncode, malformed.stdout) == (2, "")
    assert malformed.stderr == "lmerge: line 1: not JSON: Expecting value at column 1 (in standard input)\n"
    assert run("verify").returncode == 2
    assert run("verify", "-", "--shape", "square").returncode == 2


def test_a_missing_extra_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write("a.jsonl", INSERT)
    for module in ("duckdb", "pyarrow"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            assert refusal(name).startswith(
                "lmerge verify needs the extra 'testing': pip install 'lmerge[testing]'"
            )  # fmt: skip


# JSON.


def as_json(*arguments: str) -> Any:
    lines = verify(*arguments, "--json").stdout.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def test_json_has_every_verdict(write: Write) -> None:
    one = write("a.jsonl", INSERT, STABLE, LATE)
    verdicts = as_json(one, write("b.jsonl", INSERT, END), write("c.jsonl"), "--property", "key")["streams"]
    assert [verdict["name"] for verdict in verdicts] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert [verdict["stable_point"] for verdict in verdicts] == [6, "inf", "-inf"]
    assert [verdict["is_legal"] for verdict in verdicts] == [False, True, True]
    assert verdicts[0] == {
        "name": "a.jsonl",
        "inserts": 2,
        "adjusts": 0,
        "stables": 1,
        "stable_point": 6,
        "events": 2,
        "promises": {"key": True},
        "fault_count": 1,
        "faults": [
            {
                "place": 3,
                "code": "insert-below-stable",
                "element": "insert(late, 5, 9)",
                "promised": "no insert below its own stable(6)",
                "came": "Vs is 5",
                "because": 2,
            }
        ],
        "is_legal": False,
    }
    assert verify(one, "--json").exit_code == 1


def test_json_has_every_comparison(write: Write) -> None:
    one, other = write("a.jsonl", INSERT, INSERT, STABLE), write("b.jsonl", INSERT.replace("5", '"inf"'), END)
    (comparison,) = as_json(one, other, "--same-table")["comparisons"]
    assert comparison == {
        "one": "a.jsonl",
        "other": "b.jsonl",
        "at": 6,
        "since": "-inf",
        "count": 2,
        "differences": [
            {"payload": "A", "vs": 1, "ve": 5, "copies": 2, "other_copies": 0},
            {"payload": "A", "vs": 1, "ve": None, "copies": 0, "other_copies": 1},
        ],
    }
    assert as_json(one, other)["comparisons"] == []


def test_text_from_outside_is_escaped(write: Write) -> None:
    result = verify(write("a.jsonl", STABLE, LATE.replace("late", "\\u001b[31m")))
    assert "\x1b" not in result.stdout
    assert "[insert-below-stable]" in result.stdout
