"""The identity of a caller and its rights, and the names in a certificate. Pure.

A right is a role in some merges: ``publish`` (under some replica names), ``subscribe``, ``status`` (may see the status
of a merge, not its events), ``admin``. No role includes another. An identity is a name with rights. It comes from an
entry of the access file (``access_file``), which is found by a token or by a name in a certificate, or from the
certificate alone:

    lmerge://flights/a                      publish into merge flights as replica a, and nothing else
    lmerge://flights?roles=subscribe        any other role; several with commas
    lmerge://*?roles=status,admin           merges and replicas may be patterns: * ? [abc], for the whole name

Only a URI among the subject's alternative names has this meaning, never the common name. Characters that a URI may not
contain are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from lmerge.errors import PermissionDenied
from lmerge.service.choices import AccessRole

_URI: Final = re.compile(r"lmerge://(?P<merge>[^/?#\s]+)(?:/(?P<replica>[^/?#\s]+))?(?:\?(?P<query>[^#\s]*))?")


@dataclass(frozen=True)
class Rights:
    """Roles in the merges that the patterns match; for ``publish``, under the replica names that the patterns match."""

    roles: frozenset[str]
    merges: tuple[str, ...]
    replicas: tuple[str, ...] = ()

    def allow(self, role: str, merge: str, replica: str | None = None) -> bool:
        """Whether these rights allow ``role`` in ``merge``, and under the name ``replica`` if one is given."""
        if role not in self.roles or not _matches(self.merges, merge):
            return False
        return replica is None or _matches(self.replicas, replica)

    @property
    def cover_every_merge(self) -> bool:
        return "*" in self.merges


@dataclass(frozen=True)
class CallerIdentity:
    """A caller. ``name``: as messages and logs show it, such as ``token 'a' (3f9a2c11)``."""

    name: str
    rights: tuple[Rights, ...]

    def must(self, roles: Sequence[str], attempted: str, merge: str, replica: str | None = None) -> None:
        """Raise PermissionDenied, which names what was ``attempted``, unless the caller has one of ``roles``."""
        if not any(rights.allow(role, merge, replica) for rights in self.rights for role in roles):
            raise PermissionDenied(f"{self.name} may not {attempted}")

    def must_everywhere(self, roles: Sequence[str], attempted: str) -> None:
        """Raise PermissionDenied unless the caller has one of ``roles`` in every merge: for what shows all merges."""
        if not any(rights.cover_every_merge and rights.roles & set(roles) for rights in self.rights):
            raise PermissionDenied(f"{self.name} may not {attempted}: that needs {' or '.join(roles)} for every merge")

    def sees(self, merge: str) -> bool:
        """Whether the caller has any rights in ``merge``."""
        return any(rights.roles and _matches(rights.merges, merge) for rights in self.rights)


@dataclass(frozen=True)
class Certificate:
    """The names of the subject of a verified client certificate."""

    common_name: str = ""
    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()

    @classmethod
    def of_call(cls, auth_context: Mapping[str, Iterable[bytes]]) -> Certificate | None:
        """Read it from gRPC's authentication context; None if the peer showed none."""
        texts = {
            key: tuple(value.decode(errors="replace") for value in auth_context.get(key, ()))
            for key in ("x509_common_name", "peer_uri", "peer_dns")
        }
        if "x509_pem_cert" not in auth_context:
            return None
        return cls(next(iter(texts["x509_common_name"]), ""), texts["peer_uri"], texts["peer_dns"])

    @classmethod
    def of_socket(cls, peer: Mapping[str, Any] | None) -> Certificate | None:
        """Read it from Python's ``getpeercert()``; None if the peer showed none."""
        if not peer:
            return None
        subject = [pair for group in peer.get("subject", ()) for pair in group]
        names = peer.get("subjectAltName", ())
        return cls(
            next((value for key, value in subject if key == "commonName"), ""),
            tuple(value for key, value in names if key == "URI"),
            tuple(value for key, value in names if key == "DNS"),
        )

    @property
    def names(self) -> frozenset[str]:
        """The names as the access file writes them: ``uri:...``, ``dns:...``, ``cn:...``."""
        found = {f"uri:{uri}" for uri in self.uris} | {f"dns:{name}" for name in self.dns}
        return frozenset(found | ({f"cn:{self.common_name}"} if self.common_name else set()))

    @property
    def shown(self) -> str:
        """The certificate as messages show it."""
        return f"certificate {next(iter((*self.uris, *self.dns)), self.common_name)!r}"

    def identity(self) -> CallerIdentity | None:
        """Return the identity that its ``lmerge://`` names give; None if it has none."""
        rights = tuple(right for uri in self.uris if (right := rights_of_uri(uri)) is not None)
        return CallerIdentity(self.shown, rights) if rights else None


def rights_of_uri(uri: str) -> Rights | None:
    """Return the rights that a name in a certificate gives; None if it is no ``lmerge://`` name, or not well formed."""
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    replica = unquote(match["replica"]) if match["replica"] else None
    query = parse_qs(match["query"] or "", keep_blank_values=True)
    names = [name for text in query.pop("roles", []) for name in text.split(",")]
    roles = frozenset(names) if names else frozenset({AccessRole.PUBLISH})
    if query or not roles <= set(AccessRole) or (AccessRole.PUBLISH in roles) != (replica is not None):
        return None
    return Rights(roles, (unquote(match["merge"]),), () if replica is None else (replica,))


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a pattern matches the whole of ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
