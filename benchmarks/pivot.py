"""Pivot records into the rows of a table.

Records are filtered (`where`), split along a list that they hold (`explode`), grouped (`rows`), and each column shows
one statistic of a group (`show`), or compares it with other records (`over`, `minus`).
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

Record = Mapping[str, Any]


def value_at(record: Record, path: str) -> Any:
    """Return the value at a dotted path, such as "metrics.f1" or "heldout.-1.loss"; None where there is none."""
    found: Any = record
    for key in path.split("."):
        if isinstance(found, list):
            found = found[int(key)] if -len(found) <= int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


def matches(record: Record, where: Mapping[str, Any]) -> bool:
    """Return whether a record has these values; of a list one value suffices."""
    return all(value_at(record, path) in (want if isinstance(want, list) else [want]) for path, want in where.items())


def explode(records: Sequence[Record], path: str) -> list[Record]:
    """Return a record for each item of the lists at a path.

    A number takes the place of its list, and is that of the `seed` of its index.
    """
    return [
        {**record, **(item if isinstance(item, Mapping) else {path: item, "seed": index})}
        for record in records
        for index, item in enumerate(value_at(record, path) or [])
    ]


def choose(
    records: Sequence[Record], by: Sequence[str], over: str, value: str, among: Mapping[str, Any] | None = None
) -> list[Record]:
    """Mark records as `chosen`: those that have the best setting, or none of it.

    Args:
        records: of a result.
        by: keys; for each combination of their values a setting is chosen.
        over: the key of the setting.
        value: what the setting is judged by; the highest mean wins, the smaller setting on a tie.
        among: which records judge; all by default.
    """

    def group(record: Record) -> tuple[Any, ...]:
        return tuple(record.get(key) for key in by)

    tried: dict[tuple[Any, ...], dict[Any, list[float]]] = {}
    for record in records:
        if matches(record, among or {}) and value in record and over in record:
            tried.setdefault(group(record), {}).setdefault(record[over], []).append(record[value])
    best = {}
    for key, found in tried.items():
        means = {setting: statistics.mean(values) for setting, values in sorted(found.items())}
        best[key] = max(means, key=means.__getitem__)
    return [{**one, "chosen": over not in one or one[over] == best.get(group(one))} for one in records]


def cell(column: Record, group: Sequence[Record], others: Sequence[Record] = ()) -> str:
    """Return one statistic of a group of records.

    Args:
        column: `value` (path), `show` (see `SHOWN`), `format`, `scale`, `where` (records of the group); for a point of
            a curve, `curve` and `until` or `reached`: the value is that of the last or the first item of this list
            whose KEYs are at most these (nothing where there is none); and, for a ratio of medians or a difference of
            means (see `difference`), `over` or `minus`: the values of the records in `others` to compare with; "@KEY"
            is the value of the group's own KEY.
        group: the records of the row.
        others: the records of the row and those that differ from them in the keys of `over` or `minus`.
    """
    group = [record for record in group if matches(record, column.get("where", {}))]
    values = _values(column, group)
    if not values:
        return ""
    compared = column.get("over") or column.get("minus")
    if compared is None:
        return SHOWN[column.get("show", "mean")](values, column, group)
    wanted = {key: value_at(group[0], want[1:]) if str(want)[:1] == "@" else want for key, want in compared.items()}
    rest = [record for record in others if matches(record, {**column.get("where", {}), **wanted})]
    base = _values(column, rest)
    if not base:
        return ""
    if "over" in column:
        return format(statistics.median(values) / statistics.median(base), column.get("format", ".1f"))
    if sorted(base) == sorted(values):
        return ""
    return difference(_by_seed(column, group), _by_seed(column, rest), column)


def difference(
    values: Mapping[Any, Sequence[float]], others: Mapping[Any, Sequence[float]], column: Record | None = None
) -> str:
    """Return the difference of the means of two arms with its 95 % interval.

    Where the arms have the same seeds (see `paired`), the interval is that of the mean difference by seed: Student's t
    with one degree of freedom less than there are seeds. Otherwise it is that of two independent means (Welch 1947).

    Args:
        values: of an arm, by seed.
        others: of the arm that is subtracted.
        column: `format`; with `single`, an arm with a single value has a difference without an interval, otherwise
            nothing.
    """
    from scipy import stats

    column = column or {}
    form = column.get("format", ".1f")
    first, second = (list(chain.from_iterable(arm.values())) for arm in (values, others))
    apart = f"{statistics.mean(first) - statistics.mean(second):+{form}}"
    if min(len(first), len(second)) < 2:
        return apart if column.get("single") else ""
    pairs = paired(values, others)
    with warnings.catch_warnings():  # of seeds that all score the same
        warnings.simplefilter("ignore", RuntimeWarning)
        test = stats.ttest_rel(*zip(*pairs, strict=True)) if pairs else stats.ttest_ind(first, second, equal_var=False)
        interval = test.confidence_interval(0.95)
    return f"{apart} [{interval.low:+{form}}, {interval.high:+{form}}]"


def paired(values: Mapping[Any, Sequence[float]], others: Mapping[Any, Sequence[float]]) -> list[tuple[float, float]]:
    """Return the values of two arms by seed; none unless both have the same two or more seeds, each once.

    Runs with the same seed and data read the same examples in the same order.
    """
    once = all(len(found) == 1 for arm in (values, others) for found in arm.values())
    if len(values) < 2 or values.keys() != others.keys() or None in values or not once:
        return []
    return [(values[seed][0], others[seed][0]) for seed in values]


def _by_seed(column: Record, records: Sequence[Record]) -> dict[Any, list[float]]:
    """Return the values by seed, those of records without a seed under None."""
    found: dict[Any, list[float]] = {}
    for record in records:
        if values := _values(column, [record]):
            found.setdefault(record.get("seed"), []).extend(values)
    return found


def _values(column: Record, records: Sequence[Record]) -> list[Any]:
    if "curve" in column:
        limits, point = (column["until"], -1) if "until" in column else (column["reached"], 0)
        curves = [value_at(record, column["curve"]) or [] for record in records]
        found = [[one for one in curve if all(one[key] <= most for key, most in limits.items())] for curve in curves]
        records = [items[point] for items in found if items]
    values = [value for record in records if (value := value_at(record, column["value"])) is not None]
    if column.get("inverse"):
        return [1 / value for value in values]
    return [value * column["scale"] for value in values] if "scale" in column else values


def _spread(values: Sequence[float], column: Record, records: Sequence[Record]) -> str:
    """Mean and standard deviation; of one value its interval, if the record has one. `times` is a setting to add."""
    form = column.get("format", ".1f")
    if len(values) > 1:
        times = f" (× {value_at(records[0], column['times']):g})" if "times" in column else ""
        return f"{statistics.mean(values):{form}} ± {statistics.stdev(values):{form}}{times}"
    interval = value_at(records[0], column["interval"]) if "interval" in column else None
    return f"{values[0]:{form}}" + (f" [{interval[0]:{form}}, {interval[1]:{form}}]" if interval else "")


def _both(values: Sequence[float], column: Record, records: Sequence[Record]) -> str:
    """The first record's value and, in parentheses, another one in percent."""
    return f"{values[0]:{column['format']}} ({100 * value_at(records[0], column['second']):.1f})"


