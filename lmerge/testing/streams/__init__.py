"""The stream event generator: tables of events and physical streams of them, by facets in words (seed 001, 5).

One generator for operators, merges and the simulation. Every word of a facet has a meaning in numbers (``facets``) and
a measure over what came out (``measures``). Equal seeds give equal bytes on every platform: draws use nothing of
``random`` but whole numbers and fractions.

Called by the transformer, tests and benchmarks. Imports the core's elements and the wire's schemas.
"""
