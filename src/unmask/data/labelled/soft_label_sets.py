"""Soft labels of texts with several labels: an independent probability for each label of a text.

Input: `{"joy": 0.9, "anger": 0.4}`, or columns `p:NAME`; or votes, of which each is a list of labels:
`[["joy"], ["joy", "anger"], []]`, null where an annotator did not vote, or columns `label:ANNOTATOR`. Output: the
probabilities, those of votes being shares of the annotators, and the labels with a probability above one half.

Unlike those of soft_labels.py, the probabilities of a text need not sum to 1. If they do so in all of a file, a note
says that they may be those of texts with one label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from unmask.data.labelled.label_cells import LabelCells, is_missing
from unmask.data.labelled.soft_labels import TOLERANCE, SoftReader, parse_cell

Vote = tuple[str, ...] | None
"""The labels that an annotator chose; None if they did not vote."""


class SoftLabelSet(msgspec.Struct, frozen=True):
    """What is known of the labels of a text.

    Attributes:
        labels: those with a probability above one half, in the order of the file.
        probabilities: of the labels that have one above 0, in the order of the file.
        votes: the vote of each annotator; empty: probabilities were given.
    """

    labels: tuple[str, ...]
    probabilities: Mapping[str, float]
    votes: tuple[Vote, ...] = ()


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

    def of_value(self, value: Any, line: int) -> SoftLabelSet | None:
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

    def of_probabilities(self, values: Mapping[str, Any], line: int) -> SoftLabelSet:
        """Return the labels with these probabilities.

        Raises:
            UserError: a probability is not a number from 0 to 1; a name is empty or occurs twice.
        """
        numbers = self.numbers(values, line)
        for name, number in numbers.items():
            if number > 1:
                self.refuse(f"the probability of '{name}' is {number:.6g}, above 1", line, "divide percentages by 100")
        self.counts["have probabilities of labels, which are learned"] += 1
        self._number_of_probabilities += 1
        self._sums += abs(sum(numbers.values()) - 1) <= TOLERANCE
        return self._chosen(numbers, ())

    def of_votes(self, values: Sequence[Any], line: int) -> SoftLabelSet:
        """Return the labels by the shares of annotators who chose them; a missing vote does not count.

        Raises:
            UserError: nobody voted; a vote is empty, is not a list of labels, or has a label twice.
        """
        votes = tuple(None if is_missing(value) else self._vote(value, line) for value in values)
        cast = [vote for vote in votes if vote is not None]
        if not cast:
            self.refuse("no annotator voted", line, "remove the row")
        self.counts["have votes of annotators, whose shares are learned"] += 1
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

    def _chosen(self, numbers: Mapping[str, float], votes: tuple[Vote, ...]) -> SoftLabelSet:
        if 0.5 in numbers.values():
            self.counts["have a label with a probability of one half, which does not count as theirs"] += 1
        labels = tuple(name for name, number in numbers.items() if number > 0.5)
        return SoftLabelSet(labels, {name: number for name, number in numbers.items() if number}, votes)