def _number(value: float, column: Record) -> str:
    return format(value, column.get("format", ".1f"))


SHOWN: dict[str, Callable[[Sequence[Any], Record, Sequence[Record]], str]] = {
    "mean": lambda values, column, _: _number(statistics.mean(values), column),
    "median": lambda values, column, _: _number(statistics.median(values), column),
    "each": lambda values, column, _: ", ".join(_number(value, column) for value in values),
    "count": lambda values, column, _: str(len(values)),
    "both": _both,
    "spread": _spread,
}


def pivot(spec: Record, results: Callable[[str], list[Record]]) -> list[list[str]]:
    """Return the rows of a table, the titles first.

    Args:
        spec: its entry in tables.toml.
        results: returns the records of a result by name.
    """
    if "cells" in spec:  # each row picks its own figures
        return [spec["titles"], *([_figure(one, results) for one in row] for row in spec["cells"])]
    records = records_of(spec, results)
    keys, names, order = spec["rows"], spec.get("names", {}), spec.get("order", {})
    columns = _columns(spec, records)

    def rank(values: tuple[Any, ...]) -> list[tuple[int, Any]]:
        ranks = []
        for key, value in zip(keys, values, strict=True):
            known = order.get(key, [])
            ranks.append((known.index(value) if value in known else len(known), "" if value is None else value))
        return ranks

    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.get("seed", 0)):
        groups.setdefault(tuple(value_at(record, key) for key in keys), []).append(record)
    table = [[*(spec.get("titles", {}).get(key, key) for key in keys), *(column["title"] for column in columns)]]
    for group in sorted(groups, key=rank):
        label = [_label(value, names.get(key, {})) for key, value in zip(keys, group, strict=True)]
        cells = []
        for column in columns:
            compared = column.get("over") or column.get("minus") or {}
            same = {key: value for key, value in zip(keys, group, strict=True) if key not in compared}
            cells.append(cell(column, groups[group], [record for record in records if matches(record, same)]))
        if all(cells) if spec.get("complete") else any(cells):
            table.append([*label, *cells])
    return table


def records_of(spec: Record, results: Callable[[str], list[Record]]) -> list[Record]:
    """Return the records of a table; with `choose`, each tells whether it is chosen."""
    records = results(spec["result"])
    records = choose(records, **spec["choose"]) if "choose" in spec else records
    records = explode(records, spec["explode"]) if "explode" in spec else records
    return [record for record in records if matches(record, spec.get("where", {}))]


def _figure(one: str | Record, results: Callable[[str], list[Record]]) -> str:
    """Return a text as it is, or a statistic of a result put into its `text`."""
    if isinstance(one, str):
        return one
    records = records_of({**one, "where": {}}, results)  # those that it is compared with, too
    return str(one.get("text", "{}")).format(cell(one, records, records))


def _columns(spec: Record, records: Sequence[Record]) -> list[Record]:
    """Return the columns; one with `across` stands for one per value of that key."""
    found: list[Record] = []
    for column in spec["columns"]:
        if "across" not in column:
            found.append(column)
            continue
        key = column["across"]
        seen = dict.fromkeys(value_at(record, key) for record in records)
        known = spec.get("order", {}).get(key, [])
        names = spec.get("names", {}).get(key, {})
        for value in sorted(seen, key=lambda value: known.index(value) if value in known else len(known)):
            where = {**column.get("where", {}), key: value}
            found.append({**column, "title": column.get("title", "{}").format(_label(value, names)), "where": where})
    return found


def _label(value: Any, names: Mapping[str, str]) -> str:
    if value is None:
        return ""
    text = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    return names.get(str(value), text)
