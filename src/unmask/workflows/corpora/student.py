"""A static student of a classifier, by which text of any size is filtered.

Input: a model for classification or regression, and raw files. Output: a weight for each token of its vocabulary, such
that the mean weight of a text's tokens is what the model says of it: the logit of a label, or a number. The model reads
the first documents of each file, `SAMPLE` together; the weights are the mean of a Gaussian process on them (ridge
regression; Rasmussen and Williams 2006, section 2.2): in its prior, the weights of two tokens are as similar as their
embeddings in the model, and tokens that the sample lacks get weights, too. Its strength is that with the smallest error
on left-out documents (leave-one-out, in closed form; section 5.4.2).

The threshold is that at which the student keeps the same share of left-out documents as the model does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from unmask.data.cleaning.quality import CHARACTERS, STUDENT, TOKENIZER, WEIGHTS, Student, read_student
from unmask.data.text.documents import Skipped, TextOptions, read_documents, resolve_documents
from unmask.data.tokenizers.words import encode_ragged
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.objectives.objective import decoder_of
from unmask.support.arrays import save_array
from unmask.support.durable import only_writer, replace_file, replaced_directory
from unmask.support.errors import InputWarning, UserError, refuse_idle
from unmask.support.fingerprint import fingerprint_values
from unmask.support.messages import argument
from unmask.tasks.classification import Classification
from unmask.tasks.regression import Regression

SAMPLE = 2000
"""Number of documents that the model reads."""
FEWEST = 50
"""Number of documents below which there is no student."""
LARGEST = 6.0
"""Largest logit that is taught, unless the threshold is larger."""
STRENGTHS = tuple(10.0**power for power in range(-5, 3))
"""Variances of noise that are tried, as multiples of the mean variance of a text's score."""


_COLUMNS = 4096  # tokens whose counts in texts are in memory at once


class Taught(NamedTuple):
    """What was taught.

    Attributes:
        weights: of tokens, (vocabulary,) float32.
        bias: the score of a text without tokens.
        left_out: scores of documents by what the others teach, (documents,).
    """

    weights: np.ndarray
    bias: float
    left_out: np.ndarray


