"""Dashboards as data, and the JSON that Grafana loads."""
