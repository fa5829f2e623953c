"""Algorithms of the paper that only comparisons use: R3- (VI.A) and Cleanse (VI.D).

Benchmarks and tests call them. ``R3-`` can be chosen by name for a recorded session. Imports the algorithms and values
of the core.
"""
