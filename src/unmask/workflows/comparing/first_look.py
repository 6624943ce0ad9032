"""A first look: which of many encoders suits a task, by scores of their features, in minutes and without training.

Input: models, and labeled examples. Output: the models in the order of their scores (metrics/transferability.py).

The features are those of TransformerRanker (Garbas et al. 2025): the mean of all layers but the embeddings; of a text,
or of a pair of texts, the mean over its tokens without special ones. For entities they are those of the first token of
each word, which taggers of unmask read, where TransformerRanker takes the mean over the tokens of a word. Encoders are
ranked by the H-score, for regression by LogME.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.columns import as_columns, refuse_weights
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.table import Data, as_sources
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.inference.backend import TorchBackend
from unmask.inference.features import frame_words
from unmask.inference.load import warn_of_new_tokens
from unmask.metrics.transferability import h_score, log_evidence
from unmask.model.directory import NAME_ONE
from unmask.model.model import load_model
from unmask.support.choices import ColumnNames, Device, Format, Precision, RankedTask, check_choice, check_path
from unmask.support.errors import ShareNote, UserError, check_count
from unmask.support.messages import argument
from unmask.tasks import TASKS
from unmask.tasks.regression import numbers
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.auditing.out_of_fold import word_vectors
from unmask.workflows.finetuning.examples import read_labels, refuse_soft

LONGEST = 512
"""Maximum number of tokens of a text that are read."""
SEED = 0
"""Seed of the choice of the examples."""


@dataclass(frozen=True)
class Look:
    """How well the features of a model suit a task.

    Attributes:
        model: the model.
        h_score: see `metrics.transferability`; the mean over labels for multi-label; None for regression.
        logme: likewise.
        seconds: how long it took, with loading the model.
    """

    model: str
    h_score: float | None
    logme: float
    seconds: float


@dataclass(frozen=True)
class FirstLook:
    """The result of a first look.

    Attributes:
        task: the task.
        ranking: the models, the best one first.
        examples: number of examples whose features were computed.
        notes: how the examples were chosen, and what was truncated or left out.
    """

    task: str
    ranking: list[Look]
    examples: int
    notes: list[str]


def first_look(
    models: Sequence[str | Path],
    train: Data,
    task: RankedTask,
    *,
    examples: int = 1000,
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    allow_pickle: bool = False,
    device: Device = "auto",
    precision: Precision = "float32",
    quiet: bool = False,
) -> FirstLook:
    """Rank pretrained models by how well their features suit a task, without training.

    Args:
        models: run directories, Hugging Face model directories or names on the Hub, or directories of AllenNLP's ELMo.
        train: labeled examples, as for finetune; several files form one set. In Python also examples in memory.
        task: what the labels are.
        examples: maximum number of examples, or of sentences, whose features are computed, drawn at random.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        quiet: print only results and errors.

    Returns:
        The models with their scores, the best one first; see `FirstLook`.

    Raises:
        UserError: there are no models or too few examples, the labels are all the same or have probabilities, the data
            is malformed, or a model is damaged.
    """
    check_choice("task", task, RankedTask)
    if not models or isinstance(models, str | Path):
        raise UserError(f"{argument('models')}: a list of models is needed", remedy="name one model or more")
    for model in models:
        check_path(model, "a model", NAME_ONE)
    check_count("examples", examples, 2)
    notes, display, machine = list[str](), Display(quiet=quiet), choose_machine(device, precision)
    kind = TASKS[task]()
    named = as_columns(columns)
    refuse_weights(named, "features are judged by all examples alike")
    labelled = kind.read(as_sources(train, encoding), columns=named, kind=format, notes=notes)
    refuse_soft(labelled)
    chosen = _sample(labelled, examples, notes)
    labels = read_labels(kind, chosen)
    targets = _targets(task, labels, chosen, notes)
    looks = []
    for model in models:
        start, told = time.perf_counter(), list[str]()
        loaded = load_model(model, allow_pickle=allow_pickle)
        warn_of_new_tokens(loaded, model)
        backend = TorchBackend(loaded, machine, display)
        if task == "token-classification":
            features = word_vectors(backend, chosen, labels, _layers(backend)).numpy()
        else:
            features = text_features(backend, chosen, told)
        if not features.var(0, dtype=np.float64).any():
            raise UserError(
                "all examples have the same features, so nothing can be told from them",
                file=model,
                remedy="give texts that differ in words that the tokenizer knows, not only after the longest length",
            )
        look = Look(str(model), *_scores(task, features, targets), time.perf_counter() - start)
        display.say(f"{model}: {look.seconds:.1f} s")
        notes += [f"{model}: {note}" for note in told]
        looks.append(look)
    for note in notes:
        display.say(note)
    ranking = sorted(looks, key=lambda look: look.logme if look.h_score is None else look.h_score, reverse=True)
    return FirstLook(task, ranking, len(chosen), notes)


def _layers(backend: TorchBackend) -> range:
    """Return the numbers of the layers that features are of."""
    return range(1, backend.model.encoder.num_layers + 1)


def text_features(backend: TorchBackend, rows: Sequence[Row], notes: list[str]) -> np.ndarray:
    """Return the features of texts or of pairs of texts, (texts, width); a text without tokens has the special ones'.

    Args:
        backend: computes the hidden states.
        rows: the texts.
        notes: receives what was truncated, and what the model does not read.
    """
    encoder = backend.model.encoder
    longest = min(LONGEST, encoder.longest)
    words = frame_words(backend.model.tokenizer, rows, longest)
    if words.cut:
        notes.append(ShareNote(words.cut, len(rows), f"texts are longer than {longest} tokens, and were truncated"))
    notes += words.notes
    features, offsets = np.empty((len(rows), encoder.width), np.float32), words.offsets
    for number, states in backend.layers(words.samples, _layers(backend)):  # (tokens, layers, width)
        ordinary = words.word_ids[offsets[number] : offsets[number + 1]] >= 0  # (tokens,)
        features[number] = (states[ordinary] if ordinary.any() else states).mean((0, 1))
    return features


def _sample(examples: Sequence[Any], number: int, notes: list[str]) -> list[Any]:
    """Return at most `number` of the examples, drawn at random, in their order."""
    if len(examples) <= number:
        return list(examples)
    notes.append(f"{number:,} of {len(examples):,} examples, drawn at random")
    chosen = derive_rng(SEED, "first look").permutation(len(examples))[:number]
    return [examples[index] for index in sorted(chosen.tolist())]


def _targets(task: RankedTask, labels: Sequence[str], examples: Sequence[Any], notes: list[str]) -> np.ndarray:
    """Return what is predicted: whether each text or word is of each class, (units, classes), or numbers, (units, 1).

    Numbers are scaled to a mean of 0 and a standard deviation of 1, so that the evidence does not depend on their unit.

    Raises:
        UserError: all labels are the same, or there are too few examples.
    """
    if task == "regression":
        values = np.array(numbers(examples))[:, None]
        centered = values - values.mean()
        largest = float(np.abs(centered).max())
        _check_varied(largest > 0, examples)
        scaled = centered / largest  # squares of very small differences would be 0
        return np.asarray(scaled / scaled.std())
    if task == "multi-label":
        has = np.array([[label in (row.labels or ()) for label in labels] for row in examples])  # (texts, labels)
        varied = has.any(0) & ~has.all(0)  # (labels,)
        _check_varied(bool(varied.any()), examples)
        if not varied.all():
            constant = ", ".join(labels[index] for index in np.flatnonzero(~varied).tolist())
            notes.append(f"labels that all examples have are left out: {constant}")
        return has[:, varied].astype(np.float64)
    names = [
        name
        for example in examples
        for name in (example.tags if isinstance(example, TaggedSentence) else (example.values["label"],))
    ]
    classes, numbered = np.unique(names, return_inverse=True)
    _check_varied(len(classes) > 1, examples)
    if len(names) <= len(classes):
        raise UserError(
            f"{len(names):,} examples have {len(classes):,} different labels, so nothing can be learned from them",
            file=examples[0].file,
            remedy=f"label more examples, or increase {argument('examples')}",
        )
    return np.eye(len(classes))[numbered]


def _check_varied(varied: bool, examples: Sequence[Any]) -> None:
    """Raise an error if all examples have the same labels."""
    if not varied:
        raise UserError("all labels are the same", file=examples[0].file, remedy="is it the right column?")


def _scores(task: RankedTask, features: np.ndarray, targets: np.ndarray) -> tuple[float | None, float]:
    """Return the H-score and LogME."""
    logme = log_evidence(features, targets)
    if task == "regression":
        return None, logme
    if task == "multi-label":
        return float(np.mean([h_score(features, column) for column in targets.T])), logme
    return h_score(features, targets.argmax(1)), logme
