"""Defects of root causes: the events of the sources behind a result."""

from seeded import Defect

RUNS = "lmerge/temporal/runs"
PLAN = "lmerge/temporal/plan"
CAUSES = "tests/temporal/test_causes.py"

ENOUGH = f"{CAUSES}::test_the_events_behind_a_result_are_enough_for_it"
NO_OTHER = f"{CAUSES}::test_no_event_of_another_group_or_window_is_among_them"

DEFECTS = (
    Defect(
        "why: the events that make a snapshot's edges are not behind it",
        f"{PLAN}/origins.py",
        "                found.update(one for one in events if one.ve == start or one.vs == end)\n",
        "                pass\n",
        NO_OTHER,
    ),
    Defect(
        "why: an event that ends where a window starts is behind it",
        f"{PLAN}/origins.py",
        "    return event.vs < end and event.ve > start\n",
        "    return event.vs < end and event.ve >= start\n",
        NO_OTHER,
    ),
    Defect(
        "why: another left event is behind a part without a partner",
        f"{PLAN}/origins.py",
        "left.row + missing == event.row and left.vs <= event.vs and event.ve <= left.ve",
        "left.vs <= event.vs and event.ve <= left.ve",
        NO_OTHER,
    ),
    Defect(
        "why: what covers a left event is not behind its part",
        f"{PLAN}/origins.py",
        "            sides[0].add(left)\n            sides[1].update(found)\n",
        "            sides[0].add(left)\n",
        NO_OTHER,
    ),
    Defect(
        "why: the next sample is not behind an edge",
        f"{PLAN}/origins.py",
        "one.vs in (event.vs, event.ve) and",
        "one.vs == event.vs and",
        NO_OTHER,
    ),
    Defect(
        "why: all events of a group are behind each of its results",
        f"{RUNS}/causes.py",
        "found.update(tables.behind(result)[node.group])",
        "found.update(tables.events[node.group])",
        NO_OTHER,
    ),
    Defect(
        "why: events of another group with an equal result are behind a group's",
        f"{RUNS}/causes.py",
        "            if key[:width] == event.row[:width]:\n",
        "            if key:\n",
        NO_OTHER,
    ),
    Defect(
        "why: a sub-plan has the watermark of its group",
        f"{RUNS}/causes.py",
        "    times = [(delta.stable, _mark_of(delta)) for delta in batches]\n",
        "    times = [(delta.stable, None) for delta in batches]\n",
        f"{CAUSES}::test_windows_of_a_group_begin_with_events_of_others",
    ),
    Defect(
        "why: what is not enough is returned",
        f"{RUNS}/causes.py",
        "        chosen = _completed(node, records, chosen, event)\n",
        "        pass\n",
        ENOUGH,
    ),
    Defect(
        "why: an event that is not there any more has causes",
        f"{RUNS}/causes.py",
        "    if event not in tables.events[node]:\n",
        "    if not tables.events:\n",
        f"{CAUSES}::test_an_event_that_is_not_there_is_named",
    ),
    Defect(
        "why: events that can still change are dropped from the record",
        f"{RUNS}/recording.py",
        "(event for event in self._events if event.ve < self._stable)",
        "(event for event in self._events)",
        f"{CAUSES}::test_a_record_is_bounded_by_what_is_live_and_a_number_of_final_events",
    ),
)
