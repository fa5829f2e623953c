"""Windows: how they divide time, which events belong to them, and when results are emitted (seed 000, II to V)."""
