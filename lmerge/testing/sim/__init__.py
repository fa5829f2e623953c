"""Deterministic simulation of the whole system: one seed is one run, in virtual time. See docs/simulation.md."""
