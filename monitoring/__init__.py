"""The dashboards and alerts of lmerge, made from code: ``python -m monitoring`` writes them.

Operators load the files of ``monitoring/rules`` into Prometheus and those of ``monitoring/dashboards`` into Grafana;
the chart carries copies. This package is a tool of the repository and is not installed. Imports nothing of lmerge: it
knows a server by the names of its metrics, and the tests compare those with what a server exports.
"""
