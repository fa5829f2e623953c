"""A merged query as frozen values, after the defaults of the schema. Made by ``reading``; used by everything else.

The fields are those of ``replicated_query.schema.json``, which documents each, in Python's names. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from lmerge.text_enum import TextEnum

GROUP: Final = "lmerge.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "ReplicatedQuery"
PLURAL: Final = "replicatedqueries"
SHORT_NAME: Final = "rq"

# Where lmerge mounts its own volumes in pods; the empty one is the root.
MOUNTS: Final = ("", "/tmp", "/jump-start", "/etc/lmerge/tls", "/etc/lmerge/token")
# Fingerprints are compared, and are labels of pods.
_FINGERPRINT_DIGITS: Final = 12


class JumpStartSource(TextEnum):
    """Where a replica starts that comes later than others. The texts are those of the schema."""

    NONE = "none"
    CHECKPOINT = "checkpoint"
    TABLE = "table"


@dataclass(frozen=True)
class RetentionSpec:
    """The output that servers keep: ``bytes`` for each merge; ``time`` in units of the merge, None: any."""

    bytes: int = 32 * 2**20
    time: int | None = None


@dataclass(frozen=True)
class MergeSpec:
    """The merge on the servers. ``certify_interval`` and ``feedback`` are in the merge's units of time."""

    name: str
    algorithm: str = "auto"
    policy: str = "lazy"
    closing: str = "all"
    divergence: str = "alarm"
    certify_interval: int = 60_000_000
    feedback: int | None = None
    retention: RetentionSpec = RetentionSpec()

    @property
    def compares(self) -> bool:
        """Whether the servers compare inputs, so that a version can be certified."""
        return self.divergence != "none"


@dataclass(frozen=True)
class ServersSpec:
    """The servers: ``count`` of them that lmerge runs, or the ``addresses`` of others; one of the two is empty."""

    count: int = 0
    addresses: tuple[str, ...] = ()
    version: str = ""
    port: int = 0
    http_port: int = 0
    store: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()

    @property
    def are_ours(self) -> bool:
        """Whether lmerge runs the servers."""
        return self.count > 0


@dataclass(frozen=True)
class RunSpec:
    """What runs as a replica: exactly one of ``command``, ``replica`` and ``program`` is set; then ``args``."""

    command: tuple[str, ...] = ()
    replica: str = ""
    program: str = ""
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResourcesSpec:
    """On Kubernetes: what a pod requests, and its limits, as pairs of resource and quantity, in order of resource."""

    requests: tuple[tuple[str, str], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class VolumeSpec:
    """On Kubernetes: what is mounted at ``path``. ``kind``: claim, configMap or secret, and its ``name``."""

    kind: str
    name: str
    path: str


@dataclass(frozen=True)
class VersionSpec:
    """One version of the query. ``env``: pairs of name and value, in order of name.

    On Kubernetes: ``service_account``: whose token its pods get, None: none; ``fs_group``: of its volumes.
    """

    name: str
    run: RunSpec
    alternatives: tuple[RunSpec, ...] = ()
    image: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    resources: ResourcesSpec = ResourcesSpec()
    service_account: str | None = None
    fs_group: int | None = None
    volumes: tuple[VolumeSpec, ...] = ()

    def run_of(self, index: int) -> RunSpec:
        """Return what replica ``index`` runs."""
        runs = (self.run, *self.alternatives)
        return runs[index % len(runs)]

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides what its processes do. Of two fingerprints that differ, one is newer."""
        later = ("service_account", "fs_group", "volumes")
        # Without them the digest is that of releases before: a newer controller replaces no replica for its own sake.
        return _fingerprint({name: value for name, value in asdict(self).items() if value or name not in later})


@dataclass(frozen=True)
class SpreadSpec:
    """On Kubernetes: over what replicas are spread."""

    topology_key: str = "kubernetes.io/hostname"
    max_skew: int = 1


@dataclass(frozen=True)
class CutoverSpec:
    """How another version becomes active."""

    intervals: int = 3
    timeout_s: float = 600.0


@dataclass(frozen=True)
class HealthSpec:
    """When a replica is replaced although its process runs. ``lag_max``: in the merge's units; None: any lag."""

    lag_max: int | None = None
    lag_for_s: float = 30.0
    join_within_s: float = 300.0


@dataclass(frozen=True)
class JumpStartSpec:
    """Where a replica starts that comes later than others. ``table``: empty, but for ``source`` TABLE."""

    source: JumpStartSource = JumpStartSource.NONE
    table: str = ""


@dataclass(frozen=True)
class RestartSpec:
    """How fast processes that end are started again."""

    backoff_s: float = 1.0
    backoff_max_s: float = 60.0
    per_minute_max: int = 20

    def delay_s(self, exits: int) -> float:
        """Return the seconds between the last of ``exits`` ends in a row and the next start."""
        if exits <= 0:
            return 0.0
        return min(self.backoff_max_s, self.backoff_s * 2.0 ** min(exits - 1, 64))


@dataclass(frozen=True)
class ReplicatedQuery:
    """A merged query. ``folder``: what relative paths of programs and stores are relative to; empty on Kubernetes.

    ``generation``: of the resource on Kubernetes; 0 for a file.
    """

    name: str
    merge: MergeSpec
    servers: ServersSpec
    versions: tuple[VersionSpec, ...]
    active: str
    replicas: int = 2
    namespace: str = ""
    spread: SpreadSpec = SpreadSpec()
    cutover: CutoverSpec = CutoverSpec()
    health: HealthSpec = HealthSpec()
    jump_start: JumpStartSpec = JumpStartSpec()
    restart: RestartSpec = RestartSpec()
    folder: str = field(default="", compare=False)
    generation: int = field(default=0, compare=False)

    def version(self, name: str) -> VersionSpec | None:
        """Return the version ``name``, or None if it is not described."""
        return next((version for version in self.versions if version.name == name), None)

    def replica_name(self, version: str, index: int) -> str:
        """Return the name of a replica, on the servers and as a process."""
        return f"{self.name}-{version}-{index}"

    @property
    def servers_fingerprint(self) -> str:
        """A digest of everything that decides what the servers do that lmerge runs, but for their number."""
        return _fingerprint({**asdict(self.servers), "count": 0, "merge": asdict(self.merge)})


def _fingerprint(value: Mapping[str, object]) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]
