"""The rules of the lint: the expressions whose values differ between replicas.

A replica must compute the same rows from the same input, whenever and wherever it runs. A value that depends on the
clock, on chance, on where a row lies, or on the order in which rows arrive is not the same. Each rule names what to use
instead, and the expressions above it that make the value the same again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from lmerge.errors import UsageError
from lmerge.spark.options import SKIP_FILTER, duration_us
from lmerge.spark.plan.bounds import FIXED_INTERVAL_US_MAX, shifted
from lmerge.spark.plan.tree import Expr

ERROR: Final = "error"
WARNING: Final = "warning"
UNREAD: Final = "unread"


class Code(NamedTuple):
    """The common part of findings of one code. ``severities``: the usual one first. ``finds``: in Markdown."""

    severities: tuple[str, ...]
    finds: str


_ERROR: Final = (ERROR,)
_WARNING: Final = (WARNING,)

# All codes: the values of allow=, and the table of docs/spark.md, which a test writes from here.
CODES: Final[Mapping[str, Code]] = {
    "clock": Code(_ERROR, "`now()`, `current_date()`: the time at which a batch runs"),
    "processing-time": Code(_ERROR, "timers and timeouts by the machine's clock"),
    "random": Code(_ERROR, "`rand`, `uuid`, `shuffle`"),
    "nondeterministic": Code(_ERROR, "an expression that Spark itself calls non-deterministic"),
    "udf-nondeterministic": Code(_ERROR, "code that is declared non-deterministic"),
    "partition": Code(_ERROR, "where a row lies: `monotonically_increasing_id`, `spark_partition_id`"),
    "input-file": Code(
        _ERROR, "`input_file_name`, and what `_metadata` has of a row's file: name, size, time of change"
    ),
    "unordered": Code(_ERROR, "`collect_list`, `collect_set`, `listagg` without `array_sort`: values as rows arrived"),
    "first-last": Code(_ERROR, "`first`, `last`, `any_value`: the row that happens to come first or last"),
    "float-aggregate": Code(
        (ERROR, WARNING),
        "sums and averages of floats, also cast to whole numbers or to text; a warning for averages of `bigint`",
    ),
    "limit": Code(_ERROR, "`limit`: as many rows as come first"),
    "sample": Code(_ERROR, "a sample of the rows"),
    "source": Code(_ERROR, "`rate` and `socket` sources, which give every replica other rows"),
    "update-key": Code(_ERROR, "mode `update`: revised rows that cannot be distinguished"),
    "update-filter": Code(_ERROR, "mode `update`: a filter above the aggregation hides revisions from the sink"),
    "update-explode": Code(_ERROR, "mode `update`: several rows for one revised row"),
    "update-partitions": Code(_ERROR, "mode `update`: revised rows that move between partitions"),
    "update-join": Code(_ERROR, "mode `update`: a join above the aggregation"),
    "stable": Code(_ERROR, "no stable point can be derived: declare `stable_lag`"),
    "rounded-float": Code(
        _WARNING, "a sum of floats, rounded or cast to a decimal: near a tie replicas round to different numbers"
    ),
    "ties": Code(
        _WARNING,
        "`max_by` and `mode` among equals, `array_sort` and `listagg` by an order in which different values are equal",
    ),
    "approximate": Code(_WARNING, "`percentile_approx`, sketches: they depend on the order of rows"),
    "session-zone": Code(
        _WARNING,
        "what depends on `spark.sql.session.timeZone`: `hour`, `date_format`, a timestamp as text or date, "
        "days added to one; files of JSON, CSV or XML with timestamps, where the zone is the machine's. Not found: a "
        "literal without an offset (`timestamp'2024-05-01 00:00:00'`), which Spark's parser turns into a constant",
    ),
    "udf": Code(_WARNING, "code that cannot be analysed"),
    "environment": Code(_WARNING, "`current_user`, `version`: who runs the query, and where"),
    "source-start": Code(_WARNING, "Kafka from `latest`: every replica begins somewhere else"),
    "source-loss": Code(_WARNING, "`failOnDataLoss` false: a source that may skip rows"),
    "static-join": Code(_WARNING, "a table that can change between replicas"),
    "dedup-first": Code(_WARNING, "`dropDuplicates` on some columns keeps whichever of two twins came first"),
    "dedup-state": Code(_WARNING, "`dropDuplicates` without an event time remembers all keys for ever"),
    "dedup-within-watermark": Code(_WARNING, "`dropDuplicatesWithinWatermark` drops by batch boundaries"),
    UNREAD: Code(_WARNING, "a plan that cannot be read, as that of a Spark Connect session"),
}


@dataclass(frozen=True)
class Rule:
    """Why an expression cannot be replicated. ``cured_by``: kinds of expressions above it that make its value the same.

    ``softened_by``: kinds that only make differences rarer; ``soft`` is the rule that remains then.
    """

    code: str
    severity: str
    problem: str
    instead: str
    cured_by: frozenset[str] = frozenset()
    softened_by: frozenset[str] = frozenset()
    soft: Rule | None = None


_CLOCK = Rule(
    "clock",
    ERROR,
    "is the time at which this replica runs the batch, and every replica runs it at another",
    "take the event time from the row; for 'how old is it' compare with the watermark, or with another column",
)
_RANDOM = Rule(
    "random",
    ERROR,
    "is another value on every replica, and in every attempt",
    "derive it from the row, for example xxhash64 of its key",
)
_PARTITION = Rule(
    "partition",
    ERROR,
    "depends on how the rows are spread over partitions, which differs between replicas",
    "use an identifier that the row brings along, or a hash of its columns",
)
FILE: Final = Rule(
    "input-file",
    ERROR,
    "describes the file of a row, and replicas can read the same rows from other files",
    "put the needed part of the name into the data, or do not publish it",
)
_COUNTED = frozenset({"Count", "IsNull", "IsNotNull"})
_SORT_TIES = Rule(
    "ties",
    WARNING,
    "sorts by an order of its own, and values that are equal in it stay as they arrived",
    "array_sort without a function of its own, or one that compares the whole values with < and with >; put the sort "
    "key first: struct(key, value)",
    _COUNTED,
)
_UNORDERED = Rule(
    "unordered",
    ERROR,
    "holds its values in the order in which rows arrived, which no two runs share",
    "sort it: array_sort(...) or sort_array(...) around it",
    _COUNTED | {"SortArray", "Size", "ArraySize", "ArrayMin", "ArrayMax", "ArrayContains"},
    softened_by=frozenset({"ArraySort"}),
    soft=_SORT_TIES,
)
_LISTED = Rule(
    "unordered",
    ERROR,
    "joins its values in the order in which rows arrived, which no two runs share",
    "array_join(array_sort(collect_list(...)), ...)",
    _COUNTED | {"Length"},
)
_FIRST = Rule(
    "first-last",
    ERROR,
    "is the value of whichever row arrived first or last, which no two runs share",
    "min, max, or max_by/min_by with a unique second argument",
    _COUNTED,
)
_TIES = Rule(
    "ties",
    WARNING,
    "can come from any of several rows if their compared values are equal",
    "make the compared value unique, for example a struct of it and an identifier; or allow it if it is",
    _COUNTED,
)
_LIST_TIES = Rule(
    "ties",
    WARNING,
    "orders its values by something else, and values that are equal in it come as rows arrived",
    "WITHIN GROUP (ORDER BY) the value itself, or something unique",
    _COUNTED,
)
_EXACT = "lmerge.spark.exact_sum or exact_avg, or add decimals: sum(cast(... as decimal(38, 6)))"
ROUNDED_FLOAT: Final = Rule(
    "rounded-float",
    WARNING,
    "rounds a sum of floating-point numbers, whose last digits depend on their order: two sums that differ there can "
    "lie on two sides of a tie, such as 24.565 and 24.564999999999998, and are then rounded to different numbers",
    f"{_EXACT}, and round that",
    _COUNTED,
)
# Cutting digits off does not help: 2.9999999999999996 and 3.0 differ in all that is left.
_FLOAT = Rule(
    "float-aggregate",
    ERROR,
    "adds floating-point numbers, and the last digits of the sum depend on the order, which no two runs share",
    _EXACT,
    _COUNTED,
    softened_by=frozenset({"Round", "BRound", "FormatNumber", "Cast decimal"}),
    soft=ROUNDED_FLOAT,
)
_VECTOR = replace(_FLOAT, instead="exact_sum of each element")
_BIG_AVERAGE = Rule(
    "float-aggregate",
    WARNING,
    "adds as floating-point numbers, which is exact only while the sum stays below 2**53",
    "average a decimal: avg(cast(... as decimal(38, 0)))",
    _COUNTED,
)
_APPROXIMATE = Rule(
    "approximate",
    WARNING,
    "is approximate, and the approximation depends on the order in which rows are merged",
    "the exact function, such as percentile or count(distinct ...); approx_count_distinct is fine",
    _COUNTED,
)
_ENVIRONMENT = Rule("environment", WARNING, "depends on who runs the query, and where", "a literal")
_ZONE = Rule(
    "session-zone",
    WARNING,
    "depends on the time zone of the session, which is the machine's if it was not set",
    'the same spark.sql.session.timeZone for every replica, and then allow=("session-zone",); or without a zone: '
    "window, unix_micros, intervals of less than a day",
    _COUNTED,
)
ZONED_SOURCE: Final = Rule(
    "session-zone",
    WARNING,
    "reads timestamps from text; those without an offset are read in the zone of this machine",
    '.option("timeZone", "UTC") on the source, or the same spark.sql.session.timeZone for every replica',
)
NONDETERMINISTIC: Final = Rule(
    "nondeterministic", ERROR, "is nondeterministic according to Spark", "an expression of the row's columns alone"
)
UDF: Final = Rule(
    "udf",
    WARNING,
    "is code that cannot be analysed: it must return the same for the same rows, at any time",
    'an expression of Spark; or allow=("udf",) if it is a pure function of its arguments',
)
UDF_NONDETERMINISTIC: Final = Rule(
    "udf-nondeterministic", ERROR, "is declared non-deterministic", "a function of its arguments alone"
)

_BY_KIND: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurrentBatchTimestamp"), _CLOCK
    ),
    **dict.fromkeys(("Rand", "Randn", "Uuid", "Shuffle", "RandStr", "Uniform"), _RANDOM),
    **dict.fromkeys(("MonotonicallyIncreasingID", "SparkPartitionID"), _PARTITION),
    **dict.fromkeys(("InputFileName", "InputFileBlockStart", "InputFileBlockLength"), FILE),
    **dict.fromkeys(("CollectList", "CollectSet", "CollectUnion"), _UNORDERED),
    **dict.fromkeys(("VectorSum", "VectorAvg"), _VECTOR),
    **dict.fromkeys(("First", "Last", "AnyValue"), _FIRST),
    **dict.fromkeys(("MaxBy", "MinBy", "Mode", "PandasMode"), _TIES),
    **dict.fromkeys(
        (
            "ApproximatePercentile",
            "ApproxTopK",
            "ApproxTopKAccumulate",
            "ApproxTopKCombine",
            "HistogramNumeric",
            "HllSketchAgg",
            "HllUnionAgg",
            "ThetaSketchAgg",
            "ThetaUnionAgg",
            "KllSketchAggBigint",
            "KllSketchAggFloat",
            "KllSketchAggDouble",
            "KllMergeAggBigint",
            "KllMergeAggFloat",
            "KllMergeAggDouble",
            "ThetaIntersectionAgg",
            "TupleSketchAggDouble",
            "TupleSketchAggInteger",
            "TupleUnionAggDouble",
            "TupleUnionAggInteger",
            "TupleIntersectionAggDouble",
            "TupleIntersectionAggInteger",
            "ApproxQuantile",
        ),
        _APPROXIMATE,
    ),
    **dict.fromkeys(
        ("CurrentUser", "SessionUser", "CurrentDatabase", "CurrentCatalog", "SparkVersion", "CurrentTimeZone"),
        _ENVIRONMENT,
    ),
}
# Aggregates that add everything as doubles, in parts that are merged.
_MOMENTS: Final = frozenset(
    {
        "StddevSamp",
        "StddevPop",
        "VarianceSamp",
        "VariancePop",
        "Skewness",
        "Kurtosis",
        "Corr",
        "PearsonCorrelation",
        "CovSample",
        "CovPopulation",
        "RegrReplacement",
        "RegrR2",
        "RegrSXX",
        "RegrSYY",
        "RegrSXY",
        "RegrSlope",
        "RegrIntercept",
        "PandasStddev",
        "PandasVariance",
        "PandasSkewness",
        "PandasKurtosis",
        "PandasCovar",
    }
)
_FLOATS: Final = frozenset({"float", "double"})


def rule_for(e: Expr) -> Rule | None:
    """Return the rule that ``e`` itself breaks, whatever is below it; None if it breaks none."""
    if is_skip(e):
        return None
    if e.kind in _MOMENTS:
        return _FLOAT
    if e.kind in ("Sum", "Average", "TrySum", "TryAverage", "Product"):
        of = e.children[0].type
        return _FLOAT if of in _FLOATS else _BIG_AVERAGE if of == "bigint" and "Average" in e.kind else None
    if e.kind == "AesEncrypt":
        mode, vector = _constant(e.children[2]), _constant(e.children[4])
        return None if mode == "ECB" or vector != "" else _RANDOM
    if e.kind == "ListAgg":
        # Further children are the expressions of WITHIN GROUP (ORDER BY ...).
        by = [order.children[0].sql for order in e.children[2:]]
        return _LISTED if not by else None if e.children[0].sql in by else _LIST_TIES
    if e.kind in ("MaxBy", "MinBy") and _compares_itself(e):
        return None
    rule = _BY_KIND.get(e.kind)
    if rule is not None:
        return rule
    if e.zoned and (e.meaning is None or e.kind in (_PARSERS | _WRITERS)) and _depends_on_zone(e):
        return _ZONE
    if is_udf(e):
        return UDF if e.deterministic else UDF_NONDETERMINISTIC
    own = not e.deterministic and all(child.deterministic for child in e.children)
    return NONDETERMINISTIC if own else None


def _compares_itself(e: Expr) -> bool:
    """Whether the value of max_by or min_by is part of what it compares, so that equal rows have equal values.

    False for a float: 0.0 and -0.0 are equal and differ.
    """
    value, compared = e.children
    is_float = value.type in ("float", "double")
    return compared.kind == "CreateNamedStruct" and not is_float and value.sql in (c.sql for c in compared.children)


def is_udf(e: Expr) -> bool:
    """Whether ``e`` calls code of the user's."""
    names = ("UDF", "UDAF", "UDTF", "ScalaAggregator", "TypedAggregateExpression")
    return any(name in e.kind for name in names) and not is_skip(e)


