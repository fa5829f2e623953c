"""Reads a merge as a DataFrame: the rows of a batch depend on the table and two stable points alone.

Called by Spark through ``datasource``. Imports the client, and the Arrow columns of ``sink``.
"""
