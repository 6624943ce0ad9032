"""The label, or the labels, of a row in whatever columns they are.

Input: the values of a row, and the columns that were found. Output: a label, several labels, or soft labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unmask.data.labelled.columns import SelectedColumns, Wanted
from unmask.data.labelled.label_cells import LabelCells
from unmask.data.labelled.soft_labels import SoftLabel, SoftLabels, SoftLabelSet, SoftLabelSets, parse_cell

Labels = str | tuple[str, ...] | SoftLabel | SoftLabelSet
"""A label, all labels of a text that may have several, or their probabilities."""
_OPENING = ("{", "[")
"""What an object or a list begins with, in text."""
_QUOTED = ('"{', '"[')


class RowLabels:
    """Reader of the labels of a file's rows, which counts what a note says.

    Args:
        file: the file's name, for errors and notes.
        wanted: what the rows have.
        cells: whether values are cells of text, which may contain what JSON or Python wrote.
    """

    def __init__(self, file: str, wanted: Wanted, *, cells: bool) -> None:
        self._several, self._is_soft, self._in_cells = wanted.fields.several, wanted.fields.soft, cells
        self._cells = LabelCells(file)
        self._soft: SoftLabels | SoftLabelSets = SoftLabelSets(self._cells) if self._several else SoftLabels(file)

    def read(self, selected: SelectedColumns, values: Sequence[Any], line: int) -> Labels | None:
        """Return the labels of a row; None: it has none, or its label is the value of a column as it is.

        Raises:
            UserError: the value is not a label, or may be read in two ways.
        """
        if selected.probabilities:
            return self._soft.of_probabilities({name: values[i] for name, i in selected.probabilities.items()}, line)
        if selected.votes:
            return self._soft.of_votes([self._value(values[index]) for index in selected.votes.values()], line)
        if selected.indicators:
            labels = self._cells.of_indicators({name: values[i] for name, i in selected.indicators.items()}, line)
            return labels if self._several else self._cells.only(labels, line)
        if "label" not in selected.indices:
            return None
        value = self._value(values[selected.indices["label"]])
        if self._is_soft and not (type(value) is str and value.lstrip()[:1] not in _OPENING):
            soft = self._soft.of_value(parse_cell(value) if self._in_cells else value, line)
            if soft is not None:
                return soft
        if not self._several:
            return None
        return self._cells.split(value, line) if self._in_cells else self._cells.of_value(value, line)

    def _value(self, value: Any) -> Any:
        """Return a value; a list or an object that is quoted as in CSV, although TSV has no quoting, without quotes."""
        if self._in_cells and value[:2] in _QUOTED and value[-1] == '"':
            return value[1:-1].replace('""', '"')
        return value

    def notes(self) -> list[str]:
        """Return what was counted, one line each.

        Raises:
            UserError: the file as a whole may be read in two ways.
        """
        self._soft.check()
        return self._soft.notes()
