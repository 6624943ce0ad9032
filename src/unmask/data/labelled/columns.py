"""Selection of the text and label columns of a labeled file: by `columns`, by header, or by a published format.

Input: the first line, or all rows of a file without a header. Output: the indices of the columns, and which rows the
format itself excludes.

The published formats are those of GLUE (Wang et al. 2019, its files as distributed), of SNLI and MultiNLI, of the
Microsoft Research Paraphrase Corpus, of SICK, and of the SemEval tasks on textual similarity. Files without a header
are read without `columns` only if every row has the shape of such a format; all others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from unmask.data.labelled import negatives
from unmask.data.labelled.label_cells import SEPARATOR, SEPARATOR_KEY, WEIGHT, separator_of
from unmask.support.choices import ColumnNames
from unmask.support.errors import UserError
from unmask.support.messages import argument

PAIRS = (
    *(("text", "text_b"), ("text_a", "text_b"), ("sentence1", "sentence2"), ("sentence_A", "sentence_B")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("#1 String", "#2 String"), ("question", "sentence")),
    *(("anchor", "positive"), ("query", "passage"), ("query", "document"), ("query", "positive")),
    *(("text", "text_pair"), ("text1", "text2"), ("text_1", "text_2"), ("sentence_1", "sentence_2")),
)
"""Names of the columns with the texts of a pair, unless `columns` gives others."""
TEXTS = ("text", "sentence", "review", "content", "text_a")
"""Names of the text column, if a file has no pairs."""
PRODIGY = "_task_hash"
"""A key of all records of Prodigy, unless they were exported without it."""
ANSWER, REJECTED = "answer", ("reject", "ignore")
"""The key of Prodigy's records that says whether a label was right; if it was not, or nobody knew."""
SECONDS = ("answer", "response", "context", "passage", "evidence", "hypothesis", "positive")
"""Names of what may be the second text of a pair whose first one is called something else."""
LABELS = ("label", "labels", "gold_label", "class", "sentiment", "Quality", "is_duplicate", "entailment_judgment")
"""Names of the label column for classification."""
PROBABILITY, VOTE = "p:", "label:"
"""What the names of columns of probabilities and of votes begin with; that of the label or annotator follows."""
NUMBERS = ("score", "similarity", "relatedness_score")
"""Names of the label column for regression."""
GRADES = ("grade", "relevance", "score", "label")
"""Names of the label column for ranking."""
MATCHES = tuple(dict.fromkeys((*NUMBERS, *LABELS, *GRADES)))
"""Names of columns that tell which pairs of texts belong together."""
MOST_NAMED = 4
"""Number of names of a column that an error lists."""
HEADINGS = frozenset(
    name.casefold()
    for name in (
        *(name for pair in PAIRS for name in pair),
        *TEXTS,
        *MATCHES,
        *("category", "comment", "intent", "message", "target", "title", "topic", "tweet", "utterance"),
    )
)
"""Names of columns in lower case, which are values only if a header was read as a row."""

QUESTIONS = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
"""The header of Quora's question pairs in GLUE; line breaks broke some rows, and two rows have an empty question."""


