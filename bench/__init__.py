"""Benchmarks: each module answers a written question. ``python -m bench.NAME``."""
