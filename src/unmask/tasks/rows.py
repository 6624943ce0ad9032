"""Base of the tasks over labeled rows: reading, conversion of rows to samples, and holding out a tenth of them.

Base of the tasks over whole texts, or pairs of texts: long texts are truncated, or read in overlapping windows.

Input: rows and their labels. Output: samples, and the outputs of the head for each text.

The vectors of a text's windows are averaged before the linear layer, as in Sun et al. 2019 (hierarchical methods with
mean pooling; their parts of a text do not overlap). In training the windows of a text are one sample (`Sample.parts`),
so that the loss is that of the text. Otherwise each window is a sample: as the layer is linear, the mean of their
outputs is its output for the mean vector.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.columns import SINGLE, Fields
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import TEXTS, Row, iterate_rows, read_rows
from unmask.data.labelled.span_export import export_array, export_labels, is_export
from unmask.data.labelled.table import Source
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.data.tokenizers.words import Ragged, encode_ragged
from unmask.support.errors import ShareNote, UserError, check_unicode, counted
from unmask.support.messages import argument, setting
from unmask.tasks.explained import SampleWords, UnexplainedError, Word, split_words
from unmask.tasks.gold_labels import EXAMPLE_WEIGHTS, example_weights
from unmask.tasks.holding_out import choose_stratified
from unmask.tasks.mistakes import Passage
from unmask.tasks.passage_windows import window_starts
from unmask.tasks.prediction_tables import TABLES, as_row, with_columns, write_table
from unmask.tasks.routes import PREDICT, Route, Scored
from unmask.tasks.task import Columns, Framed, Notes, Paths, Reason, Task

Size = TypeVar("Size", int, np.ndarray)


def texts_of(example: Row) -> tuple[str, ...]:
    """Return the texts of a row: one or a pair, and negatives, if it has any."""
    values = example.values
    return (*[values[name] for name in TEXTS if name in values], *example.negatives)


class RowTask(Task, frozen=True, kw_only=True):
    """Base class of tasks over labeled rows of one or several texts; see `Task`.

    Attributes:
        fields: what its rows have, beside one or two texts.
    """

    fields: ClassVar[Fields] = SINGLE
    texts = staticmethod(texts_of)
    tables = TABLES
    route: ClassVar[Route | Reason] = PREDICT

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`; texts may be empty if labels are not read: what is predicted is counted (`frame_rows`)."""
        fields = self.fields if gold else replace(self.fields, blank=True)
        return read_rows(paths, columns=columns, kind=kind, gold=gold, fields=fields, notes=notes)

    def iterate(
        self, source: Source, *, columns: Columns, kind: str | None = None, notes: Notes = None
    ) -> Iterator[Row]:
        """See `Task`; negatives, which are not predicted, are not read."""
        fields = replace(self.fields, negatives=False, blank=True)
        return iterate_rows([source], columns=columns, kind=kind, gold=False, fields=fields, notes=notes)

    def choose_held(
        self, examples: Sequence[Row], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """See `Task`: a tenth of each stratum."""
        return choose_stratified(examples, identities, self.strata(examples), seed)

    def strata(self, examples: Sequence[Row]) -> Sequence[Hashable]:
        """Return the stratum of each example, such as its label; all are in the same one if not overridden."""
        return [0] * len(examples)

    def record(self, path: Path, example: Row, prediction: Any) -> Any:
        """See `Task`: the prediction with the columns of its row, or an annotator's record."""
        if is_export(path):
            texts = {name: example.values[name] for name in TEXTS if name in example.values}
            return export_labels(path, texts, self.predicted(prediction))
        return as_row(example, prediction) if path.suffix in TABLES else with_columns(example, prediction)

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: a table or, depending on the suffix, JSON Lines or an annotator's file."""
        if is_export(path):
            return {path: export_array(records)} if path.suffix == ".json" else {}
        return {path: write_table(path.suffix, records)} if path.suffix in TABLES else {}

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Row]:
        """See `Task`."""
        return as_rows(texts, texts_b)

    def scored(self, prediction: Any) -> list[Scored]:
        """Return the labels of a prediction with their probabilities, in the model's order, for `PREDICT`."""
        raise NotImplementedError

    def predicted(self, prediction: Any) -> dict[str, float]:
        """Return the predicted labels with their probabilities.

        Raises:
            UserError: its predictions are no labels (`Task.exports`).
        """
        raise UserError(f"predictions of {self.title} are not labels, as annotators import them")


