"""What administrators and monitoring ask of a server: commands, cutover, status, metrics, HTTP.

Called by ``service.server``. Reads merges through their views; changes them through steps of the hub.
"""
