"""Defects of output policies, of C1-C3 with late inputs, and of the adapters, in both engines."""

from seeded import Defect

CORE = "lmerge/core/"
ADAPTERS = "tests/core/test_adapters.py::"

DEFECTS = (
    Defect(
        "signed tuples are paired as they arrive",
        CORE + "adapters.py",
        "if not self.unmatched and bisect_right(self.starts, t) >= len(self.ends):",
        "if not self.unmatched:",
        ADAPTERS + "test_every_order_of_a_small_bag_gives_the_table_of_the_bag",
    ),
    Defect(
        "an unmatched negative tuple is passed by a stable in silence",
        CORE + "adapters.py",
        "if self.unmatched and self.unmatched[0] < vc:",
        "if False:",
        ADAPTERS + "test_an_unmatched_negative_tuple_stands_for_no_event_until_a_stable_passes_it",
    ),
)