def make_student(
    model: str | Path,
    label: str | None,
    minimum: float | None,
    paths: Sequence[str | Path],
    options: TextOptions,
    folder: Path,
    report: Callable[[str], None],
) -> None:
    """Teach a student, unless there is the same one.

    Args:
        model: the model.
        label: the label of documents that stay; None for regression.
        minimum: its minimum probability, by default 0.5; of regression, the minimum number.
        paths, options: the raw files; see `read_documents`.
        folder: directory of the student.
        report: called with lines about how well it agrees with the model.

    Raises:
        UserError: the model is for another task, has no such label, or knows no word; or there are fewer than `FEWEST`
            documents.
    """
    teacher = load(model)
    kept, threshold, teach = _judgment(teacher, label, minimum)
    count = -(-SAMPLE // len(paths))
    options = replace(options, documents=resolve_documents(paths, options))  # as where they are filtered
    texts = [text[:CHARACTERS] for path in paths for text in islice(read_documents([path], options, Skipped()), count)]
    if len(texts) < FEWEST:
        raise UserError(
            f"{argument('quality')} needs {FEWEST} documents at least to learn from, not {len(texts)}",
            remedy="give more text",
        )
    key = fingerprint_values([teacher.fingerprint(), kept, threshold, texts, SAMPLE])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_writer(folder, wait=True):
        if (folder / STUDENT).exists() and read_student(folder).key == key:
            return
        report(f"quality: the classifier reads {len(texts):,} documents")
        tokenizer = teacher.model.tokenizer.closed
        ids, lengths = _counted(texts, tokenizer)
        if (ids == tokenizer.unk).all():
            raise UserError(
                f"the vocabulary of {argument('quality')} has no word of these documents, and a static student judges "
                "by words",
                remedy="use a model that was trained with a vocabulary",
            )
        goals = teach(texts)
        taught = teach_weights(goals, ids, lengths, _embeddings(teacher, tokenizer.size))
        stays = goals >= threshold
        own = _threshold(taught.left_out, int(stays.sum()))
        agreement = 100 * float(((taught.left_out >= own) == stays).mean())
        most = 100 * max(float(stays.mean()), 1 - float(stays.mean()))
        notes = [
            f"quality: a static student agrees with the classifier on {agreement:.1f} % of documents that it has not "
            f"learned from ({most:.1f} % by always saying the same); {100 * float(stays.mean()):.1f} % are {kept}"
        ]
        if agreement < (100 + most) / 2:
            notes.append("quality: that is less than half of what can be learned: look at the samples of what it drops")
        with replaced_directory(folder) as aside:
            tokenizer.save(aside / TOKENIZER)
            save_array(aside / WEIGHTS, taught.weights)
            student = Student(key, kept, taught.bias, own, notes)
            replace_file(aside / STUDENT, msgspec.json.encode(student))
        for line in notes:
            report(line)


def teach_weights(goals: np.ndarray, ids: np.ndarray, lengths: np.ndarray, embeddings: np.ndarray) -> Taught:
    """Return the weights of tokens whose means come close to what a model says of texts.

    Args:
        goals: what it says, (texts,).
        ids: the tokens of all texts, (tokens,).
        lengths: number of tokens of each text, (texts,).
        embeddings: of the tokens, (vocabulary, width); they need not be normalized.
    """
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    similar = embeddings / np.maximum(norms, 1e-12) / np.sqrt(2)  # (vocabulary, width): half of the prior variance
    rows = np.repeat(np.arange(len(goals)), lengths)  # (tokens,)
    shares, kernel = 1 / np.maximum(1, lengths)[rows], np.zeros((len(goals), len(goals)))
    means = np.zeros((len(goals), similar.shape[1]))  # (texts, width)
    for axis in range(similar.shape[1]):
        means[:, axis] = np.bincount(rows, similar[ids, axis] * shares, len(goals))
    used, columns = np.unique(ids, return_inverse=True)
    for start in range(0, len(used), _COLUMNS):  # the texts are rows of a matrix with few tokens each
        chosen = (columns >= start) & (columns < start + _COLUMNS)
        block = np.zeros((len(goals), min(_COLUMNS, len(used) - start)))
        np.add.at(block, (rows[chosen], columns[chosen] - start), shares[chosen])
        kernel += block @ block.T / 2
    kernel += means @ means.T
    bias = float(goals.mean())
    values, vectors = np.linalg.eigh(kernel)
    rotated, scale = vectors.T @ (goals - bias), float(np.trace(kernel)) / len(goals)

    def solved(strength: float) -> tuple[np.ndarray, np.ndarray]:
        inverse = 1 / (np.maximum(values, 0) + strength * scale)
        return vectors @ (inverse * rotated), vectors**2 @ inverse

    errors = []
    for strength in STRENGTHS:
        dual, diagonal = solved(strength)
        errors.append(float(((dual / diagonal) ** 2).mean()))
    dual, diagonal = solved(STRENGTHS[int(np.argmin(errors))])
    weights = similar @ (means.T @ dual)
    weights += np.bincount(ids, (shares * dual[rows]), len(embeddings)) / 2
    return Taught(weights.astype(np.float32), bias, goals - dual / diagonal)


def _judgment(
    teacher: Predictor[Any], label: str | None, minimum: float | None
) -> tuple[str, float, Callable[[list[str]], np.ndarray]]:
    """Return what documents are that stay, from which number on, and what gives these numbers of texts."""
    task = teacher.model.task
    if isinstance(task, Regression):
        refuse_idle(": the model predicts a number", quality_label=label)
        if minimum is None:
            raise UserError("the model predicts a number", remedy=f"pass {argument('min_quality', 'N')}")
        return f"{minimum:g} or more", minimum, lambda texts: np.array([each.score for each in _asked(teacher, texts)])
    if not isinstance(task, Classification):
        raise UserError(f"{argument('quality')} is not a model for classification or regression")
    labels = list(teacher.model.labels)
    if label not in labels:
        problem = "which label do documents have that stay?" if label is None else f"the model has no label '{label}'"
        raise UserError(problem, remedy=f"pass {argument('quality_label', '…')} with one of {', '.join(labels[:20])}")
    probability = 0.5 if minimum is None else minimum
    if not 0 < probability < 1:
        raise UserError(f"{argument('min_quality', minimum)} is not between 0 and 1")
    threshold = float(np.log(probability / (1 - probability)))
    limits = min(-LARGEST, threshold - 1), max(LARGEST, threshold + 1)

    def logits(texts: list[str]) -> np.ndarray:
        probabilities = np.array([each.scores[label] for each in _asked(teacher, texts)])
        probabilities = np.clip(probabilities, 1e-9, 1 - 1e-9)
        return np.clip(np.log(probabilities / (1 - probabilities)), *limits)

    return str(label), threshold, logits


def _asked(teacher: Predictor[Any], texts: list[str]) -> list[Any]:
    """Return the predictions of texts, which may be longer than what the model reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        return teacher.predict(texts)


def _counted(texts: Sequence[str], tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of all texts, and the number of each."""
    ragged = encode_ragged(tokenizer, texts)
    return np.asarray(ragged.ids, np.int64), np.asarray(ragged.lengths, np.int64)


def _embeddings(teacher: Predictor[Any], size: int) -> np.ndarray:
    """Return the embeddings of tokens, (vocabulary, width); none, (vocabulary, 0), if the model has none of its own."""
    encoder = teacher.model.encoder
    if getattr(encoder, "words", None) is None:
        return np.zeros((size, 0))
    table = decoder_of(encoder).detach().float().cpu().numpy()[:size].astype(np.float64)
    return table - table.mean(0)


def _threshold(scores: np.ndarray, count: int) -> float:
    """Return the number that so many scores reach."""
    ordered = np.sort(scores)[::-1]
    if count in (0, len(scores)):
        return float(ordered[0] + 1 if count == 0 else ordered[-1] - 1)
    return float(ordered[count - 1] + ordered[count]) / 2
