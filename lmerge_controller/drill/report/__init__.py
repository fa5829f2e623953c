"""Reports of drills: text, JSON, JUnit, a page of HTML, and metrics.

Called by the command ``drill``. Each module returns the text of one form from the same results, without I/O. Imports
the judge's values and the escaping of text from outside.
"""