def as_columns(columns: ColumnNames | None) -> dict[str, str]:
    """Return columns as readers take them: numbers as text, and several joined by commas.

    Args:
        columns: our names to the names in the file, or to numbers from 0; a sequence stands for several columns.

    Raises:
        UserError: they are no mapping, a name is of another type, or one of several contains a comma.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise UserError(
            f"{argument('columns', columns)}: not a mapping of our names to those in the file",
            remedy="pass {'text': NAME, 'label': NAME}",
        )
    found = {}
    for column, given in (columns or {}).items():
        names = list(given) if isinstance(given, list | tuple) else [given]
        if not names or any(isinstance(name, bool) or not isinstance(name, str | int) for name in names):
            raise UserError(
                f"{argument('columns', {column: given})} is not the name of a column",
                remedy="give its name, its number from 0, or a list of several names",
            )
        if len(names) > 1 and (several := [name for name in names if "," in str(name)]):
            raise UserError(
                f"{argument('columns', {column: '…'})}: the name {several[0]!r} of one of several columns has a comma",
                remedy="rename it",
            )
        found[column] = ",".join(map(str, names))
    return found


def _remedy(column: str, headers: Sequence[str]) -> str:
    """Return what to do about a header in which a column is not found."""
    if headers[:1] and headers[0].startswith("__label__"):
        return "write the lines of fastText as columns, label and text, or as JSON Lines with these keys"
    if headers and all(len(header) > 1 and header[0] == header[-1] == '"' for header in headers):
        return "its cells are quoted, as in CSV: name the file .csv"
    remedy = f"pass {argument('columns', {column: 'NAME'})}, or numbers from 0 if there is no header"
    alone = len(headers) > 0 and len([*filter(None, headers)]) == 1
    return f"{remedy}; or, if the header is below this line, remove what is above it" if alone else remedy


@dataclass(frozen=True)
class Headerless:
    """A published format without a header.

    Attributes:
        name: its name in messages.
        indices: indices of its columns, by our names.
        fits: returns whether a row may be of this format.
        unlabeled: the value in the label column of pairs without a label.
    """

    name: str
    indices: Mapping[str, int]
    fits: Callable[[Sequence[str]], bool]
    unlabeled: str | None = None


def _fits_acceptability(cells: Sequence[str]) -> bool:
    """Return whether a row is: source; 0 or 1; the mark of the source (a star, question marks) or nothing; sentence."""
    return len(cells) == 4 and cells[1] in ("0", "1") and re.fullmatch(r"[*?]{0,2}", cells[2].strip()) is not None


def _fits_similarity(cells: Sequence[str]) -> bool:
    """Return whether a row is: a score from 0 to 5 or nothing; two texts that are not numbers."""
    number = re.compile(r"-?\d+(\.\d+)?")
    score = re.fullmatch(r"[0-4](\.\d+)?|5(\.0+)?|", cells[0].strip()) if len(cells) == 3 else None
    return score is not None and all(text.strip() and not number.fullmatch(text.strip()) for text in cells[1:])


ACCEPTABILITY = Headerless("the Corpus of Linguistic Acceptability", {"text": 3, "label": 1}, _fits_acceptability)
"""Warstadt et al. 2019; the format is the same in GLUE and in its own release."""
SIMILARITY = Headerless("SemEval's textual similarity", {"text": 1, "text_b": 2, "label": 0}, _fits_similarity, "")
"""SemEval 2012 to 2016, one file per source; pairs without a score are not part of the evaluation."""


UNWEIGHTED = "examples have weights in classification, multi-label and regression alone"
"""Why weights are refused by other tasks."""


def refuse_weights(columns: Mapping[str, str], why: str) -> None:
    """Raise an error if there is a column of weights of examples, which count in the loss of training alone."""
    if WEIGHT in columns:
        raise UserError(f"{argument('columns', {WEIGHT: '…'})} has no effect: {why}", remedy="omit it")


def without_weights(columns: Mapping[str, str]) -> dict[str, str]:
    """Return columns without that of weights, to read examples that nothing is trained on."""
    return {column: name for column, name in columns.items() if column != WEIGHT}


@dataclass(frozen=True)
class Fields:
    """What the rows of a task have, beside one or two texts.

    Attributes:
        labels: possible names of the label column, unless `columns` gives another; empty if labels are not read.
        headerless: the published format that needs no header.
        several: whether a text may have several labels, or none; see `Row.labels` and data/labelled/labelled_file.py.
        optional: whether all rows of a file may lack labels.
        negatives: whether texts that do not belong to the first one are read, if there are columns of them; see
            negatives.py.
        soft: whether a label may be a distribution; see data/labelled/row_labels.py.
        weights: whether an example may have a weight in the loss, if `columns` names its column: the head multiplies by
            `TextHead.example_weights`.
        blank: whether texts may be empty, or missing.
    """

    labels: tuple[str, ...] = LABELS
    headerless: Headerless = ACCEPTABILITY
    several: bool = False
    optional: bool = False
    negatives: bool = False
    soft: bool = False
    weights: bool = False
    blank: bool = False


SINGLE = Fields()
"""Rows with one label each."""


@dataclass(frozen=True)
class SelectedColumns:
    """The columns that were found in a file.

    Attributes:
        indices: indices of the requested columns, by our names.
        unlabeled: the value in the label column of rows without a label, which are omitted.
        damaged: whether the published file is known to contain rows with too few columns or with an empty text, which
            are omitted.
        indicators: indices of columns of zeros and ones by their labels, if there is one for each label; `indices` then
            has no "label".
        probabilities: likewise those of columns of probabilities.
        votes: likewise those of columns of votes, by their annotators.
        negatives: indices of the columns of negatives.
        scores: index of the column of a teacher's scores; -1 if there is none.
        remarks: which other columns the label and the text might be in.
    """

    indices: Mapping[str, int]
    unlabeled: str | None = None
    damaged: bool = False
    indicators: Mapping[str, int] = field(default_factory=dict)
    probabilities: Mapping[str, int] = field(default_factory=dict)
    votes: Mapping[str, int] = field(default_factory=dict)
    negatives: tuple[int, ...] = ()
    scores: int = -1
    remarks: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The largest index."""
        several = (self.indicators, self.probabilities, self.votes)
        return max((*self.indices.values(), *self.negatives, *(index for of in several for index in of.values())))


