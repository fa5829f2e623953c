"""Rights, names in certificates, the access file; and how streams end when their rights end."""

from __future__ import annotations

import json
import logging
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_world import FORGED, YEAR_US, SecureWorld, refused
from service_world import MERGE, RawPublisher, RawReader, ins, stable

from lmerge import clock
from lmerge.errors import PermissionDenied, Unauthenticated, UsageError
from lmerge.service.choices import AccessRole
from lmerge.service.security import tokens
from lmerge.service.security.access_file import AccessFile, digest_of, entry_of, parse_expiry
from lmerge.service.security.auth import CallerIdentity, Certificate, Rights, rights_of_uri
from lmerge.wire.generated import lmerge_pb2 as pb

PUBLISH, SUBSCRIBE, STATUS, ADMIN = ROLES = tuple(AccessRole)
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)


# Rights.


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("flights", ["flights"], ["flight", "flightsx", "xflights", "Flights", "flights/a", ""]),
        ("eu-*", ["eu-", "eu-a", "eu-a/b"], ["eu", "xeu-a", "EU-a"]),
        ("*", ["a", "a/b", "*"], []),
        ("a?", ["ab", "a?"], ["a", "abc"]),
        ("[ab]", ["a", "b"], ["[ab]", "c", "ab"]),
    ],
)
def test_a_pattern_is_for_the_whole_name(pattern: str, matched: list[str], others: list[str]) -> None:
    rights = Rights(frozenset({PUBLISH}), (pattern,), (pattern,))
    assert [name for name in (*matched, *others) if rights.allow(PUBLISH, name)] == matched
    anywhere = Rights(frozenset({PUBLISH}), ("*",), (pattern,))
    assert [name for name in (*matched, *others) if anywhere.allow(PUBLISH, "m", name)] == matched


@pytest.mark.parametrize("role", ROLES)
def test_no_role_includes_another(role: str) -> None:
    rights = Rights(frozenset({role}), ("*",), ("*",))
    assert [other for other in ROLES if rights.allow(other, "m")] == [role]


def test_what_is_denied_names_the_caller_and_what_was_attempted() -> None:
    identity = CallerIdentity("token 'a' (3f9a2c11)", (Rights(frozenset({PUBLISH}), ("m",), ("a",)),))
    with pytest.raises(PermissionDenied, match=r"^token 'a' \(3f9a2c11\) may not subscribe to merge 'x'$"):
        identity.must((SUBSCRIBE,), "subscribe to merge 'x'", "x")


def test_what_shows_all_merges_needs_a_right_to_all() -> None:
    for merges, is_enough in ((("*",), True), (("a", "*"), True), (("?*",), False), (("a",), False)):
        identity = CallerIdentity("x", (Rights(frozenset({STATUS}), merges),))
        if is_enough:
            identity.must_everywhere((STATUS, ADMIN), "read")
        else:
            with pytest.raises(PermissionDenied):
                identity.must_everywhere((STATUS, ADMIN), "read")
    with pytest.raises(PermissionDenied):
        CallerIdentity("x", (Rights(frozenset({SUBSCRIBE}), ("*",)),)).must_everywhere((STATUS, ADMIN), "read")


# Names in certificates.


@pytest.mark.parametrize(
    ("uri", "rights"),
    [
        ("lmerge://flights/a", Rights(frozenset({PUBLISH}), ("flights",), ("a",))),
        ("lmerge://Flights/a%2Fb%20c", Rights(frozenset({PUBLISH}), ("Flights",), ("a/b c",))),
        ("lmerge://eu-*/a", Rights(frozenset({PUBLISH}), ("eu-*",), ("a",))),
        ("lmerge://flights?roles=subscribe", Rights(frozenset({SUBSCRIBE}), ("flights",))),
        ("lmerge://*?roles=status,admin", Rights(frozenset({STATUS, ADMIN}), ("*",))),
        ("lmerge://m/a?roles=publish,subscribe", Rights(frozenset({PUBLISH, SUBSCRIBE}), ("m",), ("a",))),
    ],
)
def test_a_name_in_a_certificate_is_a_right(uri: str, rights: Rights) -> None:
    assert rights_of_uri(uri) == rights


