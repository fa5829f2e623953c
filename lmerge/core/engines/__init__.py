"""The engines under a merge: each runs the algorithm, its index and the live output.

The Python engine is the definition; the native one gives the same bytes. Called by ``core.merge``. Imports the
algorithms; the native engine alone imports the compiled core.
"""
