"""Enums of the server's options and of access. The CLI shows their texts without loading the rest of the service."""

from __future__ import annotations

from lmerge.text_enum import TextEnum


class DivergencePolicy(TextEnum):
    """What happens when inputs differ. The texts are those of options; ``merge/divergence_policy.py`` explains them."""

    NONE = "none"
    ALARM = "alarm"
    MAJORITY = "majority"
    HOLD = "hold"
    QUARANTINE = "quarantine"

    @property
    def withholds_stables(self) -> bool:
        """Whether stables wait until enough inputs agree."""
        return self in (DivergencePolicy.MAJORITY, DivergencePolicy.HOLD, DivergencePolicy.QUARANTINE)


class StoreSync(TextEnum):
    """What a commit of the store waits for: SQLite's ``synchronous``."""

    FULL = "full"
    NORMAL = "normal"


class TransportChoice(TextEnum):
    """What serves the gRPC port (``lmerge.service.port``). ``auto``: the native transport beside the native engine."""

    AUTO = "auto"
    NATIVE = "native"
    GRPC = "grpc"


class AccessRole(TextEnum):
    """What a token, a certificate or a name in a certificate allows its owner."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    STATUS = "status"
    ADMIN = "admin"
