"""The label, or the labels, of a row in whatever columns they are; soft labels among them.

Input: the values of a row, and the columns that were found. Output: a label, several labels, or soft labels:
probabilities of the labels of a text, given as they are or as votes of annotators.

**Texts with one label** have a distribution over labels.
Input: `{"positive": 0.7, "negative": 0.3}`, or columns `p:NAME`; a list of votes, or columns `label:ANNOTATOR`. Output:
the distribution and the label with the highest probability; of equally probable ones, the alphabetically first.

Probabilities of one text sum to 1, or as percentages to 100. Those of 0 are left out, as if they were not written.

**Texts with several labels** have an independent probability for each label.
Input: `{"joy": 0.9, "anger": 0.4}`, or columns `p:NAME`; or votes, of which each is a list of labels:
`[["joy"], ["joy", "anger"], []]`, null where an annotator did not vote, or columns `label:ANNOTATOR`. Output: the
probabilities, those of votes being shares of the annotators, and the labels with a probability above one half.

The probabilities of such a text need not sum to 1. If they do so in all of a file, a note says that they may be those
of texts with one label.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import msgspec

from unmask.data.labelled.columns import VOTE, SelectedColumns, Wanted
from unmask.data.labelled.label_cells import LONGEST_LIST, LabelCells, check_name, is_missing, parse_collection
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

TOLERANCE = 1e-3
"""How far the sum of probabilities may be from 1; of percentages, relative to 100."""
Vote = str | tuple[str, ...] | None
"""The label that an annotator chose, "" if none; of a text that may have several, the labels, None if none."""
_OPENING = ("{", "[")
"""What an object or a list begins with, in text."""
_QUOTED = ('"{', '"[')


class Labels(msgspec.Struct, frozen=True):
    """What is known of the labels of a text.

    Attributes:
        labels: the label, or all labels of a text that may have several; of soft ones the most probable label (of
            several, the alphabetically first), or those with a probability above one half; None: it is not labeled.
        probabilities: of soft labels, those of the labels that have one above 0, in the order of the file.
        votes: the vote of each annotator; empty: probabilities were given.
    """

    labels: str | tuple[str, ...] | None
    probabilities: Mapping[str, float] | None = None
    votes: tuple[Vote, ...] = ()


class SoftReader:
    """What readers of soft labels have in common.

    Args:
        file: the file's name, for errors and notes.

    Attributes:
        counts: how many examples have what a note says.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.counts = Counter[str]()

    def notes(self) -> list[str]:
        """Return what was counted, one line each."""
        return [
            f"{self.file}: {counted(count, 'example')} {'has' if count == 1 else 'have'} {what}"
            for what, count in self.counts.items()
        ]

    def numbers(self, values: Mapping[str, Any], line: int) -> dict[str, float]:
        """Return probabilities by the names of their labels.

        Raises:
            UserError: a probability is not a number, negative or infinite; a name is empty or occurs twice.
        """
        names = [str(name).strip() for name in values]
        for name in names:
            if not name:
                self.refuse("a probability has no name of a label", line, "name the label")
            check_name(name, self.file, line)
        if len(set(names)) < len(names):
            self.refuse("a label occurs twice among the probabilities", line, "remove one")
        return {name: self._number(name, value, line) for name, value in zip(names, values.values(), strict=True)}

    def refuse(self, problem: str, line: int, remedy: str = "correct it") -> NoReturn:
        """Raise an error that names file and line."""
        raise UserError(problem, file=self.file, line=line, remedy=remedy)

    def _number(self, name: str, value: Any, line: int) -> float:
        number = math.nan
        if not isinstance(value, bool) and isinstance(value, Real | Decimal | str) and "_" not in str(value):
            with suppress(ValueError, OverflowError):
                number = float(value.replace(",", ".", 1) if isinstance(value, str) else value)  # a decimal comma
        if not 0 <= number < math.inf:
            self.refuse(f"the probability of '{name}' is {str(value)[:40]!r}, not a number from 0 to 1", line)
        return number


