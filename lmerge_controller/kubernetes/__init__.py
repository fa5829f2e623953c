"""The backend for Kubernetes: a version of a query is a StatefulSet, a replica a Pod. Called by `lmerge controller`.

    api         objects as JSON, over the official client: errors by what a caller can do about them
    lease_rules who may lead, in which term; pure
    election    the Lease that decides it

It imports `kubernetes` (the extra of that name), the model, the plan and the loop of `lmerge_controller`, and nothing
of the service. The data path goes on without it: no replica and no server asks the controller for anything.
"""
