"""Texts that do not belong to the first text of a row: hard negatives, one or several.

Input: the names of a file's columns, and the cells or values of a row. Output: the indices of the columns with
negatives, the negatives of the row, and the scores that a teacher gives to its second text and to each negative.

Several are in columns with a number (negative_1, negative_2, …; the n-tuples of sentence-transformers), or in one
column as a list, which in TSV and CSV is written as JSON writes it. Rows may have different numbers of them: an empty
cell beside others is no negative.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from unmask.data.labelled.label_cells import Cell, is_missing, parse_list
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

COLUMN = "text_c"
"""Our name of the column."""
NAMED = re.compile(r"text_c|negatives?|negative_?\d+")
"""Names of the columns, unless `columns` gives others."""
SCORES = "teacher_scores"
"""Name of the column of scores."""


def find_negatives(names: Sequence[str], chosen: str | None, file: str, line: int) -> tuple[int, ...]:
    """Return the indices of the columns with negatives, in their order; empty if there are none.

    Args:
        names: the names of all columns.
        chosen: a name, a pattern with *, or several of these, separated by commas; None: those of `NAMED`.
        file, line: the header, for errors.

    Raises:
        UserError: a chosen column does not exist, or two have the same name.
    """
    if chosen is None:
        found = [name for name in names if NAMED.fullmatch(name)]
    elif chosen in names:  # also if a name contains a comma
        found = [chosen] * names.count(chosen)
    else:
        patterns = [pattern.strip() for pattern in chosen.split(",")]
        found = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if absent := [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]:
            raise UserError(
                f"no column named {absent[0]}; columns: {', '.join(names)[:200]}",
                file=file,
                line=line,
                remedy=f"pass {argument('columns', {COLUMN: 'NAME'})}, or numbers from 0 if there is no header",
            )
    for name in found:
        check_once(name, names, file, line)
    return tuple(index for index, name in enumerate(names) if name in found)


def check_once(name: str, names: Sequence[str], file: str, line: int) -> None:
    """Raise an error if several columns have a name."""
    if (number := names.count(name)) > 1:
        raise UserError(
            f"{number} columns are named {name}",
            file=file,
            line=line,
            remedy=f"rename one, or remove the header and pass {argument('columns')} with numbers from 0",
        )


def read_negatives(names: Sequence[str], values: Sequence[Any], file: str, line: int) -> tuple[str, ...]:
    """Return the negatives of a row.

    Args:
        names: the names of the columns with negatives.
        values: the cell or the value of each.
        file, line: the row, for errors.

    Raises:
        UserError: there is none, or one is not a text.
    """
    several = _as_list(values[0]) if len(values) == 1 else None
    if several is not None:
        values, names = several, [*names] * len(several)
    elif len(values) > 1:
        filled = [not is_missing(value) and value != "" for value in values]
        names = [name for name, is_filled in zip(names, filled, strict=True) if is_filled]
        values = [value for value, is_filled in zip(values, filled, strict=True) if is_filled]
    negatives = [Cell(COLUMN, name, value).text(file, line).strip() for name, value in zip(names, values, strict=True)]
    if not negatives or not all(negatives):
        raise UserError(f"the {COLUMN} is empty", file=file, line=line, remedy="fix or remove the row")
    return tuple(negatives)


def read_scores(value: Any, number: int, file: str, line: int) -> tuple[float, ...]:
    """Return the scores that a teacher gives to the second text of a row and to each of its negatives.

    Args:
        value: the cell or the value.
        number: how many negatives there are.
        file, line: the row, for errors.

    Raises:
        UserError: it is no list of as many numbers.
    """
    values = parse_list(value) if isinstance(value, str) else value
    if isinstance(values, list | tuple) and len(values) == 1 + number:
        is_number = [isinstance(score, int | float) and not isinstance(score, bool) for score in values]
        if all(is_number) and all(map(math.isfinite, values)):
            return tuple(map(float, values))
    wanted = f"a list of {1 + number} numbers: those of the second text and of {counted(number, 'negative')}"
    raise UserError(f"{SCORES} is not {wanted}", file=file, line=line, remedy=f"fix the row, or remove {SCORES}")


def _as_list(value: Any) -> list[Any] | None:
    """Return a value that is a list, or its text; a text in brackets that is no list of texts is a text."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str) or not value.startswith("["):
        return None
    values = parse_list(value)
    return values if values and all(isinstance(text, str) for text in values) else None