def as_rows(texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Row]:
    """Return texts, or pairs of them, as rows without a label.

    Raises:
        UserError: the numbers of first and second texts differ, or a text is not valid Unicode.
    """
    texts, texts_b = list(texts), None if texts_b is None else list(texts_b)
    check_unicode(chain(texts, texts_b or ()))
    if texts_b is None:
        return [Row({"text": text}, "", 0) for text in texts]
    if len(texts) != len(texts_b):
        raise UserError(f"{counted(len(texts), 'text')} cannot be paired with {counted(len(texts_b), 'second text')}")
    return [Row({"text": first, "text_b": second}, "", 0) for first, second in zip(texts, texts_b, strict=True)]


def with_labels(rows: Sequence[Row], labels: Sequence[str]) -> list[Row]:
    """Return rows with other labels, one for each, and without distributions."""
    return [
        msgspec.structs.replace(row, values={**row.values, "label": label}, probabilities=None, votes=())
        for row, label in zip(rows, labels, strict=True)
    ]


def are_pairs(rows: Sequence[Row], wanted: bool | None = None) -> bool:
    """Return whether rows are pairs of texts.

    Args:
        rows: rows that are all pairs or all single texts.
        wanted: whether they must be pairs, because the model was trained on pairs; None: either.

    Raises:
        UserError: some are pairs and some are not, or they are not what is wanted; names file and line.
    """
    if wanted is None:
        wanted = bool(rows) and "text_b" in rows[0].values
        known = f"the first example is {'a pair of texts' if wanted else 'one text'}"
    else:
        known = f"the model was trained on {'pairs of texts' if wanted else 'single texts'}"
    for row in rows:
        if ("text_b" in row.values) != wanted:
            raise UserError(
                f"{'one text' if wanted else 'a pair of texts'}, but {known}",
                file=row.file or None,
                line=row.line or None,
                remedy=f"give the second text: a column text_b, or {argument('text_b')}"
                if wanted
                else "remove the second text",
            )
    return wanted


