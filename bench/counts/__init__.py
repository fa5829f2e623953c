"""The same grouped count in lmerge, in stream processors, and as a batch in databases."""
