"""The intent transformer: from a scenario to concrete trees with nothing open (seed 001, 3 and 4).

What is open spans a space of tests: the words of each choice, of the data's nature and of the run. Covering arrays take
every pair, or triple, of them into some tree; all else is drawn from the seed. A ledger has what is covered, and what
cannot be, with the reason. Equal seeds give equal trees on every platform.

Called by ``lmerge test`` and testers. Imports scenarios and the plans of the temporal engine.
"""