@dataclass(frozen=True)
class Wanted:
    """The columns to read.

    Attributes:
        columns: our names to the names in the file, as given by the user.
        fields: what the rows have.
        gold: whether labels are read.
        separator: what separates several labels in a cell.
    """

    columns: Mapping[str, str]
    fields: Fields
    gold: bool = True
    separator: str = SEPARATOR

    @classmethod
    def of(cls, columns: Mapping[str, str], fields: Fields, *, gold: bool = True) -> Wanted:
        """Return what is wanted by `columns`, which may also name the separator; see `separator_of`."""
        named = {column: name for column, name in columns.items() if column != SEPARATOR_KEY}
        return cls(named, fields, gold, separator_of(columns))

    def rejects(self, answer: object) -> bool:
        """Return whether a row is left out because of its `ANSWER`, unless that is itself a label or a text."""
        return self.gold and answer in REJECTED and ANSWER not in ",".join(self.columns.values()).split(",")

    def numbered(self, name: str) -> SelectedColumns | None:
        """Return the columns if they are given as numbers, which imply that there is no header; None otherwise.

        Raises:
            UserError: only some of the required columns are given as numbers.
        """
        numbers = {column: int(number) for column, number in self.columns.items() if number.isdecimal()}
        several = self.columns.get(negatives.COLUMN, "").replace(" ", "").split(",")
        third = tuple(map(int, several)) if all(number.isdecimal() for number in several) else ()
        if third:
            numbers.pop(negatives.COLUMN, None)
        needed = {"text", *self.columns, *(("label",) if self.fields.labels and not self.fields.optional else ())}
        lacking = sorted(needed - numbers.keys() - ({negatives.COLUMN} if third else set()))
        if (numbers or third) and lacking:
            raise UserError(f"{argument('columns')} gives numbers, but none for {', '.join(lacking)}", file=name)
        return SelectedColumns(numbers, negatives=third) if numbers else None

    def named(self, cells: Sequence[str], name: str, line: int) -> SelectedColumns:
        """Find the columns among the names of a header; `Text` is `text`, if there is no other.

        Raises:
            UserError: a column is missing, or its name is not unique.
        """
        headers = [cell.strip() for cell in cells]
        names = self._in_our_case(headers)
        indices = {}
        wanted = self._candidates(names)
        indicators = self._indicators(names, wanted, name, line)
        for column, candidates in wanted.items():
            header = next((candidate for candidate in candidates if candidate in names), None)
            if header is None:
                known = list(dict.fromkeys(candidates))
                more = ", …" if len(known) > MOST_NAMED else ""
                raise UserError(
                    f"no column named {' or '.join(known[:MOST_NAMED])}{more}; columns: {', '.join(headers)[:200]}",
                    file=name,
                    line=line,
                    remedy=_remedy(column, headers),
                )
            negatives.check_once(header, names, name, line)
            indices[column] = names.index(header)
        # "-" marks pairs on whose label the annotators disagreed (Bowman et al. 2015, section 2.2)
        may_disagree = "text_b" in indices and "label" in indices and names[indices["label"]] == "gold_label"
        damaged = tuple(names) == QUESTIONS
        hard, scores = self.columns.get(negatives.COLUMN), -1
        if self.fields.negatives and negatives.SCORES in names:
            negatives.check_once(negatives.SCORES, names, name, line)
            scores = names.index(negatives.SCORES)
        return SelectedColumns(
            indices,
            "-" if may_disagree else None,
            damaged,
            **self._by_kind(indicators, name, line),
            negatives=negatives.find_negatives(names, hard, name, line) if self.fields.negatives else (),
            scores=scores,
            remarks=tuple(self._choices(names, headers, indices)),
        )

    def _in_our_case(self, headers: Sequence[str]) -> list[str]:
        """Return the names of a header, those of texts and labels in the case of the tables above."""
        texts = () if "text" in self.columns else (*TEXTS, *(name for pair in PAIRS for name in pair))
        labels = () if "label" in self.columns else self.fields.labels
        known = {name.casefold(): name for name in (*texts, *labels)}
        given = {header.strip() for named in self.columns.values() for header in named.split(",")}
        folded = [header.casefold() for header in headers]
        return [
            header if header in given or folded.count(name) > 1 else known.get(name, header)
            for name, header in zip(folded, headers, strict=True)
        ]

    def _choices(self, names: Sequence[str], headers: Sequence[str], indices: Mapping[str, int]) -> Iterator[str]:
        """Yield a line about each of label and text, if other columns have names of it, too, or of a second text."""
        pairs = (first for first, second in PAIRS if first in names and second in names)
        known = {"label": self.fields.labels, "text": (*TEXTS, *pairs)}
        for column in known:
            if column in self.columns or column not in indices:
                continue
            read = [headers[index] for ours, index in indices.items() if ours.startswith(column)]
            others = [headers[names.index(name)] for name in known[column] if name in names]
            others = [header for header in others if header not in read]
            if others:
                yield (
                    f"the {column} is {' and '.join(map(repr, read))}; "
                    f"{argument('columns', {column: others[0]})} would read another column"
                )
        second = next((header for header in headers if header.casefold() in SECONDS and PRODIGY not in headers), None)
        if second and not self.columns.keys() & {"text", "text_b"} and "text_b" not in indices and "text" in indices:
            first = headers[indices["text"]]
            yield (
                f"single texts are read, from '{first}'; "
                f"{argument('columns', {'text': first, 'text_b': second})} would read pairs"
            )

    def _implied(self, names: Sequence[str], name: str, line: int) -> str:
        """Return the pattern of the columns of probabilities or votes, if there are such columns; otherwise "".

        Raises:
            UserError: the label may be read in two ways.
        """
        prefixes = [prefix for prefix in (PROBABILITY, VOTE) if any(header.startswith(prefix) for header in names)]
        ways = [*(header for header in self.fields.labels if header in names), *(f"{prefix}*" for prefix in prefixes)]
        if prefixes and len(ways) > 1:
            raise UserError(
                f"the label may be in the columns {' or '.join(ways)}",
                file=name,
                line=line,
                remedy=f"pass {' or '.join(argument('columns', {'label': way}) for way in ways)}",
            )
        return ways[0] if prefixes else ""

    def _by_kind(self, several: Mapping[str, int], name: str, line: int) -> dict[str, dict[str, int]]:
        """Return the columns of the label, if it is in several, under what they contain; see `SelectedColumns`."""
        prefixes = {"probabilities": PROBABILITY, "votes": VOTE} if self.fields.soft else {}
        for kind, prefix in prefixes.items():
            if several and all(header.startswith(prefix) for header in several):
                indices = {header[len(prefix) :].strip(): index for header, index in several.items()}
                if len(indices) < len(several):
                    raise UserError(f"a column of {kind} occurs twice", file=name, line=line, remedy="rename one")
                return {kind: indices}
        return {"indicators": dict(several)}

    def _indicators(
        self, names: Sequence[str], wanted: dict[str, tuple[str, ...]], name: str, line: int
    ) -> dict[str, int]:
        """Return the columns of zeros and ones, or of probabilities or votes, if the label is in several.

        The label is then removed from `wanted`.
        """
        label = self.columns.get("label", "")
        if self.fields.soft and not label:
            label = self._implied(names, name, line)
        if label in names or not ("," in label or "*" in label):
            return {}
        del wanted["label"]
        patterns = [pattern.strip() for pattern in label.split(",")]
        headers = [header for pattern in patterns for header in names if fnmatchcase(header, pattern)]
        absent = [pattern for pattern in patterns if not any(fnmatchcase(header, pattern) for header in names)]
        if absent or len(set(headers)) < len(headers):
            problem = f"no column named {absent[0]}" if absent else "a column of labels occurs twice"
            raise UserError(
                f"{problem}; columns: {', '.join(names)[:200]}",
                file=name,
                line=line,
                remedy=f"pass {argument('columns', {'label': 'NAME,NAME,…'})}",
            )
        return {header: names.index(header) for header in headers}

    @staticmethod
    def check_no_header(selected: SelectedColumns, first: Sequence[str], name: str, line: int) -> None:
        """Check that the first row, whose columns are given as numbers, is not a header.

        Raises:
            UserError: all of several values that would be read from it are names of columns.
        """
        values = [first[index].strip() for index in selected.indices.values()]
        if len(values) > 1 and all(value.casefold() in HEADINGS for value in values):
            pairs = dict(zip(selected.indices, values, strict=True))
            raise UserError(
                f"the first row is a header, {', '.join(values)}, which would be an example",
                file=name,
                line=line,
                remedy=f"pass {argument('columns', pairs)}, or remove the row",
            )

    def may_lack_header(self, first: Sequence[str]) -> bool:
        """Return whether the first row looks like the format that needs no header."""
        return not self.columns and self.fields.headerless.fits(first)

    def unnamed(self, rows: Sequence[tuple[int, Sequence[str]]], name: str) -> SelectedColumns:
        """Return the columns of the format that needs no header, given all rows with their line numbers.

        Raises:
            UserError: a row is not of this format.
        """
        headerless, gold = self.fields.headerless, bool(self.fields.labels)
        for line, cells in rows:
            if not headerless.fits(cells):
                raise UserError(
                    "there is no header, and this row, unlike those before it, does not have the format of "
                    f"{headerless.name}",
                    file=name,
                    line=line,
                    remedy=f"fix it, or pass {argument('columns')} with numbers from 0",
                )
        indices = {column: index for column, index in headerless.indices.items() if column != "label" or gold}
        return SelectedColumns(indices, headerless.unlabeled if gold else None)

    def _candidates(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the possible names of each column."""
        chosen: dict[str, tuple[str, ...]] = {
            column: (header,) for column, header in self.columns.items() if column != negatives.COLUMN
        }
        if "text" not in chosen:
            pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
            if pair and "text_b" not in chosen:
                chosen |= {"text": (pair[0],), "text_b": (pair[1],)}
            else:
                chosen["text"] = (*TEXTS, *(first for first, _ in PAIRS))
        fields = self.fields
        if fields.labels and not (fields.optional and set(fields.labels).isdisjoint(names)):
            chosen.setdefault("label", fields.labels)
        return chosen
