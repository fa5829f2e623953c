"""What makes a plan another one on every replica: the table of expressions that the lint knows.

A replica computes the same rows from the same input, whenever and wherever it runs. What depends on the clock, on
chance, on where a row lies, or on the order in which rows arrive, does not. Each rule names what would do instead, and
the expressions above it that make its value the same after all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lmerge.spark.options import WANTED
from lmerge.spark.plantree import Expr

ERROR: Final = "error"
WARNING: Final = "warning"
UNREAD: Final = "unread"

# Every code, for allow= and for the documentation.
CODES: Final[Mapping[str, str]] = {
    "clock": "the time at which a batch runs",
    "random": "chance",
    "partition": "where a row lies among the partitions",
    "input-file": "the file that a row came from",
    "unordered": "values in the order in which rows arrived",
    "first-last": "the row that happens to come first or last",
    "ties": "one of several equal candidates",
    "float-aggregate": "sums of floating-point numbers, which depend on their order",
    "approximate": "an approximation that depends on the order of rows",
    "environment": "the user, session or version that runs the query",
    "nondeterministic": "an expression that Spark itself calls non-deterministic",
    "udf": "code that cannot be looked into",
    "udf-nondeterministic": "code that says of itself that it is not deterministic",
    "processing-time": "timers of the machine's clock",
    "limit": "as many rows as come first",
    "sample": "a sample of the rows",
    "source": "a source that gives every replica other rows",
    "source-start": "a source that every replica begins to read somewhere else",
    "source-loss": "a source that may skip rows",
    "dedup-first": "dropDuplicates on some columns keeps whichever row came first",
    "dedup-state": "dropDuplicates without an event time remembers all keys for ever",
    "dedup-within-watermark": "dropDuplicatesWithinWatermark drops by batch boundaries",
    "static-join": "a table that can change between replicas",
    "update-key": "update mode needs rows that can be told apart",
    "update-filter": "a filter above revised rows hides revisions",
    "update-explode": "several rows for one revised row",
    "update-partitions": "revised rows that move between partitions",
    "update-join": "a join above revised rows",
    "stable": "no stable point can be derived",
    UNREAD: "a plan that cannot be read, as that of a Spark Connect session",
}


@dataclass(frozen=True)
class Rule:
    """Why an expression cannot be replicated. ``cured_by``: kinds of expressions above it that settle its value."""

    code: str
    severity: str
    words: str
    instead: str
    cured_by: frozenset[str] = frozenset()


_CLOCK = Rule(
    "clock", ERROR, "is the time at which this replica runs the batch, and every replica runs it at another",
    "take the event time from the row; for 'how old is it' compare with the watermark, or with another column",
)
_RANDOM = Rule(
    "random", ERROR, "is another value on every replica, and in every attempt",
    "derive it from the row, for example xxhash64 of its key",
)
_PARTITION = Rule(
    "partition", ERROR, "depends on how the rows are spread over partitions, which differs between replicas",
    "use an identifier that the row brings along, or a hash of its columns",
)
_FILE = Rule(
    "input-file", ERROR, "names a file, and replicas can read the same rows from other files",
    "put what is needed of the name into the data, or keep it out of what is published",
)
_SORTED = frozenset({"SortArray", "ArraySort"})
_COUNTED = frozenset({"Count", "IsNull", "IsNotNull"})
_UNORDERED = Rule(
    "unordered", ERROR, "holds its values in the order in which rows arrived, which no two runs share",
    "sort it: array_sort(...) or sort_array(...) around it",
    _SORTED | _COUNTED | {"Size", "ArraySize", "ArrayMin", "ArrayMax", "ArrayContains"},
)
_LISTED = Rule(
    "unordered", ERROR, "joins its values in the order in which rows arrived, which no two runs share",
    "array_join(array_sort(collect_list(...)), ...)", _COUNTED | {"Length"},
)
_FIRST = Rule(
    "first-last", ERROR, "is the value of whichever row arrived first or last, which no two runs share",
    "min, max, or max_by/min_by with a unique second argument", _COUNTED,
)
_TIES = Rule(
    "ties", WARNING, "can be any of several rows where they are equal in what is compared",
    "make the compared value unique, for example a struct of it and an identifier; or allow it if it is",
    _COUNTED,
)
_ROUNDED = frozenset({"Round", "BRound", "FormatNumber"}) | _COUNTED
_FLOAT = Rule(
    "float-aggregate", ERROR,
    "adds floating-point numbers, and the last digits of the sum depend on the order, which no two runs share",
    "round(...) around it, round_digits= for the column, or sum a decimal: cast(... as decimal(38, 6))", _ROUNDED,
)
_BIG_AVERAGE = Rule(
    "float-aggregate", WARNING,
    "adds as floating-point numbers, which is exact only while the sum stays below 2**53",
    "round(...) around it, round_digits= for the column, or average a decimal", _ROUNDED,
)
_APPROXIMATE = Rule(
    "approximate", WARNING, "is approximate, and the approximation depends on the order in which rows are merged",
    "the exact function, such as percentile or count(distinct ...); approx_count_distinct is fine", _COUNTED,
)
_ENVIRONMENT = Rule(
    "environment", WARNING, "depends on who runs the query, and where",
    "a literal",
)
NONDETERMINISTIC: Final = Rule(
    "nondeterministic", ERROR, "is not deterministic, as Spark says itself", "an expression of the row's columns alone",
)
UDF: Final = Rule(
    "udf", WARNING, "is code that cannot be looked into: it must give the same for the same rows, at any time",
    'an expression of Spark; or allow=("udf",) if it is a pure function of its arguments',
)
UDF_NONDETERMINISTIC: Final = Rule(
    "udf-nondeterministic", ERROR, "is declared non-deterministic", "a function of its arguments alone",
)

_BY_KIND: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(
        ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurrentBatchTimestamp"), _CLOCK),
    **dict.fromkeys(("Rand", "Randn", "Uuid", "Shuffle", "RandStr", "Uniform"), _RANDOM),
    **dict.fromkeys(("MonotonicallyIncreasingID", "SparkPartitionID"), _PARTITION),
    **dict.fromkeys(("InputFileName", "InputFileBlockStart", "InputFileBlockLength"), _FILE),
    **dict.fromkeys(("CollectList", "CollectSet"), _UNORDERED),
    **dict.fromkeys(("First", "Last", "AnyValue"), _FIRST),
    **dict.fromkeys(("MaxBy", "MinBy", "Mode", "PandasMode"), _TIES),
    **dict.fromkeys((
        "ApproximatePercentile", "ApproxTopK", "ApproxTopKAccumulate", "ApproxTopKCombine", "HistogramNumeric",
        "HllSketchAgg", "HllUnionAgg", "ThetaSketchAgg", "ThetaUnionAgg", "KllSketchAggBigint", "KllSketchAggFloat",
        "KllSketchAggDouble", "TupleSketchAgg", "ApproxQuantile",
    ), _APPROXIMATE),
    **dict.fromkeys(
        ("CurrentUser", "SessionUser", "CurrentDatabase", "CurrentCatalog", "SparkVersion", "CurrentTimeZone"),
        _ENVIRONMENT),
}
# They add up whatever they are given as doubles, and in pieces that are merged.
_MOMENTS: Final = frozenset({
    "StddevSamp", "StddevPop", "VarianceSamp", "VariancePop", "Skewness", "Kurtosis", "Corr", "PearsonCorrelation",
    "CovSample", "CovPopulation", "RegrReplacement", "RegrR2", "RegrSXX", "RegrSYY", "RegrSXY", "RegrSlope",
    "RegrIntercept", "PandasStddev", "PandasVariance", "PandasSkewness", "PandasKurtosis", "PandasCovar",
})
_FLOATS: Final = frozenset({"float", "double"})


def rule_for(e: Expr) -> Rule | None:
    """The rule that ``e`` itself breaks, whatever is below it; None if it breaks none."""
    if is_skip(e):
        return None
    if e.kind in _MOMENTS:
        return _FLOAT
    if e.kind in ("Sum", "Average", "TrySum", "TryAverage", "Product"):
        of = e.children[0].type
        return _FLOAT if of in _FLOATS else _BIG_AVERAGE if of == "bigint" and "Average" in e.kind else None
    if e.kind == "ListAgg":
        # WITHIN GROUP (ORDER BY ...) brings the expressions that it is ordered by.
        return None if len(e.children) > 2 else _LISTED
    known = _BY_KIND.get(e.kind)
    if known is not None:
        return known
    if is_udf(e):
        return UDF if e.deterministic else UDF_NONDETERMINISTIC
    own = not e.deterministic and all(child.deterministic for child in e.children)
    return NONDETERMINISTIC if own else None


def is_udf(e: Expr) -> bool:
    """Whether ``e`` calls code of the user's."""
    words = ("UDF", "UDAF", "UDTF", "ScalaAggregator", "TypedAggregateExpression")
    return any(word in e.kind for word in words) and not is_skip(e)


def is_skip(e: Expr) -> bool:
    """Whether ``e`` leaves out what nobody wants any more (``skipping``): by that replicas may differ."""
    return e.kind == "PythonUDF" and e.name == WANTED


def cures(above: Expr, rule: Rule) -> bool:
    """Whether ``above`` makes the value the same after all. Cutting digits off does not: 2.9999 and 3.0001 differ."""
    if above.kind in rule.cured_by:
        return True
    return rule.code == "float-aggregate" and above.kind == "Cast" and above.type.startswith("decimal")
