"""What to do about a merged query: ``plan(query, observed) -> QueryPlan``.

Called by the loop and by `lmerge plan`. Pure: it imports the model alone, and has no I/O and no clock.

    observed      what was seen: servers, inputs, processes, and what the controller has recorded
    record        what a backend persists between two plans
    actions       what can be done
    conditions    what is reported
"""
