"""The conversion between protobuf messages and the core's columns.

* ``lmerge.wire.generated``: code generated from proto/lmerge/v1/lmerge.proto by scripts/generate_wire.py::

      from lmerge.wire.generated import lmerge_pb2 as pb, lmerge_pb2_grpc as pb_grpc

* ``lmerge.wire.frames``: messages that carry batches, from bytes to an engine's batch and back; ``native_frames`` does
  the same on the native core, and ``engine_frames`` chooses.
* ``lmerge.wire.codec``: a core Batch to and from a wire Batch, with every check that hostile input needs.
* ``lmerge.wire.rows``: declared schemas, and rows to and from canonical payload bytes; ``lmerge.wire.arrow`` does the
  same for Arrow tables.
* ``lmerge.wire.names``, ``lmerge.wire.token``: the rule for names, and resume tokens.
* ``lmerge.wire.limits``: the default limits of both sides.

Called by the service, the client and Spark. Imports protobuf and the core.
"""
