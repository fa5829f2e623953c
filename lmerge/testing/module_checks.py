"""Checks for modules of windows, for the tests of those who write them (``lmerge.temporal.modules``).

::

    def test_my_module() -> None:
        check_module(MyModule(), rows=[{"kind": "A", "key": "a1"}, {"kind": "B", "key": "b1"}])

Called by users' tests. Imports the temporal algebra.
"""

from lmerge.temporal.modules.checks import check_incremental, check_module

__all__ = ["check_incremental", "check_module"]
