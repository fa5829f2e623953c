"""Languages that a concrete tree is written in (seed 001, 3): plan JSON, fluent Python, and those that others register.

A target writes a tree as text, and reads the text as a plan. Every target of a tree compiles to the same plan, so a
difference between two is a defect of one of them. The entry point group is ``lmerge.testing.targets``.

Called by systems under test. Imports concrete trees and the plans of the temporal engine.
"""
