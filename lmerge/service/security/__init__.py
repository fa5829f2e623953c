"""Who may call what: certificates, tokens, access rights and quotas.

Called by ``service.server`` and the calls. It imports no merge.
"""
