"""Reading recorded streams: what the definition of the format reads, in blocks and out of order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from validation_world import corrupted, lines_of, read, rows_of

from lmerge.core.elements import INF, NEG_INF, Insert, Stable
from lmerge.core.session import ElementLine, parse_line
from lmerge.errors import MalformedLine, UsageError
from lmerge.testing.streams.merge_inputs import present, reference
from lmerge.testing.validation import recorded_lines
from lmerge.testing.validation.element_table import RecordedStream, stream_of

INSERT = '{"op":"insert","payload":"A","vs":1,"ve":5}'
ATTACH = '{"op":"attach","input":"%s"}'
STABLE = '{"op":"stable","input":"%s","vc":%d}'


def rows_by_definition(text: bytes) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        item = parse_line(line, number)
        if isinstance(item, ElementLine):
            kind, vs, ve, vold, payload = item.row
            rows.append((number, kind, payload, vs, vold, ve))
    return rows


def some_lines(seed: int, count: int = 40) -> bytes:
    random = Random(seed)
    stream = present(random, reference(random, count, duplicates=True))
    return lines_of(
        [*corrupted(random, stream, 20), Insert(b"", NEG_INF, INF), Insert("\u00e9\U0001f600".encode(), 0, 1)]
    )


def spelled(random: Random, line: str) -> str:
    """Return a line with the same meaning: spaces, escapes, another order of keys, base64, another end of line."""
    item: dict[str, Any] = json.loads(line)
    if random.random() < 0.3:
        item = dict(random.sample(list(item.items()), len(item)))
    apart = random.choice(((",", ":"), (", ", ": "), (" ,\t", " : ")))
    text = json.dumps(item, ensure_ascii=random.random() < 0.5, separators=apart)
    if random.random() < 0.2:
        text = text.replace('"A"', '"\\u0041"')
    return text + random.choice(("", "", "\r", " ", "\n"))


@pytest.mark.parametrize("seed", range(8))
def test_other_spellings_of_a_line_are_the_same_element(seed: int) -> None:
    random = Random(seed)
    plain = some_lines(seed).decode()
    other = "\n".join(spelled(random, line) for line in plain.splitlines()).encode()
    (stream,) = read(other)
    assert rows_of(stream) == rows_by_definition(other)
    assert [row[1:] for row in rows_of(stream)] == [row[1:] for row in rows_of(read(plain)[0])]


def test_lines_that_lmerge_writes_need_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    text = some_lines(1)
    expected = rows_by_definition(text)

    def refuse(line: bytes, number: int) -> None:
        raise AssertionError(f"line {number} was parsed: {line!r}")

    monkeypatch.setattr(recorded_lines, "parse_line", refuse)
    assert rows_of(read(text)[0]) == expected
    assert rows_of(read(text.replace(b"\n", b"\r\n"))[0]) == expected


@pytest.mark.parametrize(
    "text",
    [
        f'{{"op":"insert","payload":"A","vs":{NEG_INF + 1},"ve":{INF - 1}}}',
        f'{{"op":"insert","payload":"A","vs":{NEG_INF},"ve":{INF}}}',
        '{"op":"insert","payload":"A","vs":"-inf","ve":"inf"}',
        '{"op":"adjust","payload":"A","vs":0,"vold":"inf","ve":-0}',
        '{"op":"adjust","payload":"A","vs":-1,"vold":"-inf","ve":999999999999999999}',
        '{"op":"adjust","payload":"A","vs":1,"vold":1000000000000000000,"ve":"inf"}',
        '{"op":"stable","vc":"inf"}',
        '{"op":"stable","vc":"-inf"}',
        '{"op":"insert","payload":"","vs":1,"ve":2}',
        '{"op":"insert","payload":"a,\\"ve\\":7","vs":1,"ve":2}',
        '{"op":"adjust","payload":"x,ve:3","vs":1,"vold":3,"ve":2}',
        '{"op":"insert","payload":"\u2028\u00e9\x7f","vs":1,"ve":2}',
        '{"op":"insert","payload":{"b64":"/w=="},"vs":1,"ve":2}',
        '{"op":"insert","payload":"vold","vs":1,"ve":2}',
    ],
)
def test_lines_at_the_limits_of_the_format(text: str) -> None:
    assert rows_of(read(text)[0]) == rows_by_definition(text.encode())
    between = f"{INSERT}\n{text}\n{INSERT}\n"
    assert rows_of(read(between)[0]) == rows_by_definition(between.encode())


MALFORMED = [
    "nonsense",
    '{"op":"insert","payload":"A","vs":1}',
    '{"op":"insert","payload":"A","vs":1,"vold":2,"ve":5}',
    '{"op":"insert","ve":5}',
    '{"op":"adjust","payload":"A","vs":1,"ve":5}',
    '{"op":"adjust","payload":"A","vs":1,"vc":5}',
    '{"op":"stable","ve":5}',
    '{"op":"stable","payload":"A","vs":1,"vc":5}',
    '{"op":"stable","payload":"A","vs":1,"ve":5}',
    '{"op":"stable","vc":05}',
    '{"op":"stable","vc":5.0}',
    '{"op":"stable","vc":-}',
    '{"op":"stable","vc":9223372036854775808}',
    '{"op":"stable","vc":"+inf"}',
    '{"op":"stable","vc":"-Inf"}',
    '{"op":"stable","vc":true}',
    '{"op":"stable","vc":5}}',
    '{"op":"stable","vc":5} {"op":"stable","vc":6}',
    '{"op":"stable","input":"","vc":5}',
    '{"op":"stable","vc":5,"vc":6}',
    '{"op":"ensure","vc":5}',
    '{"op":"insert","payload":"\t","vs":1,"ve":5}',
    '{"op":"insert","payload":"\\ud800","vs":1,"ve":5}',
    '{"op":"insert","payload":{"b64":"!"},"vs":1,"ve":5}',
    '["op"]',
]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_line_has_the_error_of_the_definition(text: str) -> None:
    with pytest.raises(MalformedLine) as defined:
        parse_line(text, 3)
    with pytest.raises(MalformedLine) as refused:
        read(f"{INSERT}\n\n{text}\n{INSERT}\nworse\n")
    assert str(refused.value) == str(defined.value)


def test_bytes_that_are_not_utf_8_have_the_error_of_the_definition() -> None:
    for text in (b'{"op":"insert","payload":"\xff","vs":1,"ve":5}', b'{"op":"insert","payload":"\xc3","vs":1,"ve":5}'):
        with pytest.raises(MalformedLine, match="line 2: not UTF-8"):
            read(INSERT.encode() + b"\n" + text + b"\n" + INSERT.encode())


def outcome(reader: Callable[[bytes], list[tuple[object, ...]]], text: bytes) -> list[tuple[object, ...]] | str:
    try:
        return reader(text)
    except MalformedLine as problem:
        return str(problem)


@pytest.mark.parametrize("seed", range(4))
def test_lines_with_random_bytes_changed_are_read_or_refused_as_by_the_definition(seed: int) -> None:
    random = Random(seed)
    lines = some_lines(seed).splitlines()
    refused = 0
    for _ in range(400):
        line = bytearray(random.choice(lines))
        for _ in range(random.randint(1, 2)):
            line[random.randrange(len(line))] = random.choice(b'0123456789-"\\,:{}[] \r\x00\x7f\xc3\xa9einfvoldcsap')
        expected, found = (
            outcome(rows_by_definition, bytes(line)),
            outcome(lambda text: rows_of(read(text)[0]), bytes(line)),
        )
        assert found == expected
        refused += isinstance(expected, str)
    assert 100 < refused < 400


@pytest.mark.parametrize("block_bytes", [1, 7, 45, 100, 1000])
def test_blocks_end_anywhere(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = some_lines(3) + b'\n\r\n{"op" :"stable","vc":7}\n' + some_lines(4)
    expected = rows_by_definition(text)
    monkeypatch.setattr(recorded_lines, "BLOCK_BYTES", block_bytes)
    assert rows_of(read(text)[0]) == expected
    assert rows_of(read(text.removesuffix(b"\n"))[0]) == expected
    number = text.count(b"\n") + 1
    with pytest.raises(MalformedLine, match=f"^line {number}: not JSON"):
        read(text + b"x")


def test_of_two_malformed_lines_the_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_lines, "BLOCK_BYTES", 1)
    monkeypatch.setattr(recorded_lines, "LINE_BYTES_MAX", 60)
    long = '{"op":"insert","payload":"%s","vs":1,"ve":5}' % ("A" * 60)
    with pytest.raises(MalformedLine, match=r"^line 2: not JSON"):
        read(f"{INSERT}\nx\n{long}")
    with pytest.raises(MalformedLine, match=r"^line 3: longer than 60 bytes"):
        read(f"{INSERT}\n\n{long}\nx")


def test_a_line_may_be_as_long_as_the_limit_with_its_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_lines, "LINE_BYTES_MAX", len(INSERT) + 1)
    for block_bytes in (5, len(INSERT), len(INSERT) + 1, len(INSERT) + 2):
        monkeypatch.setattr(recorded_lines, "BLOCK_BYTES", block_bytes)
        assert len(read(f"{INSERT}\n{INSERT}\n")[0].elements) == 2
    monkeypatch.setattr(recorded_lines, "BLOCK_BYTES", 5)
    monkeypatch.setattr(recorded_lines, "LINE_BYTES_MAX", len(INSERT))
    with pytest.raises(MalformedLine, match=r"^line 1: longer"):
        read(f"{INSERT}\n")


@pytest.mark.parametrize("text", ["", "\n", "\r\n \n"])
def test_a_file_without_lines_is_one_empty_stream(text: str) -> None:
    (stream,) = read(text)
    assert (stream.name, stream.elements.num_rows, stream.promises) == ("", 0, frozenset())


# Sessions.


def session(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


def shown(streams: Iterable[RecordedStream]) -> list[tuple[str, list[int]]]:
    return [(stream.name, stream.elements["place"].to_pylist()) for stream in streams]


def test_a_session_has_a_stream_for_each_attach() -> None:
    text = session(
        '{"op":"attach","input":"b","properties":["key"],"join_at":7}',
        ATTACH % "a",
        STABLE % ("a", 1),
        STABLE % ("b", 2),
        '{"op":"attach","input":"a","properties":["strictly-ordered"],"join_at":"-inf","role":"observe"}',
        STABLE % ("a", 3),
        '{"op":"admit","input":"b"}',
        '{"op":"excuse","input":"b"}',
        '{"op":"detach","input":"b"}',
        ATTACH % "a",
        STABLE % ("a", 1),
        STABLE % ("a", 2),
    )
    streams = read(text)
    assert shown(streams) == [
        ("b", [4]), ("a, incarnation 1", [3]), ("a, incarnation 2", [6]), ("a, incarnation 3", [11, 12])
    ]  # fmt: skip
    assert [stream.promises for stream in streams][:3] == [{"key"}, frozenset(), {"strictly-ordered"}]
    assert [stream.join_at for stream in streams] == [7, NEG_INF, NEG_INF, NEG_INF]
    assert [stream.is_replaced for stream in streams] == [False, True, True, False]
    assert shown(read(text, "b")) == [("b", [4])]
    with pytest.raises(UsageError, match=r"^there is no input 'c'; the inputs are 'b', 'a'$"):
        read(text, "c")


def test_an_attach_alone_is_a_session_with_an_empty_stream() -> None:
    assert shown(read(ATTACH % "a")) == [("a", [])]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([STABLE % ("a", 1)], "line 1: input 'a' was never attached"),
        ([STABLE % ("a", 1), ATTACH % "a"], "line 1: input 'a' was never attached"),
        ([ATTACH % "a", STABLE % ("b", 1), STABLE % ("c", 1)], "line 2: input 'b' was never attached"),
        ([ATTACH % "z", STABLE % ("z", 1), STABLE % ("c", 1), STABLE % ("b", 1)], "line 3: input 'c' was never"),
        (['{"op":"detach","input":"a"}'], "line 1: input 'a' was never attached"),
        ([ATTACH % "a", '{"op":"admit","input":"b"}'], "line 2: input 'b' was never attached"),
        ([ATTACH % "a", STABLE % ("a", 1), INSERT], 'line 3: an element of a session needs "input"'),
        ([INSERT, ATTACH % "a"], 'line 1: an element of a session needs "input"'),
        ([INSERT, STABLE % ("a", 1)], 'line 1: an element of a session needs "input"'),
    ],
)
def test_lines_that_no_session_can_have_there(lines: list[str], problem: str) -> None:
    with pytest.raises(MalformedLine) as refused:
        read(session(*lines))
    assert str(refused.value).startswith(problem)


def test_a_stream_has_no_input_to_choose() -> None:
    with pytest.raises(UsageError, match=r"^there is no input 'a', because the lines have no inputs$"):
        read(INSERT, "a")


def test_names_of_inputs_are_read_as_json() -> None:
    text = session(
        '{"op":"attach","input":"\u00e9"}',
        '{"op":"stable","input":"\\u00e9","vc":1}',
        '{"op":"stable","input":"\u00e9","vc":2}',
    )
    assert shown(read(text)) == [("\u00e9", [2, 3])]


def test_elements_in_memory_have_their_index_as_place() -> None:
    stream = stream_of([Insert(b"\xff", 1, 2), Stable(2)], "s")
    assert rows_of(stream) == [(1, 0, b"\xff", 1, 0, 2), (2, 2, b"", 2, 0, 0)]