def is_skip(e: Expr) -> bool:
    """Whether ``e`` is the filter that leaves out unneeded events (``skipping``). Replicas may differ by it."""
    return e.kind == "PythonUDF" and e.name == SKIP_FILTER


def what_remains(above: Expr, rule: Rule) -> Rule | None:
    """Return the rule that a value breaks above ``above`` if it breaks ``rule`` below; None: it is cured."""
    if above.kind in rule.cured_by:
        return None
    if above.kind == "ArraySort" and rule is _UNORDERED and _orders_fully(above.children[1]):
        return None
    kind = "Cast decimal" if above.kind == "Cast" and above.type.startswith("decimal") else above.kind
    return rule.soft if kind in rule.softened_by else rule


def _orders_fully(comparator: Expr) -> bool:
    """Whether a function of array_sort treats only equal values as equal: it compares whole values, in both ways."""
    kinds = {e.kind for e in comparator.children[0].walk()}
    of_whole = all(
        child.kind == "NamedLambdaVariable" or not any(part.kind == "NamedLambdaVariable" for part in child.walk())
        for e in comparator.children[0].walk()
        if e.kind not in _BRANCHES
        for child in e.children
    )
    return of_whole and kinds >= {"LessThan", "GreaterThan"}


_BRANCHES: Final = frozenset({"If", "CaseWhen", "And", "Or", "Not"})
# A constant text with its own zone: 2024-05-01T12:00:00Z, ... +02:00.
_HAS_OFFSET: Final = re.compile(r"\d[Tt ]\s*\d{1,2}:.*(Z|UTC|GMT|[+-]\d{1,2}(:?\d\d)*)\s*$")
_PARSERS: Final = frozenset({"JsonToStructs", "CsvToStructs", "XmlToStructs"})
_WRITERS: Final = frozenset({"StructsToJson", "StructsToCsv", "StructsToXml"})
# A moment; neither a date nor a local time without a zone.
_TIMED: Final = re.compile(r"\btimestamp(_ltz)?\b")


