"""Judges an operator of windows by its definition, after every batch of a random stream."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from temporal_world import ROWS, StreamTable, cut, random_stream
from window_definition import WindowDefinition, stable_of_the_table

from lmerge.core.elements import INF
from lmerge.temporal.values import OrderKey, Values
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Form
from lmerge.temporal.windows.window_operator import WindowOperator

LENGTHS = (4, 8, 12, 20)


def check_windows(
    rules: WindowRules,
    random_: random.Random,
    rows: Sequence[Values] = ROWS,
    defined: WindowModule | None = None,
    output_key: OrderKey = lambda row: row,
) -> None:
    """Run an operator over a random stream, by groups or without, and judge it after every batch.

    ``defined``: computes what the module must; without it the module is taken to be right.
    """
    is_grouped = random_.random() < 0.5 and not rules.keeps_empty
    key_of = (lambda row: row[:1]) if is_grouped else (lambda row: ())
    operator = WindowOperator("windows", rules, output_key, key_of if is_grouped else None)
    by_definition = rules if defined is None else replace(rules, module=defined)
    definition, output = WindowDefinition(by_definition, key_of), StreamTable()
    for delta in cut(random_, random_stream(random_, random_.choice(LENGTHS), rows)):
        emitted = operator.step([delta])
        output.apply(emitted)
        assert output.events == definition.take(delta)
        assert output.stable == definition.output_stable
        assert emitted.stable is None or delta.stable is not None
        if rules.form in (Form.EAGER, Form.SETTLED):
            assert stable_of_the_table(rules, key_of, definition.table) in (None, output.stable)
    assert rules.form is not Form.FINAL or output.inserts_only
    if definition.table.stable == INF:
        assert operator.live() == 0
