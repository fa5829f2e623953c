"""Operators of the algebra by rows: the definition of what each one emits for every batch."""
