"""The description of a merged query, `ReplicatedQuery`: schema, values, reading, validation.

Called by every part of the controller. Imports the names and errors of `lmerge`, pyyaml and jsonschema.

    replicated_query.schema.json    what a spec may contain, with defaults: the definition
    query                           the same as frozen values
    reading                         a file, or a resource of Kubernetes, to values; errors that name the field
    invocation                      the command and the environment of a replica's process
"""
