"""Labels as they are written: several of one text in a cell or a list.

Input: a cell, or the value of a record. Output: the names, each once. What may be read in two ways is refused: a cell
with commas in TSV and CSV, a list in a cell or in a record, columns of 0 and 1. Lists in cells are those that Python
and JSON write. Lists of zeros and ones with a number for each label are a format of their own, in which labels are
named by their positions.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

SEPARATOR = ","
"""Separates the labels of a text in a cell of TSV or CSV, unless `columns` gives another separator."""
SEPARATOR_KEY = "separator"
"""The key of `columns` by which a separator is given."""
OTHERS = (";", "|", "\n", "，", "；", "、", "،", "؛")
"""What separates labels in other files, of Chinese, Japanese and Arabic, too: a cell that contains it is refused."""
LONGEST_LIST = 100_000
"""Characters of a list in a cell."""
INDICATORS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""What columns of zeros and ones contain, as text in lower case; data frames and spreadsheets write the others."""
MISSING = frozenset({"nan", "<na>", "nat"})
"""What data frames write for a missing value, in lower case."""
BRACKETS = ("()", "[]", "{}")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan", re.ASCII | re.IGNORECASE)
_CALL = re.compile(r"""\w+\(\s*["'\[{]|\(\s*["'].*,""", re.DOTALL)
"""How a tuple of texts begins, and a call that makes a collection, such as array(['a'])."""
_ADJACENT = re.compile(r"""["']\s*[A-Za-z]{0,2}["']""")
"""Quotation marks that may be between two texts in Python, which then are one: 'a' 'b'."""


def separator_of(columns: Mapping[str, str]) -> str:
    """Return what separates several labels in a cell.

    Args:
        columns: names of columns, maybe with a separator (`SEPARATOR_KEY`).

    Raises:
        UserError: the separator may be part of a name, of a number, or of a list.
    """
    separator = columns.get(SEPARATOR_KEY, SEPARATOR).strip()
    if not separator or any(mark.isalnum() or mark in "\"'()[]{}" for mark in separator):
        raise UserError(
            f"{argument('columns', {SEPARATOR_KEY: separator})} cannot separate labels",
            remedy="pass a mark such as ; or |",
        )
    return separator


