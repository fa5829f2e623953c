"""Algorithms of the paper that only comparisons use: R3- (VI.A) and Cleanse (VI.D).

Called by benchmarks and tests, and by the Python engine, because R3- can be chosen by name. Imports the algorithms and
values of the core.
"""
