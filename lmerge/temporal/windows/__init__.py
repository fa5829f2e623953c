"""Windows: how they divide time, which events belong to them, and when results are emitted (seed 000, II to V).

Called by plans, which make an operator of a window, a module and policies. Imports the values, changes and operators of
the algebra, and the calendar of the core. A module is what ``module`` declares: it imports none.
"""
