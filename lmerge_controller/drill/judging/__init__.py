"""Judges what a probe stream delivered: pure, and no part of lmerge's merging code.

Called by the drill's runner with the truth of the stream and the recorded output. Imports the standard library alone,
so that a fault of the merge cannot hide in the judge. The rules of legal streams are written here a second time, after
III.C of the paper.
"""
