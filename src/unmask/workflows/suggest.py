"""What to label next: from texts without labels, those that a model learns most from, as a file for annotators.

Input: a fine-tuned model, or an encoder, and texts. Output: some of the texts, in a file of
the format of its suffix: tables and JSON Lines, and what Label Studio and doccano import. The model's predictions are
in it, to be corrected: `predicted`, or what the annotators' programs show at first (pre-annotations).

- A classifier suggests texts that it is uncertain about and that differ from each other (`inference.selection`): by the
  margin between the two most probable labels (Scheffer et al. 2001), by the label that is nearest to its threshold
  (Brinker 2006), or by the mean log probability of the tags (Shen et al. 2018: their sum favors long texts).
- An encoder that was not fine-tuned suggests typical texts that differ from each other: a first batch.

Texts are read as a stream: the candidates alone are in memory, and the hash of each text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.duplicates import distinct, near_duplicates
from unmask.data.labelled.folding import FoldedTexts
from unmask.data.labelled.identities import identities
from unmask.data.labelled.labelled_file import TEXTS, Row
from unmask.data.labelled.span_export import EXPORTS, export_array, export_labels, is_export
from unmask.data.labelled.table import Data, ExampleTable, as_sources
from unmask.data.text.files import display_name
from unmask.inference.load import open_predictor
from unmask.inference.predictor import Predictor
from unmask.inference.selection import PREFILTER, balanced_order, select_diverse
from unmask.inference.stream import check_out, summed
from unmask.support.choices import ColumnNames, Device, Precision, TextFormat
from unmask.support.durable import only_writer, replace_file
from unmask.support.errors import ShareNote, UserError, check_count, counted
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.prediction_tables import TABLES, as_row, check_library, with_columns, write_rows
from unmask.tasks.tagged import Entity, Tagged
from unmask.tasks.task import Task
from unmask.tasks.tuning import softmax
from unmask.tasks.unlabelled import chain_sources, iterate_examples
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display

TASKS = ("classification", "multi-label", "token-classification")
"""Tasks whose models are uncertain about texts in a way that is defined here."""
MIN_TYPICAL = 10_000
"""Number of texts, chosen at random, among which typical ones are sought."""
MAX_COUNT = 5_000
"""Maximum number of suggestions, as the time to find them grows with its square."""


class Suggestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text to label.

    Attributes:
        text, text_b: the texts as given.
        uncertainty: how uncertain the model is, from 0 to 1; None: it has no task.
        predicted: the predicted label, labels or entities; None: the model has no task.
    """

    text: str
    text_b: str | None = None
    uncertainty: float | None = None
    predicted: str | tuple[str, ...] | list[Entity] | None = None


def suggestion(texts: tuple[str, ...], prediction: Any, uncertainty: float) -> Suggestion:
    """Return a text, or a pair, with what was predicted of it; None: nothing was."""
    text, text_b = texts[0], texts[1] if len(texts) > 1 else None
    if prediction is None:
        return Suggestion(text, text_b)
    if isinstance(prediction, Tagged):
        return Suggestion(text, text_b, uncertainty, prediction.entities)
    labels = prediction.labels if isinstance(prediction, Labels) else prediction.label
    return Suggestion(text, text_b, uncertainty, labels)


def check_suffix(path: Path, task: Task) -> None:
    """Raise an error if suggestions of a task are not written to files with this suffix."""
    tables = TABLES if task.part in ("classification", "multi_label") else ()
    if not is_export(path) and path.suffix not in (".jsonl", *tables):
        raise UserError(
            f"suggestions are not written as {path.suffix or 'a file without a suffix'}",
            file=path,
            remedy=f"use {', '.join(('.jsonl', *tables, *EXPORTS))}",
        )
    check_library(path)