class FramedRows(NamedTuple):
    """Rows as samples.

    Attributes:
        samples: one sample per row or, without labels, one per window of a row, with the key (0, index of the row).
        cut: for each row, whether it was truncated.
        notes: the number of truncated and the number of empty rows, one line each, and of words that were.
    """

    samples: list[Sample]
    cut: list[bool]
    notes: tuple[str, ...]

    @property
    def ends(self) -> np.ndarray:
        """Where the samples of each row end, preceded by 0, (rows + 1,)."""
        return np.searchsorted([sample.key[1] for sample in self.samples], np.arange(len(self.cut) + 1))

    def mean(self, outputs: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the outputs of each row's samples, (1, outputs) each, as (rows, outputs)."""
        values, ends = np.concatenate(outputs), self.ends  # (samples, outputs), (rows + 1,)
        means: np.ndarray = np.add.reduceat(values, ends[:-1]) / np.diff(ends)[:, None].astype(values.dtype)
        return means


def frame_rows(
    tokenizer: Tokenizer,
    rows: Sequence[Row],
    length: int,
    *,
    pairs: bool | None = None,
    windows: int = 1,
    stride: int = 0,
    labels: Mapping[str, np.ndarray] | None = None,
    begin: int | None = None,
) -> FramedRows:
    """Convert rows, all single texts or all pairs, to samples of at most `length` tokens.

    Args:
        tokenizer: the tokenizer.
        rows: the texts, or pairs of them.
        length: maximum number of tokens of a sample, special tokens included.
        pairs: whether they must be pairs; see `are_pairs`.
        windows: maximum number of windows of a row; only single texts can have several.
        stride: number of tokens between the starts of two windows.
        labels: the labels of each row by name, (rows, any number) each; the windows of a row are then one sample.
        begin: a token that the texts begin with, if each has a single window; it counts in `length`.

    Raises:
        UserError: see `are_pairs`; or `length` leaves no space for each text, or pairs should have several windows.
    """
    frame = Frame.of(tokenizer)
    pairs = are_pairs(rows, pairs)
    if pairs and windows > 1:
        raise UserError(
            "task.windows is for single texts, but these are pairs of texts",
            remedy=f"pass single texts, or train with {setting('task.windows', 1)}",
        )
    if (capacity := frame.capacity(length, texts=1 + pairs) - (begin is not None)) < 1 + pairs:
        special = length - capacity
        raise UserError(
            f"task.length is {length}, but a pair has {special} special tokens",
            remedy=f"pass {setting('task.length', special + 2)} or more",
        )
    texts = [[row.values[name] for row in rows] for name in TEXTS[: 1 + pairs]]
    columns = [encode_ragged(tokenizer, column) for column in texts]
    first, second = columns[0].lengths, columns[1].lengths if pairs else np.zeros(len(rows), np.int64)  # (rows,) each
    if windows == 1:
        sizes = cut_longer(first, second, capacity)
        kept = [column.cut(size) for column, size in zip(columns, sizes, strict=False)]
        samples = frame.wrap_all(kept[0] if begin is None else kept[0].after(begin), *kept[1:], labels=labels)
        cut = first + second > capacity
    else:
        samples, cut = _in_windows(frame, columns[0], capacity, windows, stride, labels)
    empty = np.zeros(len(rows), bool)
    for column, values in zip(columns, texts, strict=True):
        empty |= (column.lengths == 0) | np.fromiter((not text.strip() for text in values), bool, len(values))
    most = f"{length} tokens" if windows == 1 else f"{windows} windows of {length} tokens"
    counts = {
        f"{'pairs' if pairs else 'texts'} are longer than {most} and were cut": cut.sum(),
        "pairs have an empty text" if pairs else "texts are empty": empty.sum(),
    }
    notes = [ShareNote(int(count), len(rows), what) for what, count in counts.items() if count]
    return FramedRows(
        samples, cut.tolist(), (*notes, *tokenizer.notes((column.ids for column in columns), chain(*texts)))
    )


def _in_windows(
    frame: Frame, texts: Ragged, capacity: int, windows: int, stride: int, labels: Mapping[str, np.ndarray] | None
) -> tuple[list[Sample], np.ndarray]:
    """Return the samples of texts in windows, in order, and whether each text is longer than them, (texts,).

    With labels, the windows of a text are one sample, and each has the labels of the text.
    """
    samples: list[Sample] = []
    cut = np.zeros(len(texts.lengths), bool)
    for number, ids in enumerate(texts.split()):
        starts = window_starts(len(ids), capacity, stride)
        cut[number] = len(starts) > windows
        made = [frame.wrap(ids[start : start + capacity]) for start in starts[:windows]]
        if labels is not None:
            made = [Sample.joined(made, {name: np.tile(of[number], len(made)) for name, of in labels.items()})]
        samples += [sample.named((0, number)) for sample in made]
    return samples, cut


def cut_and_wrap(frame: Frame, texts: Sequence[Ids], length: int) -> tuple[Sample, tuple[int, ...]]:
    """Return a text, or a pair, as a sample of at most `length` tokens, and the number of tokens kept of each text."""
    first, *second = map(len, texts)
    lengths = cut_longer(first, sum(second), frame.capacity(length, texts=len(texts)))
    counts = tuple(map(int, lengths[: len(texts)]))
    return frame.wrap(*(ids[:count] for ids, count in zip(texts, counts, strict=True))), counts


def cut_longer(first: Size, second: Size, capacity: int) -> tuple[Size, Size]:
    """Return the lengths of two texts after the last token of the longer one is removed until both fit.

    Of two equally long texts, the second loses a token (`_truncate_seq_pair` of google-research/bert). transformers
    differs by one token if both are truncated and `capacity` is odd: the longer one, or the second, keeps one more.

    Args:
        first: the length of a text, or of many, (texts,).
        second: that of the second text, likewise.
        capacity: the number of tokens that fit.
    """
    half = capacity // 2  # a text up to this long is kept whole: the second, and the first up to the rest
    return (
        np.minimum(first, np.maximum(capacity - half, capacity - second)),
        np.minimum(second, np.maximum(half, capacity - first)),
    )


def scores_of(predictions: Sequence[Any], labels: Sequence[str]) -> np.ndarray:
    """Return the score of each label, (predictions, labels), of predictions with a score by label."""
    return np.array([[prediction.scores[label] for label in labels] for prediction in predictions])


def joined_texts(prediction: Any) -> str:
    """Return the text, or the texts of a pair, that a prediction is about, for `Task.line`."""
    return "\t".join(text for text in (prediction.text, prediction.text_b) if text is not None)


def passages(row: Row) -> tuple[Passage, ...]:
    """Return the texts of a row as named passages."""
    if "text_b" not in row.values:
        return (Passage(row.values["text"]),)
    return (Passage(row.values["text"], "first text"), Passage(row.values["text_b"], "second text"))


class TextTask(RowTask, frozen=True, kw_only=True):
    """Base class of tasks over whole texts, or pairs of texts; see `RowTask`.

    Attributes:
        length: maximum number of tokens of a sequence, special tokens included.
        windows: maximum number of windows of this length in which a text is read; what is beyond is truncated.
        stride: number of tokens between the starts of two windows; 0: three quarters of those in a window.
        pairs: whether the inputs are pairs of texts, which have no windows; None: decided by the training examples
            (unknown for a model that was not trained here).
    """

    windows: int = 1
    stride: int = 0
    pairs: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows < 1:
            raise ValueError("windows must be at least 1")
        if self.windows == 1 and self.stride:
            raise ValueError("stride has no effect on a single window: increase windows, or remove it")
        if self.windows > 1:
            capacity = self.length - 2
            if self.stride == 0:  # stored with a model, even if the rule changes later
                msgspec.structs.force_setattr(self, "stride", max(1, 3 * capacity // 4))
            if not 1 <= self.stride <= capacity:
                raise ValueError(f"stride must be from 1 to {capacity}, the tokens of a text in a window")

    @property
    def longest(self) -> int:
        """Maximum number of tokens of a text, or of a pair, special ones included, that is not truncated."""
        return self.length + (self.windows - 1) * self.stride

    @property
    def grouped(self) -> str:
        """See `Task`: the windows of a text."""
        return "windows" if self.windows > 1 else ""

    def framed(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Row],
        labels: Mapping[str, np.ndarray] | None,
        read: Callable[[np.ndarray, Sequence[bool]], list[Any]],
    ) -> Framed:
        """Convert rows to samples, in the windows of the task.

        Args:
            tokenizer: the tokenizer.
            rows: the texts, or pairs of them.
            labels: see `frame_rows`; the weights of the rows are added, if they have any.
            read: returns the predictions, given the means of the outputs of each row's samples, (rows, outputs), and
                whether each row was truncated.

        Raises:
            UserError: see `frame_rows`.
        """
        if labels is not None and (weights := example_weights(rows)) is not None:
            labels = {**labels, EXAMPLE_WEIGHTS: weights.astype(np.float32)[:, None]}
        sizes: dict[str, Any] = {"pairs": self.pairs, "windows": self.windows, "stride": self.stride}
        texts = frame_rows(tokenizer, rows, self.length, **sizes, labels=labels)
        return Framed(
            texts.samples,
            lambda outputs: read(texts.mean(outputs), texts.cut) if outputs else [],
            texts.notes,
            texts.mean,
            texts.cut,
            partial(self.sample_words, tokenizer, rows, texts),
        )

    def sample_words(self, tokenizer: Tokenizer, rows: Sequence[Row], framed: FramedRows, number: int) -> SampleWords:
        """Return the words of a sample that `framed` made; see `Framed.words`.

        Raises:
            UnexplainedError: the text is read in several windows.
        """
        key = framed.samples[number].key
        example = key[1]
        if sum(sample.key == key for sample in framed.samples[max(0, number - 1) : number + 2]) > 1:
            raise UnexplainedError(
                f"texts are read in several windows of {self.length} tokens, and are not explained", example
            )
        texts = texts_of(rows[example])[:2]
        words = [split_words(tokenizer, text) for text in texts]
        frame = Frame.of(tokenizer)
        capacity = frame.capacity(self.length, texts=len(texts))
        first, *second = (len(index) for _, index in words)
        read = [index[:size] for (_, index), size in zip(words, cut_longer(first, sum(second), capacity), strict=False)]
        counts = [int(index[-1]) + 1 if len(index) else 0 for index in read]
        spans = [spans[:count] for (spans, _), count in zip(words, counts, strict=True)]
        index = frame.spread(*(index + sum(counts[:text]) for text, index in enumerate(read)))
        return SampleWords(example, [Word(*span, text) for text, of in enumerate(spans) for span in of], index)
