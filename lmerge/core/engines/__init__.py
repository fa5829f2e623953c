"""The engines of a merge: each runs the algorithm, its index and the live output.

The Python engine is the definition; the native engine gives the same bytes. ``core.merge`` calls them. Other packages
call ``selection``, which chooses one. The Python engine imports the algorithms, the native engine the compiled core.
"""