def content(
    path: Path, task: Task, examples: Sequence[Any], predictions: Sequence[Any], suggestions: Sequence[Suggestion]
) -> bytes:
    """Return the content of a file of suggestions.

    Args:
        path: the file; see `check_suffix`.
        task: the task that read the examples.
        examples: the examples as the task reads them; their other columns are written, too, but for annotators.
        predictions: those of the model, None each if it has no task.
        suggestions: the suggestions.
    """
    if is_export(path):
        records = [
            export_labels(path, dict(zip(TEXTS, task.texts(example), strict=False)))
            if prediction is None
            else task.record(path, example, prediction)
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        if path.suffix == ".json":
            return b"".join(export_array(records))
        return write_rows(path.suffix, records)
    pairs = zip(examples, suggestions, strict=True)
    if path.suffix in TABLES:
        return write_rows(path.suffix, [as_row(*pair) for pair in pairs])
    return write_rows(path.suffix, [with_columns(*pair) if isinstance(pair[0], Row) else pair[1] for pair in pairs])


class Candidate(NamedTuple):
    """A text that may be suggested.

    Attributes:
        example: as the task reads it.
        texts: its texts.
        identity: what equal texts have in common; see `identities`.
        prediction: that of the model; None: it has no task.
        uncertainty: at least 0; without a model, a random number.
        group: the class that is predicted, or of which the model is uncertain.
    """

    example: Any
    texts: tuple[str, ...]
    identity: bytes
    prediction: Any
    uncertainty: float
    group: str


@dataclass
class Pool:
    """The best candidates of a stream, and the numbers of texts that were left out.

    Attributes:
        task: the task of the model.
        size: maximum number of candidates.
        labeled: identities of the labeled texts.
        known: hashes of the texts seen so far, the labeled ones among them.
    """

    task: Task
    size: int
    labeled: list[bytes]
    known: set[int] = field(init=False)
    total: int = 0
    empty: int = 0
    equal: int = 0
    near: int = 0
    candidates: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = set(map(hash, self.labeled))

    def add(self, examples: list[Any], predictions: list[Any], random: np.ndarray) -> None:
        """Add examples with their predictions, and keep the best candidates."""
        texts = [self.task.texts(example) for example in examples]
        self.total += len(texts)
        for index, identity in enumerate(identities(texts)):
            if not all(text.strip() for text in texts[index]):
                self.empty += 1
            elif (digest := hash(identity)) in self.known:
                self.equal += 1
            else:
                self.known.add(digest)
                prediction = predictions[index]
                score = (float(random[index]), "") if prediction is None else uncertainty(prediction, self.task)
                self.candidates.append(Candidate(examples[index], texts[index], identity, prediction, *score))
        if len(self.candidates) > self.size:
            groups = np.unique([candidate.group for candidate in self.candidates], return_inverse=True)[1]
            scores = np.array([candidate.uncertainty for candidate in self.candidates])
            self.candidates = [self.candidates[index] for index in balanced_order(scores, groups)]
            if predictions[0] is not None:  # without a model, they are a random sample, and reading is quick
                self.leave_out()
            del self.candidates[self.size :]

    def leave_out(self) -> None:
        """Leave out candidates that nearly equal a labeled text, or one before them."""
        texts = [candidate.identity for candidate in self.candidates]
        near = near_duplicates(FoldedTexts.of(self.labeled), texts)
        others = [index for index in range(len(texts)) if index not in near]
        different = [self.candidates[others[index]] for index in distinct([texts[index] for index in others])]
        self.near += len(self.candidates) - len(different)
        self.candidates = different

    def notes(self) -> list[str]:
        """Return how many texts were left out, one line for each reason."""
        counts = {
            "texts are empty": self.empty,
            "texts are the same as a previous or a labeled one": self.equal,
            "texts would be suggested, but are nearly the same as another or a labeled one": self.near,
        }
        return [ShareNote(count, self.total, what) for what, count in counts.items() if count]


def suggest(
    model: str | Path,
    data: Data,
    *,
    out: str | Path | None,
    count: int = 100,
    labelled: Data = (),
    columns: ColumnNames | None = None,
    format: TextFormat | None = None,
    encoding: str | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: Precision = "float32",
    quiet: bool = False,
) -> list[Suggestion]:
    """Suggest which texts to label next, as a file for annotators.

    Args:
        model: run directory, Hugging Face model directory or name on the Hub: a classifier of texts or words suggests
            what it is uncertain about, an encoder that was not fine-tuned typical texts.
        data: texts without labels: files as for predict; in Python also examples in memory.
        out: file to write the suggestions to: .jsonl, .csv, .tsv, .parquet or .xlsx (entities: .jsonl),
            .labelstudio.json, or .doccano.jsonl; in Python None: they are only returned.
        count: number of texts to suggest, at most 5000.
        labelled: files of texts that have labels already, with the same columns, format and encoding: they, and what
            nearly equals them, are not suggested.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        seed: seed of the clusters, and of the choice among many texts for an encoder that was not fine-tuned.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        quiet: print only results and errors.

    Returns:
        The suggestions, the most uncertain first; fewer than `count`, if there are no more texts.

    Raises:
        UserError: there are no texts, the data is malformed, the model has another task, or the file cannot be written.
    """
    path = None if out is None else Path(out)
    sources, labeled_sources = as_sources(data, encoding), as_sources(labelled, encoding)
    check_count("count", count, 1, MAX_COUNT)
    if path is not None:
        files = [source for source in (*sources, *labeled_sources) if not isinstance(source, ExampleTable)]
        check_out(path, files)
    display, notes = Display(quiet=quiet), list[str]()
    predictor = open_predictor(model, choose_machine(device, precision), display, allow_pickle=allow_pickle)
    task = _task(predictor)
    if path is not None:
        check_suffix(path, task)

    def read(listed: list[Any]) -> Iterator[Any]:
        options: dict[str, Any] = {"columns": as_columns(columns), "kind": format, "notes": notes}
        return chain_sources(listed, partial(iterate_examples, task, **options), notes)

    with only_writer(path):
        labeled = identities(map(task.texts, read(labeled_sources)))
        size = PREFILTER * count
        size = size if predictor.model.task is task else max(size, MIN_TYPICAL)
        pool = Pool(task, size, labeled)
        rng = derive_rng(seed, "suggest")
        for examples, predictions in _predicted(predictor, task, read(sources), notes):
            pool.add(examples, predictions, rng.random(len(examples)))
        if not pool.total:
            raise UserError("there are no texts in the data", file=", ".join(map(display_name, sources)))
        pool.leave_out()
        if not pool.candidates:
            raise UserError(
                "no text is left to suggest: " + "; ".join(dict.fromkeys((*summed(notes), *pool.notes()))),
                file=", ".join(map(display_name, sources)),
            )
        chosen = _chosen(predictor, pool.candidates, count, rng, notes)
        suggestions = [suggestion(each.texts, each.prediction, each.uncertainty) for each in chosen]
        if path is not None:
            examples, predictions = [each.example for each in chosen], [each.prediction for each in chosen]
            replace_file(path, content(path, task, examples, predictions, suggestions))
    display.say(*dict.fromkeys((*summed(notes), *pool.notes())))  # that texts are empty, the predictions note, too
    if len(suggestions) < count:
        display.say(f"there are no more than {counted(len(suggestions), 'text')} to suggest")
    if path is not None:
        display.say(f"{counted(len(suggestions), 'suggestion')} of {counted(pool.total, 'text')}: {path}")
    return suggestions


def relative_scores(scores: Mapping[str, float], task: Task) -> list[float]:
    """Return the probabilities of labels, divided by their thresholds if they have some, so that they sum to 1."""
    if not isinstance(task, Classification) or not isinstance(task.threshold, tuple):
        return list(scores.values())
    ratios = np.array(list(scores.values())) / task.threshold
    return list(ratios / ratios.sum())


def nearness(probability: float, threshold: float) -> float:
    """Return how near a probability is to its threshold, from 0 to 1: the margin of two labels with thresholds.

    The difference would be small of any text where the threshold is, such as that of a rare label.
    """
    yes, no = probability / threshold, (1 - probability) / (1 - threshold)
    return 2 * min(yes, no) / (yes + no)


def uncertainty(prediction: Any, task: Task) -> tuple[float, str]:
    """Return how uncertain a prediction is, from 0 to 1, and of which class; see the module."""
    if isinstance(prediction, Prediction):
        second, first = sorted(relative_scores(prediction.scores, task))[-2:]
        return 1 - (first - second), prediction.label
    if isinstance(prediction, Labels):
        thresholds = task.thresholds(len(prediction.scores)) if isinstance(task, MultiLabel) else repeat(0.5)
        pairs = zip(prediction.scores.items(), thresholds, strict=False)
        doubts = {label: nearness(score, threshold) for (label, score), threshold in pairs}
        label = max(doubts, key=lambda name: doubts[name])
        return doubts[label], label
    assert isinstance(prediction, Tagged)
    least = min(prediction.entities, key=lambda entity: entity.probability, default=None)
    if prediction.scores is None:
        return 0.0, ""
    probabilities = softmax(prediction.scores.logits.astype(np.float64)).max(1)  # (words,)
    return float(1 - np.exp(np.log(probabilities).mean())), least.label if least else ""


def _task(predictor: Predictor) -> Task:
    """Return the task of a model, or one that reads single texts, if it has none.

    Raises:
        UserError: the model has a task that suggests nothing.
    """
    task = predictor.model.task
    if task is None or task.vectors.pooling is not None:
        return Classification(pairs=False)
    if task.part.replace("_", "-") not in TASKS:
        raise UserError(
            f"a model for {task.title} does not suggest what to label",
            remedy=f"use one for {', '.join(TASKS)}, or an encoder that was not fine-tuned",
        )
    if not predictor.backend.has_layers:
        raise UserError(
            "an exported model has no vectors of texts, by which suggestions differ",
            remedy="use the model that it was exported from",
        )
    return task


def _predicted(
    predictor: Predictor, task: Task, examples: Iterator[Any], notes: list[str]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield examples with their predictions, None each if the model has no task, a window at a time."""
    if predictor.model.task is not task:
        while window := list(islice(examples, predictor.window)):
            yield window, [None] * len(window)
        return
    waiting = deque[Any]()

    def passed() -> Iterator[Any]:
        for example in examples:
            waiting.append(example)
            yield example

    for predictions in predictor.stream(passed(), notes):
        yield [waiting.popleft() for _ in predictions], predictions


def _chosen(
    predictor: Predictor, candidates: list[Candidate], count: int, rng: np.random.Generator, notes: list[str]
) -> list[Candidate]:
    """Return `count` different candidates, the most uncertain first; all, if there are no more."""
    chosen = range(len(candidates))
    if count < len(candidates):
        texts = [" ".join(candidate.texts) for candidate in candidates]
        vectors, own_notes = predictor.vectors(texts, normalize=True)
        if candidates[0].prediction is None:  # otherwise the predictions have noted it
            notes += own_notes
        weights = [1.0 if candidate.prediction is None else candidate.uncertainty for candidate in candidates]
        chosen = select_diverse(vectors, np.array(weights), count, rng).tolist()
    return sorted((candidates[index] for index in chosen), key=lambda candidate: -candidate.uncertainty)
