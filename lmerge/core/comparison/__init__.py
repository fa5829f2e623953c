"""Algorithms of the paper that only comparisons use: R3- (VI.A) and Cleanse (VI.D). No product path imports them.

Called by benchmarks and tests; ``R3-`` can be chosen by name for a recorded session.
"""
