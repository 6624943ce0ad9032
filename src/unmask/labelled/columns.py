"""Which columns of a labelled file are the texts and the label: by `--columns`, by header, or by a published format.

In: the first line, or all rows where there is no header. Out: the columns' places, and what the format itself leaves
out.

Published are those of GLUE (Wang et al. 2019, its files as they are distributed), of SNLI and MultiNLI, of the
Microsoft Research Paraphrase Corpus, of SICK and of the SemEval tasks on textual similarity. Files without header are
read without `--columns` only where every row has the shape of such a format; whatever else has no header is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from unmask.errors import UserError

PAIRS = (
    *(("text", "text_b"), ("text_a", "text_b"), ("sentence1", "sentence2"), ("sentence_A", "sentence_B")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("#1 String", "#2 String"), ("question", "sentence")),
)
"""Names under which the texts of a pair are found unless `--columns` says otherwise;"""
TEXTS = ("text", "sentence", "review", "content", "text_a")
"""and, where a file has no pairs, a single text;"""
LABELS = ("label", "labels", "gold_label", "class", "sentiment", "Quality", "is_duplicate", "entailment_judgment")
"""and a label;"""
NUMBERS = ("score", "similarity", "relatedness_score")
"""and a number."""

QUESTIONS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
"""The header of Quora's question pairs in GLUE: line breaks in questions have torn some rows, two have an empty one."""


@dataclass(frozen=True)
class Headerless:
    """A published format without header.

    Attributes:
        name: for messages.
        places: of its columns, by our names.
        fits: whether a row may be of this format.
        unlabelled: what stands in the place of a label where a pair has none.
    """

    name: str
    places: Mapping[str, int]
    fits: Callable[[Sequence[str]], bool]
    unlabelled: str | None = None


def _fits_acceptability(cells: Sequence[str]) -> bool:
    """Source, 0 or 1, the mark of the source (a star, question marks) or nothing, the sentence."""
    return len(cells) == 4 and cells[1] in ("0", "1") and re.fullmatch(r"[*?]{0,2}", cells[2].strip()) is not None


def _fits_similarity(cells: Sequence[str]) -> bool:
    """A score from 0 to 5 or nothing, and two texts that are no numbers."""
    number = re.compile(r"-?\d+(\.\d+)?")
    score = re.fullmatch(r"[0-4](\.\d+)?|5(\.0+)?|", cells[0].strip()) if len(cells) == 3 else None
    return score is not None and all(text.strip() and not number.fullmatch(text.strip()) for text in cells[1:])


ACCEPTABILITY = Headerless("the Corpus of Linguistic Acceptability", {"text": 3, "label": 1}, _fits_acceptability)
"""Warstadt et al. 2019, in GLUE as in its own release."""
SIMILARITY = Headerless("SemEval's textual similarity", {"text": 1, "text_b": 2, "label": 0}, _fits_similarity, "")
"""SemEval 2012 to 2016, a file a source; pairs that nobody scored have no number and are not part of the evaluation."""


@dataclass(frozen=True)
class Found:
    """Where to look in a row.

    Attributes:
        places: of the columns asked for, by our names.
        unlabelled: what stands in the place of a label where the format has none for a row, which is left out.
        damaged: whether rows with too few columns or an empty text are known to be in the published file, and are left
            out.
    """

    places: Mapping[str, int]
    unlabelled: str | None = None
    damaged: bool = False


@dataclass(frozen=True)
class Wanted:
    """Which columns to take.

    Attributes:
        columns: our names to theirs, as the user gave them.
        labels: names of the label's column; none where no label is wanted.
        headerless: the format that needs no header.
    """

    columns: Mapping[str, str]
    labels: tuple[str, ...]
    headerless: Headerless

    def numbered(self, name: str) -> Found | None:
        """Return the columns where they are given as numbers, which say that there is no header.

        Raises:
            UserError: some are given as numbers, but not all that are needed.
        """
        numbers = {ours: int(theirs) for ours, theirs in self.columns.items() if theirs.isdecimal()}
        needed = {"text", *self.columns, *(("label",) if self.labels else ())}
        if numbers and (named := sorted(needed - numbers.keys())):
            raise UserError(f"--columns gives numbers, but none for {', '.join(named)}", file=name)
        return Found(numbers) if numbers else None

    def named(self, cells: Sequence[str], name: str, line: int) -> Found:
        """Find the columns among the names of a header.

        Raises:
            UserError: one is not there.
        """
        names = [cell.strip() for cell in cells]
        places = {}
        for ours, candidates in self._candidates(names).items():
            found = next((theirs for theirs in candidates if theirs in names), None)
            if found is None:
                raise UserError(
                    f"no column called {' or '.join(dict.fromkeys(candidates))}; there are: {', '.join(names)[:200]}",
                    file=name,
                    line=line,
                    remedy=f"pass --columns {ours}=NAME, or numbers from 0 if there is no header",
                )
            if names.count(found) > 1:
                raise UserError(
                    f"{names.count(found)} columns are called {found}",
                    file=name,
                    line=line,
                    remedy="rename one, or take the header away and pass --columns with numbers from 0",
                )
            places[ours] = names.index(found)
        # pairs on whose label the annotators did not agree (Bowman et al. 2015, section 2.2)
        disagreed = "text_b" in places and "label" in places and names[places["label"]] == "gold_label"
        return Found(places, "-" if disagreed else None, damaged=tuple(names) == QUESTIONS)

    def may_lack_header(self, first: Sequence[str]) -> bool:
        """Say whether the first row looks like the one format that needs no header."""
        return not self.columns and self.headerless.fits(first)

    def unnamed(self, rows: Sequence[tuple[int, Sequence[str]]], name: str) -> Found:
        """Return the columns of the format that needs no header, given all rows with their lines.

        Raises:
            UserError: a row is not of this format.
        """
        for line, cells in rows:
            if not self.headerless.fits(cells):
                raise UserError(
                    f"there is no header, and this row is not one of {self.headerless.name}, as those before it are",
                    file=name,
                    line=line,
                    remedy="mend it, or pass --columns with numbers from 0",
                )
        places = {ours: place for ours, place in self.headerless.places.items() if ours != "label" or self.labels}
        return Found(places, self.headerless.unlabelled if self.labels else None)

    def _candidates(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return under which names to look for each column."""
        chosen: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in self.columns.items()}
        if "text" not in chosen:
            pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
            if pair and "text_b" not in chosen:
                chosen |= {"text": (pair[0],), "text_b": (pair[1],)}
            else:
                chosen["text"] = (*TEXTS, *(first for first, _ in PAIRS))
        if self.labels:
            chosen.setdefault("label", self.labels)
        return chosen
