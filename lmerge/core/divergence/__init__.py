"""Compares the inputs of one merge: digests of frozen events, the evidence, and which inputs differ in which interval.

Called by ``core.merge``. Imports elements, batches and errors of the core only.
"""
