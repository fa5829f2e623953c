"""Modules for plans of any columns, registered for all tests that import this: those of the framework's own trees."""

from lmerge.testing.transforming.modules import EachOnce, StartedSoFar

__all__ = ["EachOnce", "StartedSoFar"]
