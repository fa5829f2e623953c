"""Steps of a plan on the native core: the same output, errors and state as the operators in Python.

Called by ``plan.compiling``, in functions only: importing a module of this package imports the compiled core. Imports
the nodes of plans, and the operators in Python for their rules.
"""