@pytest.mark.parametrize(
    "uri",
    [
        "lmerge://",
        "lmerge://flights",
        "lmerge:///a",
        "lmerge://flights/a/b",
        "lmerge://flights/a?roles=root",
        "lmerge://flights/a?role=admin",
        "lmerge://flights?roles=publish",
        "lmerge://flights/a?roles=subscribe",
        "lmerge://flights/a?roles=",
        "lmerge://flights/a?roles=publish&x=1",
        "lmerge://flights/a#b",
        "LMERGE://flights/a",
        "xlmerge://flights/a",
        "https://flights/a",
        "spiffe://flights/a",
        "",
        "lmerge://flights/a\n",
    ],
)
def test_a_name_that_is_not_quite_one_of_ours_is_no_right(uri: str) -> None:
    assert rights_of_uri(uri) is None


def test_only_uris_count_as_names_of_ours() -> None:
    assert Certificate("lmerge://m/a", (), ("lmerge://m/a",)).identity() is None
    assert Certificate("x", ("https://x", "lmerge://m/a"), ()).identity() is not None


def test_both_accounts_of_a_certificate_are_understood() -> None:
    of_call = Certificate.of_call(
        {"x509_common_name": [b"c"], "peer_uri": [b"lmerge://m/a"], "peer_dns": [b"d"], "x509_pem_cert": [b"..."]}
    )
    of_socket = Certificate.of_socket(
        {
            "subject": ((("organizationName", "o"),), (("commonName", "c"),)),
            "subjectAltName": (("URI", "lmerge://m/a"), ("DNS", "d"), ("IP Address", "127.0.0.1")),
        }
    )
    assert of_call == of_socket == Certificate("c", ("lmerge://m/a",), ("d",))
    assert of_call.names == {"cn:c", "uri:lmerge://m/a", "dns:d"}
    assert Certificate.of_call({"transport_security_type": [b"ssl"]}) is Certificate.of_socket(None) is None


# The access file.


def written(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps({"entries": list(entries)}))
    return path


