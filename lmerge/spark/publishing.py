"""``publish``: publishes a DataFrame as a replica's stream. Users call it in their own Python process.

    counts = (flights.withWatermark("ts", "10 seconds")
              .groupBy(window("ts", "1 minute"), "carrier").count())
    query = (lmerge.spark.publish(counts, servers="merge:7171", merge="flights", replica="a", mode="update",
                                  vs="window.start", ve="window.end")
             .option("checkpointLocation", "/data/flights/a").start())

The plan is read here, because it is available only here. It shows what the stream promises, how far its stable point
must stay behind the watermark, and what would differ between replicas. The results are passed on as options, because
the processes that write and commit have nothing else.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from lmerge.client.connection.security import Security
from lmerge.client.connection.streams import parse_targets
from lmerge.errors import UsageError
from lmerge.spark.arguments import Payload, Running
from lmerge.spark.options import (
    APPEND,
    DROP,
    FAIL,
    INTERVALS,
    KEYED,
    RAW,
    UPDATE,
    VE,
    VS,
    duration_us,
    moment_us,
    schema_text,
)
from lmerge.spark.plan.promises import PlanFacts, check
from lmerge.spark.plan.tree import WINDOW_KEY, is_connect, unsupported
from lmerge.spark.session import register
from lmerge.spark.sink.update_sink import publishing_writer
from lmerge.wire.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log: Final = logging.getLogger(__name__)

# Spark's output mode that gives the rows for a mode of publishing.
_OUTPUT_MODES: Final = {APPEND: "append", UPDATE: "update", INTERVALS: "append"}
# The output modes that a sink supports: the whole result in each batch is not a stream of changes.
_PUBLISHED: Final = ("append", "update")
_ALL_COLUMNS: Final = Payload()
_AS_USUAL: Final = Running()


def publish(
    df: DataFrame,
    *,
    servers: str | Iterable[str],
    merge: str,
    replica: str,
    vs: str | Column,
    ve: str | Column | None = None,
    mode: str = APPEND,
    keys: Sequence[str] | None = None,
    kind: str | None = None,
    payload: Payload = _ALL_COLUMNS,
    properties: Iterable[str] | None = None,
    stable_lag: str | None = None,
    late: str | None = None,
    allow: Collection[str] = (),
    running: Running = _AS_USUAL,
    security: Security | None = None,
) -> DataStreamWriter:
    """Return a writer that publishes ``df`` as the stream of ``replica``.

    Set ``.option("checkpointLocation", ...)`` and ``.trigger(...)`` on the writer, then call ``.start()``.

    - ``vs``, ``ve``: names or expressions of the lifetime, timestamps or whole numbers; ``ve`` None: events do not end.
    - ``mode``: ``append``, each row is an event; ``update``, a row replaces what was published for its ``keys`` (by
      default the grouping columns); ``intervals``, a row is a start (``ve`` is null), an end (``vs`` is null) or both
      of the interval that its ``keys`` name.
    - ``kind``: in mode ``intervals`` a column that declares start, end, or abort, which takes the event back.
    - ``payload``: the columns of the payload and their encoding.
    - ``properties``: what the stream promises, by default what its plan shows.
    - ``stable_lag``: how far the stable point stays behind the watermark, by default what the plan shows.
    - ``late``: ``fail`` or ``drop``, what happens to a row below the published stable point; by default ``fail`` where
      Spark lets no such row through, and where ``stable_lag`` declares that none comes.
    - ``allow``: codes of findings that are accepted (``lmerge.spark.explain`` lists them).
    - ``running``: how the query takes part in the merge, and how it runs.
    - ``security``: certificates and the token's file, under the same names on driver and executors. What it leaves out
      comes from their environment (LMERGE_CA, LMERGE_TOKEN and the like).

    Raises UsageError, naming the argument, or the expression of the plan that would differ between replicas.
    """
    _check(df, mode, late, running.output_mode)
    secured = security_options(security)
    register(df.sparkSession)
    payload = replace(payload, columns=_payload_names(df, (vs, ve, kind), payload.columns))
    stable_lag_us = None if stable_lag is None else duration_us(stable_lag)
    facts = check(
        df, vs, ve, mode, allow=allow, keys=keys, payload=payload, properties=properties, stable_lag_us=stable_lag_us
    )
    _log.info("replica %r of merge %r: %s", replica, merge, facts.explain())
    prepared, kept = _prepared(df, vs, ve, kind, payload, facts, running)
    spark_mode = running.output_mode or _OUTPUT_MODES[mode]
    _check_output_mode(prepared, spark_mode)
    late = late or (DROP if stable_lag is None and not (facts.stable and facts.stable.exact) else FAIL)
    options = secured | _plan_options(facts, kept) | _running_options(running, facts, is_connect(df))
    options |= {"servers": ",".join(parse_targets(servers)), "merge": merge, "replica": replica, "mode": mode}
    options |= {"vs": VS, "ve": None if ve is None else VE, "kind": kind, "late": late}
    options["schema"] = _encoding(prepared, payload)
    writer = publishing_writer(prepared, spark_mode)
    return writer.options(**{name: value for name, value in options.items() if value is not None})


def _check(df: DataFrame, mode: str, late: str | None, output_mode: str | None) -> None:
    if mode not in _OUTPUT_MODES:
        raise UsageError(f"cannot publish: mode is {mode!r:.40}; it is {', '.join(_OUTPUT_MODES)}")
    if late not in (None, FAIL, DROP):
        raise UsageError(f"cannot publish: late is {late!r:.40}; it is {FAIL} or {DROP}")
    if output_mode not in (None, *_PUBLISHED):
        raise UsageError(f"cannot publish: output_mode is {output_mode!r:.40}; it is {' or '.join(_PUBLISHED)}")
    if not df.isStreaming:
        raise UsageError("cannot publish: the DataFrame is not a streaming one; read it with spark.readStream")


def security_options(security: Security | None) -> dict[str, Any]:
    """Return the security settings as options, which executors and the agent read. Raises UsageError for a token."""
    if security is None:
        return {}
    if security.token is not None:
        raise UsageError(
            "cannot publish: a token would be readable for all in Spark's UI and logs: give token_file, "
            "or set LMERGE_TOKEN in the environment of the driver and the executors"
        )
    given = {field.name: getattr(security, field.name) for field in fields(security)}
    names = json.dumps(dict(security.server_names)) if security.server_names else None
    return {name: value for name, value in (given | {"server_names": names}).items() if value}


def _plan_options(facts: PlanFacts, kept: Sequence[str]) -> dict[str, Any]:
    return {
        "keys": json.dumps(list(kept)) if kept else None,
        "stable_lag_us": None if facts.stable is None else facts.stable.distance_us,
        "properties": ",".join(sorted(facts.properties)),
    }


def _running_options(running: Running, facts: PlanFacts, connect: bool) -> dict[str, Any]:
    return {
        "role": running.role,
        "join_at": moment_us(running.join_at) if isinstance(running.join_at, str) else running.join_at,
        "spool": running.spool,
        "give_up_after": running.give_up_after,
        "skips": _skips(facts, running) or None,
        "ends_after_cutover": None if connect else True,
    }


def _skips(facts: PlanFacts, running: Running) -> bool:
    return facts.skips if running.skips is None else running.skips


def _check_output_mode(prepared: DataFrame, output_mode: str) -> None:
    """Raise UsageError, with Spark's reason, if Spark would refuse the query at its start or in its first batch."""
    why = unsupported(prepared, output_mode)
    if why is not None:
        raise UsageError(f"cannot publish: Spark does not run this query in output mode {output_mode}: {why}")


