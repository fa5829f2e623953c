"""The engines of a merge: each runs the algorithm, its index and the live output.

The Python engine is the definition; the native engine gives the same bytes. ``core.merge`` calls them. They import the
algorithms; only the native engine imports the compiled core.
"""
