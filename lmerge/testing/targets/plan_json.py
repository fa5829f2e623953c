"""The plan JSON of ``lmerge.temporal`` as a target."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lmerge.errors import UsageError
from lmerge.temporal.plan.json_format import plan_from_json, plan_to_json
from lmerge.temporal.plan.nodes import PlanNode


class PlanJson:
    """Plans as documents of JSON."""

    name = "json"

    def written(self, outputs: Mapping[str, PlanNode]) -> str:
        """Return a plan as JSON."""
        return json.dumps(plan_to_json(outputs), indent=2)

    def read(self, text: str) -> dict[str, PlanNode]:
        """Return the plan. Raises UsageError for what is no JSON, and PlanError for what is no plan."""
        try:
            document = json.loads(text)
        except ValueError as problem:
            raise UsageError(f"the plan is no JSON: {problem}") from None
        return plan_from_json(document)
