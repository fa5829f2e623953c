"""Defects that real load found."""

from seeded import Defect

HUB = "lmerge/service/hub.py"

DEFECTS = (
    Defect(
        "many subscribers get as many messages as one", HUB,
        "started + max(settings.turn_interval_s, per_subscriber_s)",
        "started + settings.turn_interval_s",
        "tests/service/test_turns.py::test_turns_are_apart_by_what_their_messages_cost[100-20]",
    ),
    Defect(
        "the inputs are compared in every turn", "lmerge/service/certify.py",
        "        if outcome.joined or outcome.detached:\n            self._changed = True",
        "        self._changed = True",
        "tests/service/test_turn_cost.py::test_a_turn_calls_no_more_functions_than_it_did[native-1]",
    ),
)
