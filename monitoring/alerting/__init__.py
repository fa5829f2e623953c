"""Alerts as data, and the files of Prometheus that are made from them."""
