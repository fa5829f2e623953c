"""The metrics of the process itself, under the names that every Python process has in Prometheus.

They are ``process_*`` (memory, processor time, open files), ``python_gc_*`` (garbage collections) and ``python_info``.
The server and the client's exporter register them.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector


def register_process(registry: CollectorRegistry) -> None:
    """Register the collectors of the process in ``registry``."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