def _constant(e: Expr) -> int | str | None:
    while e.kind == "Cast":
        (e,) = e.children
    return e.value


def _is_gap(e: Expr) -> bool:
    """Whether a text of less than a day is added to a time, as session_window does."""
    if e.kind != "TimestampAddInterval" or e.children[1].kind != "Cast":
        return False
    (text,) = e.children[1].children
    with suppress(UsageError):
        return isinstance(text.value, str) and duration_us(text.value) < FIXED_INTERVAL_US_MAX
    return False


def _depends_on_zone(e: Expr) -> bool:
    """Whether the zone that Spark gives ``e`` can matter."""
    of = e.children[0] if e.children else e
    if e.kind == "Cast" and of.kind == "Literal":
        return of.value is not None and not _HAS_OFFSET.search(str(of.value))
    if shifted(e) is not None or _is_gap(e):
        return False  # shifted by a constant without days and months
    if e.kind in _PARSERS:
        return _TIMED.search(e.type) is not None
    if e.kind in ("FromUnixTime", "UnixTimestamp", "ToUnixTimestamp"):
        return of.type != "timestamp"
    if e.kind in ("VariantGet", "TryVariantGet") and e.type == "string":
        return True
    return e.kind == "Cast" or any(_TIMED.search(part.type) for part in (e, *e.children))
