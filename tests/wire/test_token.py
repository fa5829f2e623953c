"""Resume tokens name a merge and a time, and nothing else is a token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.wire.token import format_token, parse_token

NAMES = st.text(min_size=1, max_size=20).filter(str.isprintable)


@given(NAMES, st.integers(NEG_INF, INF))
def test_a_token_comes_back_as_it_was_made(merge: str, stable_point: int) -> None:
    assert parse_token(format_token(merge, stable_point), merge) == stable_point


def test_the_ends_of_time_have_names() -> None:
    assert format_token("flights", INF) == "flights@inf"
    assert parse_token("flights@-inf", "flights") == NEG_INF


@given(NAMES, NAMES, st.integers(NEG_INF, INF))
def test_a_token_of_another_merge_is_refused(merge: str, other: str, stable_point: int) -> None:
    if merge != other:
        with pytest.raises(UsageError, match="cannot resume"):
            parse_token(format_token(other, stable_point), merge)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "@",
        "flights",
        "flights@",
        "@5",
        "flights@5.0",
        "flights@1e3",
        "flights@ 5",
        "flights@9223372036854775808",
        "flights@--5",
        "flights@\u0665",
        "flights@" + "9" * 5000,
    ],
)
def test_a_damaged_token_is_refused_with_what_is_wrong(token: str) -> None:
    with pytest.raises(UsageError, match="cannot resume"):
        parse_token(token, "flights")