def is_missing(value: Any) -> bool:
    """Return whether a value of a record is what a data frame has in place of a missing one: None, NaN, NA, NaT."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA has no truth value, an array has several
        return type(value).__name__ == "NAType"


def parse_list(cell: str) -> list[Any] | None:
    """Return the list or tuple that JSON or Python wrote into a cell; None if it is none."""
    values = parse_collection(cell)
    return list(values) if isinstance(values, list | tuple) else None


def parse_collection(cell: str) -> list[Any] | tuple[Any, ...] | set[Any] | dict[Any, Any] | None:
    """Return the list, tuple, set or object that JSON or Python wrote into a cell; None if it is none."""
    for parse in (json.loads, _evaluate):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):  # TypeError: of sets of lists
            value = parse(cell)
            if isinstance(value, list | tuple | set | dict):
                return value
    return None


def _evaluate(cell: str) -> Any:
    """Return the value of a literal of Python.

    Raises:
        ValueError: it is none, or texts are beside each other, as numpy writes arrays and Python joins them.
        SyntaxError: it is none.
    """
    value = ast.literal_eval(cell)
    if _ADJACENT.search(cell):
        before = tokenize.ENCODING
        for token in tokenize.generate_tokens(io.StringIO(cell.strip()).readline):
            if token.type == before == tokenize.STRING:
                raise ValueError("two texts without a comma")
            before = before if token.type == tokenize.NL else token.type
    return value


def is_written(text: str) -> bool:
    """Return whether a text is a list or an object that a program wrote, rather than a name in brackets.

    That is one of quoted texts, of several numbers, or with colons; also a tuple, or a call that makes one.
    """
    if text[-1:] == ")" and _CALL.match(text):
        return True
    if (text[:1], text[-1:]) not in (("[", "]"), ("{", "}")):
        return False
    inside = text[1:-1].strip()
    if inside.startswith(('"', "'")) and inside.count(inside[0]) > 1:
        return True
    if text[0] == "{":
        return ":" in inside
    parts = inside.replace(",", " ").split()
    return len(parts) > 1 and all(map(_NUMBER.fullmatch, parts))


def check_name(label: str, file: str, line: int) -> None:
    """Check that a label is a name: no missing value that a data frame wrote as text, and no list or object.

    Raises:
        UserError: it is one.
    """
    if label.lower() in MISSING:
        raise UserError(
            f"the label is '{label}', which data frames write for a missing value",
            file=file,
            line=line,
            remedy="remove the row, or if it is a class, give it another name",
        )
    if is_written(label):
        raise UserError(
            f"the label is the text {label[:80]}, of a list or an object that is not read as one",
            file=file,
            line=line,
            remedy="write it as JSON does, in memory give the list or the object itself, or if it is a class, give it "
            "another name",
        )


def check_decoded(column: str, value: str, file: str, line: int) -> None:
    """Check that a text is not what Python writes of bytes, as of the texts of TensorFlow Datasets.

    Raises:
        UserError: it is.
    """
    if value[:2] in ("b'", 'b"') and value[-1] == value[1] and len(value) > 2:
        raise UserError(
            f"the {column} is {value[:40]}…, which Python writes of bytes",
            file=file,
            line=line,
            remedy="decode the texts before you write them, as in text.decode()",
        )


WEIGHT = "weight"
"""Our name of the column of weights, which is read only if it is named."""
NUMERIC = ("label", WEIGHT)
"""Our names of the columns that may have numbers."""


@dataclass(frozen=True)
class Cell:
    """The value of a record: our name of its column, the name there, and the value."""

    column: str
    header: str
    value: Any

    def text(self, file: str, line: int) -> str:
        """Return the value as text; only labels and weights may be numbers."""
        value = self.value
        if is_missing(value):
            self.refuse("is missing", file, line)
        written = str if self.column not in NUMERIC else str | int | float | Decimal
        if not isinstance(value, written):
            several = " (this task has one label per text)" if isinstance(value, list) else ""
            self.refuse(f"is {type(value).__name__}, not text{several}", file, line, self._remedy())
        try:
            return str(value)
        except ValueError:  # Python writes no integers of more than 4,300 digits
            self.refuse("is a number with too many digits", file, line)

    def _remedy(self) -> str:
        """Return what makes the value text."""
        if isinstance(self.value, list | Mapping) and self.column != "label":
            return "write an object for each example, as pandas does by to_json(orient='records', lines=True)"
        if isinstance(self.value, bytes):
            return "decode it, as in value.decode()"
        number = isinstance(self.value, int | float) and self.column not in NUMERIC
        return f"if it is a text, write it as one, as pandas does by astype({{'{self.header}': str}})" if number else ""

    def refuse(self, problem: str, file: str, line: int, remedy: str = "") -> NoReturn:
        """Raise an error that names the column."""
        named = "" if self.header == self.column else f" (column '{self.header}')"
        raise UserError(f"'{self.column}'{named} {problem}", file=file, line=line, remedy=remedy)


class LabelCells:
    """Reader of the labels of a file's texts.

    Args:
        file: the file's name, for errors.
        separator: what separates labels in a cell; if it is not the default, other marks belong to names.

    Attributes:
        numbers: how many zeros and ones each row has, if labels are written so; None: not known yet.
    """

    def __init__(self, file: str, separator: str = SEPARATOR) -> None:
        self.file, self._separator = file, separator
        self._others = OTHERS if separator == SEPARATOR else ()
        self.numbers: int | None = None

    def split(self, cell: str, line: int) -> tuple[str, ...]:
        """Return the labels in a cell; an empty cell has none.

        Raises:
            UserError: a name is empty or occurs twice, the cell contains another separator, or one inside of brackets
                or quotation marks, or a list that is neither Python's nor JSON's.
        """
        cell = cell.strip()
        if cell.startswith("["):
            return self.of_value(self._list(cell, line), line)
        if cell.startswith(("(", "{", "set(")) and len(cell) <= LONGEST_LIST:
            values = parse_collection(cell)
            if isinstance(values, tuple):
                return self.of_value(values, line)
            if isinstance(values, set) and all(isinstance(name, str | int) for name in values):
                return self._checked(sorted(map(str, values)), line)
        if other := next((mark for mark in self._others if mark in cell), None):
            mark = "a line break" if other == "\n" else f"'{other}'"
            chosen = argument("columns", {"label": "…", SEPARATOR_KEY: other})
            several = f"if it does, pass {chosen}" if other.strip() else f"separate labels by '{SEPARATOR}'"
            raise UserError(
                f"the label '{cell[:80]}' contains {mark}, which may separate labels",
                file=self.file,
                line=line,
                remedy=f"{several}; for a name that contains {mark}, use lists in JSON Lines",
            )
        names = cell.split(self._separator) if cell else []
        if cut := next((name for name in names if not is_closed(name)), None) if len(names) > 1 else None:
            raise UserError(
                f"the label '{cell[:80]}' has a '{self._separator}' inside of brackets or quotation marks: "
                f"'{cut.strip()[:40]}'",
                file=self.file,
                line=line,
                remedy=f"for a name that contains '{self._separator}', use lists in JSON Lines",
            )
        return self._checked(names, line)

    def of_value(self, value: Any, line: int) -> tuple[str, ...]:
        """Return the labels in the value of a record: a list of names or whole numbers, maybe empty, or one name.

        Raises:
            UserError: it is something else, or a name is empty or occurs twice.
        """
        if is_missing(value):
            raise UserError("'label' is missing", file=self.file, line=line, remedy="for no label, write an empty list")
        names = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(value, list | tuple) and self._are_indicators(names, line):
            return tuple(str(place) for place, number in enumerate(names) if number)
        if wrong := [name for name in names if not isinstance(name, str | int) or isinstance(name, bool)]:
            raise UserError(
                f"'label' contains {type(wrong[0]).__name__}, not names",
                file=self.file,
                line=line,
                remedy="write the names of the labels, a 0 or a 1 for each label, or an object of probabilities",
            )
        if isinstance(value, str) and (value.strip().startswith("[") or self._separator != SEPARATOR):
            return self.split(value, line)
        if isinstance(value, str) and any(mark in value for mark in (SEPARATOR, *OTHERS)):
            raise UserError(
                f"the label '{value[:80]}' may be several", file=self.file, line=line, remedy="make it a list"
            )
        return self._checked(map(str, names), line)

    def of_indicators(self, values: Mapping[str, Any], line: int) -> tuple[str, ...]:
        """Return the labels whose columns have a one.

        Args:
            values: a zero or a one for each label, as numbers, truth values or text.
            line: the line.

        Raises:
            UserError: a value is something else.
        """
        for label, value in values.items():
            if str(value).strip().lower() not in INDICATORS:
                raise UserError(
                    f"'{label}' is {str(value)[:40]!r}, not 0 or 1", file=self.file, line=line, remedy="correct it"
                )
        return tuple(label for label, value in values.items() if INDICATORS[str(value).strip().lower()])

    def only(self, labels: Sequence[str], line: int) -> str:
        """Return the label of a text that has exactly one.

        Raises:
            UserError: it has none or several.
        """
        if len(labels) != 1:
            number = f"{len(labels)} columns of labels have" if labels else "no column of labels has"
            raise UserError(
                f"{number} a 1, but this task has one label per text",
                file=self.file,
                line=line,
                remedy="correct it, or fine-tune for multi-label",
            )
        return labels[0]

    def _list(self, cell: str, line: int) -> Any:
        """Return the list that a cell contains."""
        values = parse_list(cell) if len(cell) <= LONGEST_LIST else None
        if values is not None:
            return values
        raise UserError(
            f"the label {cell[:80]} begins like a list, but is none",
            file=self.file,
            line=line,
            remedy=f'write ["joy", "fear"], or separate labels by \'{SEPARATOR}\'',
        )

    def _are_indicators(self, names: Sequence[Any], line: int) -> bool:
        """Return whether a list consists of a zero or one for each label, as all of the file must if its first does."""
        binary = len(names) > 1 and all(name in (0, 1) and not isinstance(name, str) for name in names)
        if self.numbers is None:
            if not names:
                return False
            self.numbers = len(names) if binary else 0
        if self.numbers and not (binary and len(names) == self.numbers):
            raise UserError(
                f"the first list of labels has {counted(self.numbers, 'zero')} or ones, one for each label, and this "
                f"list, {str(list(names))[:80]}, is not of that kind",
                file=self.file,
                line=line,
                remedy="write the names of the labels",
            )
        return bool(self.numbers)

    def _checked(self, names: Iterable[str], line: int) -> tuple[str, ...]:
        labels = tuple(name.strip() for name in names)
        for label in labels:
            check_name(label, self.file, line)
        if "" in labels:
            raise UserError("one of the labels is empty", file=self.file, line=line, remedy="remove it")
        if len(set(labels)) < len(labels):
            raise UserError(
                f"a label occurs twice in {', '.join(labels)[:200]}", file=self.file, line=line, remedy="remove one"
            )
        return labels


def is_closed(text: str) -> bool:
    """Return whether a text has as many opening as closing brackets, and no quotation mark alone."""
    return not text.count('"') % 2 and all(text.count(pair[0]) == text.count(pair[1]) for pair in BRACKETS)
