"""The functions of a database that compute values: each calls the engine's evaluator on rows as they are on the wire.

A function is named by what it computes, so that the SQL reads as the query does: ``WHERE "delay > 15"(payload)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, Final

import duckdb

from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.values import Values
from lmerge.testing.judging.sort_keys import sort_key, value_key
from lmerge.wire.schema import Column, Schema

BLOB, BOOLEAN, BIGINT = "BLOB", "BOOLEAN", "BIGINT"
RESULTS: Final = "STRUCT(payload BLOB, vs BIGINT, ve BIGINT)[]"
"""What a window gives: rows, each with a lifetime of its own."""
_ROWS_KEPT: Final = 4096
_NAME_MAX: Final = 200


class SchemaRows:
    """Rows of one schema, from and to payloads."""

    def __init__(self, schema: Schema) -> None:
        forms = RowForms(schema)
        self.schema = schema
        self.values: Callable[[bytes], Values] = lru_cache(maxsize=_ROWS_KEPT)(forms.of_payload)
        self.payload: Callable[[Values], bytes] = forms.payload


class Functions:
    """Registers functions in one database. They live as long as it does: a function that is dropped under it crashes.

    ``failure``: the first error that a function raised, because DuckDB passes on only its text.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database: Any = database  # its stubs know enums alone
        self._names: dict[str, int] = {}
        self._registered: list[str] = []
        self._kept: list[Callable[..., Any]] = []
        self._rows: dict[Schema, SchemaRows] = {}
        self.failure: BaseException | None = None

    def rows(self, schema: Schema) -> SchemaRows:
        """Return the rows of a schema."""
        found = self._rows.get(schema)
        if found is None:
            found = self._rows[schema] = SchemaRows(schema)
        return found

    def add(self, shown: str, function: Callable[..., Any], takes: Sequence[str], gives: str) -> str:
        """Register a function, and return its name, quoted. ``takes``, ``gives``: types of DuckDB."""
        name = shown.replace('"', "'")[:_NAME_MAX]
        number = self._names[name] = self._names.get(name, 0) + 1
        if number > 1:
            name = f"{name} ({number})"

        @wraps(function)  # DuckDB counts its parameters
        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as problem:
                self.failure = self.failure or problem
                raise

        self._kept.append(guarded)
        self._database.create_function(name, guarded, list(takes), gives, null_handling="special")
        self._registered.append(name)
        return f'"{name}"'

    def clear(self) -> None:
        """Remove all functions, so that the database is as it was."""
        for name in self._registered:
            self._database.remove_function(name)
        self._registered.clear()
        self._names.clear()
        self._kept.clear()
        self.failure = None

    # The forms that queries need.

    def predicate(self, shown: str, schema: Schema, evaluate: Callable[[Values], Any]) -> str:
        """Return a function of a payload that is true, false or NULL."""
        values = self.rows(schema).values
        return self.add(shown, lambda payload: evaluate(values(payload)), [BLOB], BOOLEAN)

    def projection(self, shown: str, schema: Schema, made: Schema, evaluate: Callable[[Values], Values]) -> str:
        """Return a function of a payload that gives another row's payload."""
        values, payload_of = self.rows(schema).values, self.rows(made).payload
        return self.add(shown, lambda payload: payload_of(evaluate(values(payload))), [BLOB], BLOB)

    def key(
        self,
        shown: str,
        schema: Schema,
        columns: Sequence[Column],
        evaluate: Callable[[Values], Values],
        *,
        matches_missing: bool = True,
    ) -> str:
        """Return a function of a payload whose results are equal exactly if the keys are.

        ``matches_missing``: whether missing values are equal, as in groups; else the key of a row with one is NULL.
        """
        values = self.rows(schema).values

        def key_of(payload: bytes) -> bytes | None:
            found = evaluate(values(payload))
            return None if not matches_missing and None in found else sort_key(found, columns)

        return self.add(shown, key_of, [BLOB], BLOB)

    def order(self, schema: Schema) -> str:
        """Return a function of a payload whose results have the order of rows."""
        values = self.rows(schema).values
        return self.add("order of rows", lambda payload: sort_key(values(payload), schema.columns), [BLOB], BLOB)

    def ranking(self, shown: str, schema: Schema, order: Sequence[tuple[Column, Callable[[Values], Any], bool]]) -> str:
        """Return a function of a payload whose results have the order of expressions, each ascending or descending."""
        values = self.rows(schema).values

        def key_of(payload: bytes) -> bytes:
            row = values(payload)
            return b"".join(value_key(evaluate(row), column, descending=down) for column, evaluate, down in order)

        return self.add(shown, key_of, [BLOB], BLOB)