def _payload_names(df: DataFrame, times: Iterable[str | Column | None], payload: Sequence[str] | None) -> list[str]:
    """Return the columns of the payload: those given, or all that are not part of ``times``."""
    roots = {part.split(".")[0] for part in times if isinstance(part, str)}
    names = list(payload) if payload is not None else [name for name in df.columns if name not in roots]
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise UsageError(f"cannot publish: payload has {missing[0]!r}; the columns are {', '.join(df.columns)}")
    if not names:
        raise UsageError("cannot publish: no column is left for the payload: name them, payload=Payload([...])")
    return names


def _encoding(prepared: DataFrame, payload: Payload) -> str:
    """Return the encoding of the payload's columns, as an option holds it."""
    schema, names = payload.schema, payload.columns or ()
    columns = prepared.select(*names).schema
    if schema == RAW:
        kinds = [field.dataType.simpleString() for field in columns]
        if len(kinds) != 1 or kinds[0] not in ("string", "binary"):
            described = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
            raise UsageError(f"cannot publish: schema is raw, which takes one column of text or bytes, not {described}")
        return RAW
    if schema is None:
        from lmerge.spark.types import schema_of_spark

        schema = schema_of_spark(columns, payload.round_digits)
    if isinstance(schema, str):
        raise UsageError(f"cannot publish: schema is {schema!r:.40}; it is columns with their types, or raw")
    return schema_text(parse_schema(schema))


