"""Comparing the inputs of one merge: digests of what each has frozen, the evidence, and who differs in which interval.

Called by ``core.merge``. Imports elements, batches and errors of the core only.
"""