class SoftLabels(SoftReader):
    """Reader of the distributions of a file, which counts what a note says.

    Args:
        file: the file's name, for errors and notes.
    """

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._different = 0  # the first line with a list of several labels; 0 as soon as a list has a label twice
        self._lists = False
        self._first, self._one_hot = 0, set[int]()  # the first line with a list, and how many numbers lists have

    def of_value(self, value: Any, line: int) -> Labels | None:
        """Return the distribution that the value of a record contains, or the label in a list; None: it is one label.

        Raises:
            UserError: it contains something that is not a distribution, see `of_probabilities` and `of_votes`.
        """
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = parse_cell(value)
        if isinstance(value, Mapping):
            present = {name: number for name, number in value.items() if number is not None}
            return self.of_probabilities(present, line)  # Arrow has a null for each label that a text lacks
        if not isinstance(value, list | tuple):
            return None
        if len(value) == 1 and type(value[0]) in (str, int):
            return Labels(str(value[0]).strip())
        self._first = self._first or line
        self._one_hot.add(len(value) if is_one_hot(value) else 0)
        soft = self.of_votes(value, line)
        votes = list(filter(None, soft.votes))
        if len(set(votes)) < len(votes):
            self._lists, self._different = True, 0
        elif len(set(votes)) > 1 and not self._lists:
            self._different = self._different or line
        return soft

    def check(self) -> None:
        """Check, after the last row, that lists are votes: annotators who never agree are those of several labels.

        Raises:
            UserError: no list has a label twice, or each has a single 1 among zeros.
        """
        if len(self._one_hot) == 1 and 0 not in self._one_hot:
            self.refuse(
                "the label is a list, and each list of the file has a single 1 among zeros, one for each label",
                self._first,
                f"write the name of the label, or if these are votes, write them into columns named {VOTE}ANNOTATOR",
            )
        if self._different:
            self.refuse(
                "the label is a list, and no list of the file has a label twice, as votes would",
                self._different,
                f"fine-tune for multi-label, or write votes into columns named {VOTE}ANNOTATOR",
            )

    def of_probabilities(self, values: Mapping[str, Any], line: int) -> Labels:
        """Return the distribution with these probabilities, whose sum is made exactly 1.

        Raises:
            UserError: a probability is not a number, negative or infinite; they sum neither to 1 nor to 100; a name is
                empty or occurs twice.
        """
        numbers = self.numbers(values, line)
        self.counts["probabilities of labels, which are learned"] += 1
        total = math.fsum(numbers.values())
        if abs(total - 100) <= 100 * TOLERANCE:
            self.counts["percentages that sum to 100, which are read as probabilities"] += 1
        elif abs(total - 1) > TOLERANCE:
            self.refuse(
                f"the probabilities sum to {total:.6g}, not to 1",
                line,
                "correct them, or, if those of the labels are independent, fine-tune for multi-label",
            )
        return self._most_probable({name: number / total for name, number in numbers.items() if number}, (), line)

    def of_votes(self, values: Sequence[Any], line: int) -> Labels:
        """Return the distribution of votes; a vote that is empty or missing does not count.

        Raises:
            UserError: there is no vote, or one is not text or a whole number.
        """
        votes = []
        for value in values:
            missing = is_missing(value)
            if not missing and (not isinstance(value, str | int) or isinstance(value, bool)):
                self.refuse(f"a vote is {type(value).__name__}, not the name of a label", line)
            votes.append("" if missing else str(value).strip())
            check_name(votes[-1], self.file, line)
        counts = Counter(filter(None, votes))
        if not counts:
            self.refuse("no annotator voted", line, "remove the row")
        self.counts["votes of annotators, whose distribution is learned"] += 1
        total = counts.total()
        return self._most_probable({name: count / total for name, count in counts.items()}, tuple(votes), line)

    def _most_probable(self, distribution: Mapping[str, float], votes: tuple[str, ...], line: int) -> Labels:
        highest = max(distribution.values())
        first, *others = sorted(name for name, value in distribution.items() if math.isclose(value, highest))
        if others:
            self.counts["several most probable labels, of which the alphabetically first is the label"] += 1
        return Labels(first, distribution, votes)


def is_one_hot(values: Sequence[Any]) -> bool:
    """Return whether a list is a label as a vector: a single 1 among at least two zeros."""
    return (
        len(values) > 2
        and all(type(value) is int for value in values)
        and Counter(values) == {0: len(values) - 1, 1: 1}
    )


def parse_cell(text: str) -> Any:
    """Return the object or list that JSON or Python wrote into a cell; the text itself if it is none."""
    text = text.strip()
    written = text.startswith(("{", "[")) and len(text) <= LONGEST_LIST
    value = parse_collection(text) if written else None
    return text if value is None else value


