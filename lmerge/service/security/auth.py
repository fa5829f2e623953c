"""Who is calling, and what they may do: rights, identities, and the names in a certificate. Pure.

A right is a role in some merges: ``publish`` (under some replica names), ``subscribe``, ``status`` (see, not read),
``admin``. No role includes another. An identity is a name with rights; it comes from an entry of the access file
(``access_file``), which is found by a token or by a name in a certificate, or from the certificate alone:

    lmerge://flights/a                      publish into merge flights as replica a, and nothing else
    lmerge://flights?roles=subscribe        any other role; several with commas
    lmerge://*?roles=status,admin           merges and replicas may be patterns: * ? [abc], for the whole name

Only a URI among the subject's alternative names counts for this, never the common name. Characters that a URI may
not have are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from lmerge.errors import PermissionDenied

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
STATUS: Final = "status"
ADMIN: Final = "admin"
ROLES: Final = (PUBLISH, SUBSCRIBE, STATUS, ADMIN)

_URI: Final = re.compile(r"lmerge://(?P<merge>[^/?#\s]+)(?:/(?P<replica>[^/?#\s]+))?(?:\?(?P<query>[^#\s]*))?")


@dataclass(frozen=True)
class Rights:
    """Roles in the merges, and for ``publish`` under the replica names, that the patterns match."""

    roles: frozenset[str]
    merges: tuple[str, ...]
    replicas: tuple[str, ...] = ()

    def allow(self, role: str, merge: str, replica: str | None = None) -> bool:
        """Whether they are enough for ``role`` in ``merge``, under the name ``replica`` if that is what it is about."""
        if role not in self.roles or not _matches(self.merges, merge):
            return False
        return replica is None or _matches(self.replicas, replica)

    @property
    def cover_every_merge(self) -> bool:
        return "*" in self.merges


@dataclass(frozen=True)
class CallerIdentity:
    """``name`` as messages and logs show it, such as ``token 'a' (3f9a2c11)``."""

    name: str
    rights: tuple[Rights, ...]

    def must(self, roles: Sequence[str], attempted: str, merge: str, replica: str | None = None) -> None:
        """Raises PermissionDenied, which names what was ``attempted``, unless one of ``roles`` is there."""
        if not any(rights.allow(role, merge, replica) for rights in self.rights for role in roles):
            raise PermissionDenied(f"{self.name} may not {attempted}")

    def must_everywhere(self, roles: Sequence[str], attempted: str) -> None:
        """The same for what shows all merges at once."""
        if not any(rights.cover_every_merge and rights.roles & set(roles) for rights in self.rights):
            raise PermissionDenied(f"{self.name} may not {attempted}: that needs {' or '.join(roles)} for every merge")

    def sees(self, merge: str) -> bool:
        """Whether it has any business with ``merge``."""
        return any(rights.roles and _matches(rights.merges, merge) for rights in self.rights)


@dataclass(frozen=True)
class Certificate:
    """What a verified client certificate says about its subject."""

    common_name: str = ""
    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()

    @classmethod
    def of_call(cls, auth_context: Mapping[str, Iterable[bytes]]) -> Certificate | None:
        """From gRPC's account of a connection; None if the peer showed none."""
        texts = {
            key: tuple(value.decode(errors="replace") for value in auth_context.get(key, ()))
            for key in ("x509_common_name", "peer_uri", "peer_dns")
        }
        if "x509_pem_cert" not in auth_context:
            return None
        return cls(next(iter(texts["x509_common_name"]), ""), texts["peer_uri"], texts["peer_dns"])

    @classmethod
    def of_socket(cls, peer: Mapping[str, Any] | None) -> Certificate | None:
        """From Python's ``getpeercert()``."""
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
        """As the access file writes them: ``uri:...``, ``dns:...``, ``cn:...``."""
        found = {f"uri:{uri}" for uri in self.uris} | {f"dns:{name}" for name in self.dns}
        return frozenset(found | ({f"cn:{self.common_name}"} if self.common_name else set()))

    @property
    def shown(self) -> str:
        """For messages."""
        return f"certificate {next(iter((*self.uris, *self.dns)), self.common_name)!r}"

    def identity(self) -> CallerIdentity | None:
        """What its ``lmerge://`` names allow; None if it has none."""
        rights = tuple(right for uri in self.uris if (right := rights_of_uri(uri)) is not None)
        return CallerIdentity(self.shown, rights) if rights else None


def rights_of_uri(uri: str) -> Rights | None:
    """The rights that a name in a certificate stands for; None if it is not one of ours, or not well formed."""
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    replica = unquote(match["replica"]) if match["replica"] else None
    query = parse_qs(match["query"] or "", keep_blank_values=True)
    names = [name for text in query.pop("roles", []) for name in text.split(",")]
    roles = frozenset(names) if names else frozenset({PUBLISH})
    if query or not roles <= set(ROLES) or (PUBLISH in roles) != (replica is not None):
        return None
    return Rights(roles, (unquote(match["merge"]),), () if replica is None else (replica,))


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a pattern matches the whole of ``name``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
