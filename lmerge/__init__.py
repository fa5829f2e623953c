"""lmerge: N replicas of a continuous query in, one stream out."""

from __future__ import annotations

__version__ = "0.1.0"
