"""Defects of ``lmerge/wire``."""

from seeded import Defect

WIRE = "lmerge/wire/"
COLUMNS = "tests/wire/test_codec_columns.py::"

DEFECTS = (
    Defect(
        "payload ends may go back",
        WIRE + "codec.py",
        "    if ends != sorted(ends):",
        "    if False:",
        COLUMNS + "test_hostile_columns_are_refused_by_name",
    ),
    Defect(
        "a limit that is exceeded is called a broken batch",
        WIRE + "native_frames.py",
        "LimitExceeded if problem.is_limit else InvalidBatch",
        "InvalidBatch if problem.is_limit else LimitExceeded",
        COLUMNS + "test_limits_are_kept_on_arrival[native]",
    ),
    Defect(
        "batches of one message change places",
        WIRE + "codec.py",
        'return Batch(b"".join(batch.kinds for batch in batches), vs',
        'return Batch(b"".join(batch.kinds for batch in reversed(batches)), vs',
        "tests/wire/test_frames.py::test_a_message_is_byte_for_byte_what_protobuf_writes[python]",
    ),
    Defect(
        "a group of batches is too large for a message",
        WIRE + "frames.py",
        "elements + batch.count > limits.elements",
        "elements > limits.elements",
        "tests/wire/test_frames.py::test_groups_lose_nothing_keep_the_order_and_fit_into_messages",
    ),
)
