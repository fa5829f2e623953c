"""The commands of administrators, and monitoring: cutover, reset, status, metrics, HTTP.

Called by ``service.server``. It reads merges through their views, and changes them through steps of the hub. Imports
``merge``, ``output`` and ``security``.
"""
