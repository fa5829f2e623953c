"""The text of ``/metrics``, made in steps, so that the merges run meanwhile.

Prometheus scrapes a server with a thousand merges every few seconds. A step reads and writes the samples of a few
merges; then the loop runs other tasks. Samples of one family must be together, so the text is kept by family until all
merges were read. Only one page is made at a time: requests that come meanwhile get that page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from lmerge.service.admin.metrics import MergeCollector

# Merges in one step: about 3 ms, less than a turn of a busy merge.
_STEP_MERGES: Final = 4
_EOF: Final = b"# EOF\n"


class Page(NamedTuple):
    """A page in a format of Prometheus."""

    body: bytes
    content_type: str


class Pages:
    """Makes the pages of one server. ``registry``: all metrics, including those of ``merges``."""

    def __init__(self, registry: CollectorRegistry, merges: MergeCollector) -> None:
        self._registry = registry
        self._merges = merges
        self._being_made: dict[str, asyncio.Task[Page]] = {}

    async def page(self, accept: str) -> Page:
        """Return the page in the form that ``accept``, a header, requests. If one is being made, return that one."""
        encode, content_type = choose_encoder(accept)
        task = self._being_made.get(content_type)
        if task is None:
            task = asyncio.create_task(self._make(encode, content_type), name="metrics")
            self._being_made[content_type] = task
            task.add_done_callback(lambda _: self._being_made.pop(content_type, None))
        return await asyncio.shield(task)

    async def _make(self, encode: Callable[[Any], bytes], content_type: str) -> Page:
        with self._merges.left_out():
            rest = encode(self._registry)
        families: dict[str, list[bytes]] = {}
        names = self._merges.names()
        for at in range(0, max(1, len(names)), _STEP_MERGES):  # a server without merges has the families' heads
            for family in self._merges.of_merges(names[at : at + _STEP_MERGES]):
                lines = encode(_SingleFamily(family)).removesuffix(_EOF)
                known = families.setdefault(family.name, [])
                known.append(_without_head(lines) if known else lines)
            await asyncio.sleep(0)
        is_open = rest.endswith(_EOF)
        body = b"".join([rest.removesuffix(_EOF), *(part for parts in families.values() for part in parts)])
        return Page(body + _EOF if is_open else body, content_type)


class _SingleFamily:
    """A registry, for an encoder, that has a single family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _without_head(lines: bytes) -> bytes:
    """Return the samples of a family, without its head."""
    return b"".join(line for line in lines.splitlines(keepends=True) if not line.startswith(b"# "))