def _keys(facts: PlanFacts, names: Sequence[str], vs: str | Column, ve: str | Column | None) -> tuple[str, ...]:
    """Return the columns by which a row replaces an earlier one, by their names in the prepared DataFrame."""
    if not facts.keys:
        raise UsageError(
            f"cannot publish: mode {facts.mode} needs keys, the columns that identify the rows of one event"
        )
    lifetime = {str(part): name for part, name in ((vs, VS), (ve, VE)) if isinstance(part, str)}
    keys = tuple(lifetime.get(key, key) for key in facts.keys)
    unknown = [key for key in keys if key not in (*names, VS, VE)]
    if unknown:
        raise UsageError(
            f"cannot publish: keys has {unknown[0]!r}, which is not a column of the payload: {', '.join(names)}"
        )
    return keys


def _check_ends(df: DataFrame, vs: str | Column, ve: str | Column | None, keys: Sequence[str]) -> None:
    """Raise UsageError if ends may change: an event that was left out because it has ended cannot be revised."""
    if ve is None or VE in keys:
        return
    window = ve.removesuffix(".end") if isinstance(ve, str) else ""
    if isinstance(vs, str) and vs == f"{window}.start" and VS in keys and window in df.columns:
        of_one_length = WINDOW_KEY in (df.schema[window].metadata or {})
        if of_one_length:
            return
    raise UsageError(
        "cannot publish: a query in mode update that skips (skip_to) must have ends that no revision changes: let vs "
        'and ve be those of one window of fixed length ("window.start", "window.end"), or name ve among the keys'
    )


def _prepared(
    df: DataFrame,
    vs: str | Column,
    ve: str | Column | None,
    kind: str | None,
    payload: Payload,
    facts: PlanFacts,
    running: Running,
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the DataFrame whose rows tasks publish, and the columns by which a row replaces an earlier one."""
    names = list(payload.columns or ())
    prepared = _with_lifetime(df, vs, ve, [*names, *([kind] if kind else [])])
    kept = _keys(facts, names, vs, ve) if facts.mode in KEYED else ()
    if facts.mode == UPDATE and _skips(facts, running):
        _check_ends(df, vs, ve, kept)
    # The state of what was published for a key is kept by partition.
    if facts.mode == INTERVALS or (facts.mode == UPDATE and not facts.gathered):
        partitions = running.partitions
        prepared = prepared.repartition(partitions, *kept) if partitions else prepared.repartition(*kept)
    return prepared, kept


def _with_lifetime(df: DataFrame, vs: str | Column, ve: str | Column | None, names: Sequence[str]) -> DataFrame:
    """Return the columns of the payload, then those of the lifetime under names of their own."""
    from pyspark.sql import functions

    times = [(VS, vs)] + ([] if ve is None else [(VE, ve)])
    columns = [(functions.expr(part) if isinstance(part, str) else part).alias(name) for name, part in times]
    prepared = df.select(*(functions.col(f"`{name}`") for name in names), *columns)
    for name, part in times:
        kind = prepared.schema[name].dataType.simpleString()
        if kind not in ("timestamp", "bigint", "int"):
            which = "vs" if name == VS else "ve"
            raise UsageError(
                f"cannot publish: {which} ({part}) is {kind}; it must be a timestamp or a whole number of "
                "microseconds since the epoch"
            )
    return prepared
