"""Runs a merged query as processes of this machine. Called by `lmerge up`, `lmerge down` and `lmerge ps`.

`supervisor` keeps processes running, `state_folder` holds what must outlive the supervisor. Imports the standard
library, and `lmerge` for errors, files, addresses and the client.
"""