class SoftLabelSets(SoftReader):
    """Reader of the probabilities of a file, which counts what a note says.

    Args:
        cells: reader of the labels of a vote.
    """

    def __init__(self, cells: LabelCells) -> None:
        super().__init__(cells.file)
        self._cells = cells
        self._sums = 0  # texts whose probabilities sum to 1
        self._number_of_probabilities = 0

    def of_value(self, value: Any, line: int) -> Labels | None:
        """Return the probabilities that the value of a record contains; None: it is labels.

        Raises:
            UserError: it contains something else, see `of_probabilities` and `of_votes`.
        """
        if isinstance(value, str) and value.lstrip().startswith(("{", "[[")):
            value = parse_cell(value)
        if isinstance(value, Mapping):
            return self.of_probabilities({name: p for name, p in value.items() if p is not None}, line)
        if isinstance(value, list | tuple) and any(isinstance(vote, list | tuple) for vote in value):
            return self.of_votes(value, line)
        return None

    def of_probabilities(self, values: Mapping[str, Any], line: int) -> Labels:
        """Return the labels with these probabilities.

        Raises:
            UserError: a probability is not a number from 0 to 1; a name is empty or occurs twice.
        """
        numbers = self.numbers(values, line)
        for name, number in numbers.items():
            if number > 1:
                self.refuse(f"the probability of '{name}' is {number:.6g}, above 1", line, "divide percentages by 100")
        self.counts["probabilities of labels, which are learned"] += 1
        self._number_of_probabilities += 1
        self._sums += abs(sum(numbers.values()) - 1) <= TOLERANCE
        return self._chosen(numbers, ())

    def of_votes(self, values: Sequence[Any], line: int) -> Labels:
        """Return the labels by the shares of annotators who chose them; a missing vote does not count.

        Raises:
            UserError: nobody voted; a vote is empty, is not a list of labels, or has a label twice.
        """
        votes = tuple(None if is_missing(value) else self._vote(value, line) for value in values)
        cast = [vote for vote in votes if vote is not None]
        if not cast:
            self.refuse("no annotator voted", line, "remove the row")
        self.counts["votes of annotators, whose shares are learned"] += 1
        counts = Counter(label for vote in cast for label in vote)
        return self._chosen({label: number / len(cast) for label, number in counts.items()}, votes)

    def check(self) -> None:
        """See `SoftLabels`: nothing remains to be checked."""

    def notes(self) -> list[str]:
        """Return what was counted, one line each."""
        notes = super().notes()
        if self._number_of_probabilities and self._sums == self._number_of_probabilities:
            notes.append(
                f"{self.file}: the probabilities of each text sum to 1, but are learned as independent ones: for one "
                "label per text, fine-tune for classification"
            )
        return notes

    def _vote(self, value: Any, line: int) -> tuple[str, ...]:
        if isinstance(value, list | tuple):
            return self._cells.of_value(value, line)
        if not isinstance(value, str):
            self.refuse(f"a vote is {type(value).__name__}, not a list of labels", line)
        if not value.strip():
            self.refuse("a vote is empty", line, "write [] for no label; for no vote, use null in JSON Lines")
        return self._cells.split(value, line)

    def _chosen(self, numbers: Mapping[str, float], votes: tuple[Vote, ...]) -> Labels:
        if 0.5 in numbers.values():
            self.counts["a label with a probability of one half, which does not count"] += 1
        labels = tuple(name for name, number in numbers.items() if number > 0.5)
        return Labels(labels, {name: number for name, number in numbers.items() if number}, votes)


class RowLabels:
    """Reader of the labels of a file's rows, which counts what a note says.

    Args:
        file: the file's name, for errors and notes.
        wanted: what the rows have.
        cells: whether values are cells of text, which may contain what JSON or Python wrote.
        columns: receives the columns of the labels of a text that may have several, if each is in one of its own; those
            of the files before.
    """

    def __init__(self, file: str, wanted: Wanted, *, cells: bool, columns: dict[str, None]) -> None:
        self._columns, self._selected = columns, SelectedColumns({})
        self._several, self._is_soft, self._in_cells = wanted.fields.several, wanted.fields.soft, cells
        self._cells = LabelCells(file, wanted.separator)
        self._soft: SoftLabels | SoftLabelSets = SoftLabelSets(self._cells) if self._several else SoftLabels(file)

    def read(self, selected: SelectedColumns, values: Sequence[Any], line: int) -> Labels | None:
        """Return the labels of a row; None: it has none, or its label is the value of a column as it is.

        Raises:
            UserError: the value is not a label, or may be read in two ways; the labels are not in the columns in which
                they were before.
        """
        if selected is not self._selected:
            self._selected = selected
            self._check_columns(selected.indicators or selected.probabilities, line)
        if selected.probabilities:
            return self._soft.of_probabilities({name: values[i] for name, i in selected.probabilities.items()}, line)
        if selected.votes:
            return self._soft.of_votes([self._value(values[index]) for index in selected.votes.values()], line)
        if selected.indicators:
            labels = self._cells.of_indicators({name: values[i] for name, i in selected.indicators.items()}, line)
            return Labels(labels if self._several else self._cells.only(labels, line))
        if "label" not in selected.indices:
            return None
        value = self._value(values[selected.indices["label"]])
        if self._is_soft and not (type(value) is str and value.lstrip()[:1] not in _OPENING):
            soft = self._soft.of_value(parse_cell(value) if self._in_cells else value, line)
            if soft is not None:
                return soft
        if not self._several:
            return None
        return Labels(self._cells.split(value, line) if self._in_cells else self._cells.of_value(value, line))

    def _check_columns(self, columns: Mapping[str, int], line: int) -> None:
        """Check that each label has a column, as what has none would be taken for absent.

        Raises:
            UserError: a label has a column elsewhere, or only here.
        """
        if not self._several or not columns:
            return
        if different := sorted(columns.keys() ^ (self._columns or columns).keys()):
            here = different[0] in columns
            self._soft.refuse(
                f"there is a column '{different[0]}' of a label {'here' if here else 'elsewhere'}, but not "
                f"{'elsewhere' if here else 'here'}, where the label would be taken for absent",
                line,
                f"add the column, or name those that all have, as in {argument('columns', {'label': 'NAME,NAME'})}",
            )
        self._columns.update(dict.fromkeys(columns))

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
        return [*(f"{self._soft.file}: {remark}" for remark in self._selected.remarks), *self._soft.notes()]
