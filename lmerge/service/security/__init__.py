"""Who may call what: certificates, tokens, access rights and quotas.

Called by ``service.server``, ``calls`` and ``admin``, and by ``lmerge token``. Imports the wire, and no merge.
"""
