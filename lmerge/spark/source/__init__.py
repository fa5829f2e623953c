"""Reads a merge as a DataFrame: rows that depend on the table and two stable points alone.

Called by Spark through ``datasource``. Imports the client.
"""