GOOD = {"name": "a", "id": "3f9a2c11", "sha256": "0" * 64, "roles": ["publish"], "merges": ["flights"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, '"name" must be a text'),
        ({"replica": ["a"]}, "unknown field 'replica'"),
        ({"roles": ["root"]}, "unknown role 'root'"),
        ({"roles": []}, '"roles" must be a list of texts, and not empty'),
        ({"roles": "publish"}, '"roles" must be a list'),
        ({"merges": [""]}, '"merges" must be a list'),
        ({"merges": None}, '"merges" must be a list'),
        ({"replicas": []}, '"replicas" must be a list'),
        ({"id": "XYZ"}, "8 hexadecimal digits"),
        ({"sha256": "0" * 63}, "8 hexadecimal digits"),
        ({"certificate": "cn:x"}, 'either "id" and "sha256", or "certificate"'),
        ({"enabled": "no"}, '"enabled" must be true or false'),
        ({"expires": "soon"}, "'soon' is no time"),
        ({"expires": "2027-01-01T00:00:00"}, "has no zone"),
        ({"expires": 5}, '"expires" must be a text'),
    ],
)
def test_a_wrong_entry_is_named_and_nothing_is_guessed(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "access.json", {**GOOD, "id": "00000000"}, GOOD | change)
    with pytest.raises(UsageError) as caught:
        AccessFile(path)
    assert f"access file {str(path)!r}, entry 2: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be one object"),
        ('{"entries": {}}', "must be one object"),
        ('{"entries": [], "x": 1}', "must be one object"),
        ('{"entries": [1]}', "entry 1: it must be an object"),
        ("[" * 100_000, "is not JSON"),
        ("\udcff", "is not JSON"),
        (" " * 2**20 + "{}", "is larger than"),
        (json.dumps({"entries": [GOOD, GOOD]}), "'3f9a2c11' is there twice"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as caught:
        AccessFile(path)
    assert message in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        AccessFile(tmp_path / "nothing")


def test_the_file_holds_only_the_digest_of_a_token(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    token = tokens.make(path, "a", ["publish"], ["flights"])
    text = path.read_text()
    assert token not in text
    assert token.rpartition("_")[2] not in text
    assert digest_of(token) in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file = AccessFile(path)
    assert file.by_token(token).name == f"token 'a' ({token[4:12]})"
    other_secret, no_such_id = token[:13] + "0" * 64, "lmt_ffffffff_" + token[13:]
    cut = (token[:-1], token + "0", token.upper(), digest_of(token), "", "lmt__", "é")
    for forged in (other_secret, no_such_id, *cut):
        with pytest.raises(Unauthenticated, match=r"^the token is not in the access file of this server$"):
            file.by_token(forged)


def test_without_replicas_an_entry_publishes_under_its_own_name_and_no_other() -> None:
    for name in ("a", "a*", "[a]", "a?"):
        rights = entry_of({**GOOD, "name": name}).rights
        assert rights.allow(PUBLISH, "flights", name)
        assert not any(rights.allow(PUBLISH, "flights", other) for other in ("b", "aa", "ab", "a*x"))


def test_expiry_is_a_moment_not_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "access.json"
    at = parse_expiry("2027-01-01T00:00:00+01:00")
    token = tokens.make(path, "a", ["publish"], ["m"], expires_us=at)
    assert json.loads(path.read_text())["entries"][0]["expires"] == "2026-12-31T23:00:00Z"
    file = AccessFile(path)
    monkeypatch.setattr(clock, "wall_us", lambda: at - 1)
    assert file.by_token(token)
    for now in (at, at + 1, at + YEAR_US):
        monkeypatch.setattr(clock, "wall_us", lambda now=now: now)
        with pytest.raises(Unauthenticated, match=r"expired at 2026-12-31T23:00:00Z"):
            file.by_token(token)


def test_only_the_holder_of_a_revoked_token_gets_that_reason(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    first, second = (tokens.make(path, "a", ["publish"], ["m"]) for _ in range(2))
    assert tokens.revoke(path, first[4:12]) == [f"token 'a' ({first[4:12]})"]
    file = AccessFile(path)
    with pytest.raises(Unauthenticated, match="has been revoked"):
        file.by_token(first)
    with pytest.raises(Unauthenticated, match="not in the access file of this server"):
        file.by_token(first[:-1] + ("0" if first[-1] != "0" else "1"))
    assert file.by_token(second)
    assert tokens.revoke(path, "a") == [f"token 'a' ({second[4:12]})"]
    with pytest.raises(UsageError, match="has no valid entry 'a'"):
        tokens.revoke(path, "a")


def test_a_file_that_breaks_leaves_the_last_good_one_in_force(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "access.json"
    token = tokens.make(path, "a", ["publish"], ["m"])
    good = path.read_text()
    file = AccessFile(path)
    for broken in ("{", good.replace("publish", "root"), None):
        caplog.clear()
        path.unlink() if broken is None else path.write_text(broken)
        assert not file.refresh()
        assert file.problem is not None
        assert file.by_token(token)
        assert not file.refresh()
        assert [record.levelname for record in caplog.records] == ["ERROR"]  # once, not at every check
    path.write_text(good.replace(token[4:12], "00000000"))
    assert file.refresh()
    assert file.problem is None
    with pytest.raises(Unauthenticated):
        file.by_token(token)


def test_an_edit_that_cannot_be_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    tokens.make(path, "a", ["publish"], ["m"])
    before = path.read_bytes()
    edits: list[dict[str, Any]] = [{"roles": ["root"]}, {"merges": []}, {"name": ""}, {"certificate": "x"}]
    for wrong in edits:
        arguments: dict[str, Any] = {"name": "b", "roles": ["publish"], "merges": ["m"], **wrong}
        with pytest.raises(UsageError):
            tokens.make(path, **arguments)
        assert path.read_bytes() == before
    assert {item.name for item in tmp_path.iterdir()} <= {"access.json", ".access.json.lock", ".access.json.new"}


@given(NAMES, st.lists(st.sampled_from(ROLES), min_size=1, unique=True), st.lists(NAMES, min_size=1))
def test_what_is_made_is_what_is_read(name: str, roles: list[str], merges: list[str]) -> None:
    item = {"name": name, "id": "3f9a2c11", "sha256": "0" * 64, "roles": roles, "merges": merges}
    entry = entry_of(json.loads(json.dumps(item)))
    assert (entry.name, entry.rights.roles, entry.rights.merges) == (name, frozenset(roles), tuple(merges))
    assert entry.rights.allow(PUBLISH, merges[0], name) == (
        PUBLISH in roles and Rights(frozenset({STATUS}), tuple(merges)).allow(STATUS, merges[0])
    )


# On a server.


async def test_a_token_publishes_under_its_own_name_only_and_cannot_fence_another(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        a_token, b_token = world.token("a", [PUBLISH]), world.token("b", [PUBLISH])
        a = await world.publisher("a", stub=world.stub_of(a_token))
        intruder = RawPublisher(world.stub_of(b_token).Publish())
        await intruder.attach("a", MERGE, incarnation=2**62)
        ending = await intruder.ending()
        assert ending.code is DENIED
        assert f"token 'b' ({b_token[4:12]}) may not publish into merge 'flights' as replica 'a'" in ending.details
        assert (await a.merged(ins("x", 1, 2), stable(3))).sequence == 1
        assert (await world.publisher("b", stub=world.stub_of(b_token))).accepted.joined


async def test_a_certificate_publishes_under_its_own_name_only(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, access=False, mtls=True) as world:
        pair = world.authority.issue("a", common_name="b", uris=[f"lmerge://{MERGE}/a"], hosts=["b"])
        stub = world.stub_of(pair=pair)
        assert (await world.publisher("a", stub=stub)).accepted.joined
        for replica, merge in (("b", MERGE), ("a", "other"), ("a2", MERGE)):
            publisher = RawPublisher(stub.Publish())
            await publisher.attach(replica, merge)
            ending = await publisher.ending()
            assert ending.code is DENIED
            assert f"may not publish into merge {merge!r} as replica {replica!r}" in ending.details


async def test_with_a_certificate_and_a_token_both_must_allow_it(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, mtls=True) as world:
        named = world.authority.issue("named", uris=[f"lmerge://{MERGE}/a"])
        plain = world.authority.issue("plain")
        both = world.token("wide", [PUBLISH], ["*"], ["*"])
        for pair, replica, is_allowed in ((named, "a", True), (named, "b", False), (plain, "b", True)):
            publisher = RawPublisher(world.stub_of(both, pair).Publish())
            await publisher.attach(replica, MERGE)
            if is_allowed:
                assert (await publisher.call.read()).accepted.algorithm
            else:
                with refused(DENIED):
                    await publisher.call.read()  # it was never accepted
        with refused(UNAUTHENTICATED, "'plain' has no lmerge:// name and is not in the server's access file"):
            await world.stub_of(pair=plain).ListMerges(pb.ListMergesRequest())


async def test_the_access_file_can_name_a_certificate_and_decides_alone(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, mtls=True) as world:
        plain = world.authority.issue("plain", hosts=["board.example"])
        named = world.authority.issue("named", uris=[f"lmerge://{MERGE}/a"])
        tokens.make(world.access_path, "board", [STATUS], ["*"], certificate="dns:board.example")
        tokens.make(world.access_path, "a", [STATUS], ["*"], certificate=f"uri:lmerge://{MERGE}/a")
        world.server._guard.check()
        await world.stub_of(pair=plain).ListMerges(pb.ListMergesRequest())
        publisher = RawPublisher(world.stub_of(pair=named).Publish())
        await publisher.attach("a", MERGE)
        assert (await publisher.ending()).code is DENIED  # not what the certificate alone would allow
        tokens.revoke(world.access_path, "board")
        world.server._guard.check()
        with refused(UNAUTHENTICATED, "has been revoked"):
            await world.stub_of(pair=plain).ListMerges(pb.ListMergesRequest())


async def test_a_token_made_a_moment_ago_is_accepted(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, check_interval_s=3600.0) as world:
        for name in ("a", "b", "c"):
            await world.stub_of(world.token(name, [STATUS])).ListMerges(pb.ListMergesRequest())


async def streams_of(world: SecureWorld, token: str) -> tuple[RawPublisher, RawReader]:
    stub = world.stub_of(token)
    publisher = await world.publisher("a", stub=stub)
    return publisher, await world.subscriber(stub=stub)


async def test_streams_end_when_their_token_is_revoked_and_no_others_do(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        keeper, others = await streams_of(world, world.token("a", [PUBLISH, SUBSCRIBE], replicas=["*"]))
        token = world.token("b", [PUBLISH, SUBSCRIBE])
        b = await world.publisher("b", stub=world.stub_of(token))
        reader = await world.subscriber(stub=world.stub_of(token))
        await b.merged(ins("x", 1, 9))
        tokens.revoke(world.access_path, "b")
        for ending in (await b.ending(), await reader.ending()):
            assert ending.code is UNAUTHENTICATED
            assert ending.details == f"token 'b' ({token[4:12]}) has been revoked"
        await keeper.merged(ins("y", 2, 3), ins("x", 1, 9), stable(10))
        assert len(await others.until_stable(10)) == 2
        assert [
            i.replica
            for i in (await world.stub_of(world.keeper).DescribeMerge(pb.DescribeMergeRequest(merge=MERGE))).inputs
        ] == ["a"]


async def test_streams_end_when_their_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SecureWorld(tmp_path) as world:
        now = clock.wall_us()
        token = world.token("a", [PUBLISH, SUBSCRIBE], expires_us=now + YEAR_US)
        publisher, reader = await streams_of(world, token)
        await publisher.merged(ins("x", 1, 9))
        monkeypatch.setattr(clock, "wall_us", lambda: now + YEAR_US + 1_000_000)
        for ending in (await publisher.ending(), await reader.ending()):
            assert ending.code is UNAUTHENTICATED
            assert "expired at" in ending.details


async def test_streams_end_when_their_token_loses_the_right_that_let_them_in(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        publisher, reader = await streams_of(world, world.token("a", [PUBLISH, SUBSCRIBE]))
        items = json.loads(world.access_path.read_text())
        items["entries"][-1]["roles"] = [SUBSCRIBE]
        world.access_path.write_text(json.dumps(items))
        ending = await publisher.ending()
        assert ending.code is DENIED
        assert "may not publish into merge 'flights' as replica 'a'" in ending.details
        keeper = await world.publisher("keeper", stub=world.stub_of(world.keeper))
        await keeper.merged(stable(9))
        await reader.until_stable(9)


async def test_no_secret_is_in_logs_errors_or_the_text_of_settings(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        async with SecureWorld(tmp_path, http_port=0) as world:
            shown = [world.keeper, FORGED, world.expired("e", [STATUS]), world.revoked("r", [STATUS])]
            texts = [repr(world.server.settings)]
            for token in shown:
                call = world.stub_of(token).DescribeMerge(pb.DescribeMergeRequest(merge=MERGE))
                code, details = await call.code(), await call.details()
                texts += [str(code), details]
                publisher = RawPublisher(world.stub_of(token).Publish())
                with suppress(grpc.RpcError):  # the call may have been refused already
                    await publisher.attach("nobody", MERGE)
                publisher.call.cancel()
            world.access_path.write_text(world.access_path.read_text().replace("merges", shown[0]))
            world.server._guard.check()
            texts.append(str(world.server._guard.access.problem))
    assert "call refused" in caplog.text
    assert "access file not taken" in caplog.text
    for token in shown:
        secret = token.rpartition("_")[2]
        for digest_or_secret in (secret, digest_of(token)):
            assert digest_or_secret not in caplog.text
            assert not any(digest_or_secret in text for text in texts)
