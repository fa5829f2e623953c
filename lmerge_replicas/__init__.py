"""Replicas that come with lmerge: the flights of the demo, in plain Python and in PySpark. Run by `lmerge replica`."""
