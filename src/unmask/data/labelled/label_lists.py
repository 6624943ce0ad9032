"""Several labels of one text: a cell with commas in TSV and CSV, a list in records.

Input: a cell, or the value of a record. Output: the names, each once. What may be read in two ways is refused.
"""

from __future__ import annotations

from typing import Any

from unmask.support.errors import UserError

SEPARATOR = ","
"""Separates the labels of a text in a cell of TSV or CSV."""
OTHERS = (";", "|")
"""What separates labels in other files: a cell that contains it is refused."""


def split_labels(cell: str, file: str, line: int) -> tuple[str, ...]:
    """Return the labels in a cell; an empty cell has none.

    Raises:
        UserError: a name is empty or occurs twice, or the cell contains another separator.
    """
    if other := next((one for one in OTHERS if one in cell), None):
        raise UserError(
            f"the label '{cell[:80]}' contains '{other}', which may separate labels",
            file=file,
            line=line,
            remedy=f"separate labels by '{SEPARATOR}'; for a name that contains '{other}', use lists in JSON Lines",
        )
    return _checked(cell.split(SEPARATOR) if cell.strip() else [], file, line)


def list_labels(value: Any, file: str, line: int) -> tuple[str, ...]:
    """Return the labels in the value of a record: a list of names or whole numbers, maybe empty, or one name.

    Raises:
        UserError: it is something else, or a name is empty or occurs twice.
    """
    names = value if isinstance(value, list | tuple) else [value]
    if wrong := [one for one in names if not isinstance(one, str | int) or isinstance(one, bool)]:
        raise UserError(f"'label' contains {type(wrong[0]).__name__}, not names", file=file, line=line)
    if isinstance(value, str) and SEPARATOR in value:
        raise UserError(f"the label '{value[:80]}' may be several", file=file, line=line, remedy="make it a list")
    return _checked(map(str, names), file, line)


def _checked(names: Any, file: str, line: int) -> tuple[str, ...]:
    found = tuple(name.strip() for name in names)
    if "" in found:
        raise UserError("one of the labels is empty", file=file, line=line, remedy="remove it")
    if len(set(found)) < len(found):
        raise UserError(f"a label occurs twice in {', '.join(found)[:200]}", file=file, line=line, remedy="remove one")
    return found
