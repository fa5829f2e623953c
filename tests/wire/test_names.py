"""One rule for names, at every entry: servers, clients and commands refuse the same ones."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmerge import AsyncPublisher, AsyncSubscriber
from lmerge.client.publish.stage import Stager
from lmerge.client.relay import Relay
from lmerge.errors import UsageError
from lmerge.service.output.durable_merges import spoilt_by
from lmerge.service.security.access_file import entry_of
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import NAME_BYTES, check_name, problem_of
from lmerge.wire.schema import Schema, parse_schema

TARGET = "h:1"
ENTRY = {"id": "0" * 8, "sha256": "0" * 64, "roles": ["status"], "merges": ["*"]}
ENTRIES: dict[str, Callable[[str], object]] = {
    "a publisher's merge": lambda name: AsyncPublisher(TARGET, name, "a"),
    "a publisher's replica": lambda name: AsyncPublisher(TARGET, "m", name),
    "a stager's merge": lambda name: Stager(TARGET, name, "a"),
    "a stager's replica": lambda name: Stager(TARGET, "m", name),
    "a subscriber's merge": lambda name: AsyncSubscriber(TARGET, name),
    "a relay's replica": lambda name: Relay(TARGET, "m", TARGET, name),
    "a relay's merge": lambda name: Relay(TARGET, name, TARGET, "a"),
    "a declared merge": lambda name: Settings(merges=(name,)).validate(),
    "a token": lambda name: entry_of({"name": name, **ENTRY}),
    "a column": lambda name: parse_schema({f"{name}?": {"inner": "int"}}),
    "an inner column": lambda name: parse_schema({"outer": {f"{name}?": {"x": "int"}}}),
    "a column on the wire": lambda name: Schema.from_message(_on_the_wire(name)),
}
NAMES = st.one_of(
    st.text(max_size=8),
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Co", "Cn", "L"]), max_size=4),
    st.integers(NAME_BYTES - 9, NAME_BYTES + 2).map(lambda size: "n" * size),
    st.sampled_from(["", " ", " a", "a ", "a b"]),
)


def _on_the_wire(name: str) -> pb.Schema:
    try:
        return pb.Schema(columns=[pb.Schema.Column(name=name, type="int")])
    except (UnicodeEncodeError, ValueError):
        raise UsageError("protobuf carries no surrogates") from None


def refuses(entry: Callable[[str], object], name: str) -> bool:
    try:
        entry(name)
    except UsageError:
        return True
    return False


@pytest.mark.parametrize("entry", ENTRIES)
@given(name=NAMES)
@example(name="\x1b[31m")
@example(name="\udc80")
@example(name="\u202e")
@example(name="\u0661 \u4e2d \u00e4")
def test_every_entry_has_the_one_rule(entry: str, name: str) -> None:
    assert refuses(ENTRIES[entry], name) is (problem_of(name) is not None), repr(name)


@given(NAMES)
def test_the_rule_is_as_documented(name: str) -> None:
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    categories = {unicodedata.category(c) for c in name if c != " "}
    is_right = (
        bool(name)
        and not categories & (bad | {"Zs"})
        and len(name.encode(errors="replace")) <= NAME_BYTES
        and name == name.strip(" ")
    )
    assert (problem_of(name) is None) is is_right
    assert (spoilt_by(name, {}) is None) is is_right


@given(NAMES.filter(lambda name: problem_of(name) is not None))
def test_a_refusal_is_one_short_harmless_line(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name("merge", name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
