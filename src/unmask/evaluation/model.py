"""Score a whole model: a fine-tuned one on labelled files, a pretrained encoder on plain text."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.feed import Feed
from unmask.batches.masking import MaskingSettings
from unmask.batches.sentence_pairs import SentencePairsSettings
from unmask.corpus.build import build_corpus
from unmask.corpus.corpus import Documents
from unmask.errors import UserError
from unmask.metrics.classification import confusion
from unmask.metrics.intervals import intervals, whole
from unmask.metrics.question_answering import choose_scorer
from unmask.model import Model
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner
from unmask.serving.pipeline import Pipeline
from unmask.tasks.classification import Classification, gold_and_said
from unmask.tasks.question_answering import QuestionAnswering, gold_texts
from unmask.text.documents import TextOptions
from unmask.training.evaluate import evaluate
from unmask.training.machine import Machine, choose_machine


def evaluate_task(
    model: Model,
    paths: Sequence[str | Path],
    *,
    columns: Mapping[str, str],
    kind: str | None = None,
    machine: Machine | None = None,
    report: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Score a fine-tuned model on labelled files; see `score_examples`.

    Raises:
        UserError: the model was fine-tuned for nothing, a bad file, or a label that the model does not know.
    """
    if model.task is None:
        raise UserError("this model was fine-tuned for no task")
    return score_examples(model, model.task.read(paths, columns=columns, kind=kind), machine, report)


def score_examples(
    model: Model,
    examples: Sequence[Any],
    machine: Machine | None = None,
    report: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Return `{task, metrics, intervals, examples}` of a fine-tuned model; scores are times 100.

    Of a classifier also `labels` and `confusion` (rows are what is true); of answers to questions `scorer`, whose rules
    they were scored by, and where some questions have no answer the metrics of `answerable` and `unanswerable` ones.
    `report` is told what was mended, cut or left out.
    """
    task = model.task
    assert task is not None
    predictions = Pipeline(model, machine).run(examples, report)
    measure = task.measure(examples, predictions, model.labels)
    result = {
        "task": task.part.replace("_", "-"),
        "metrics": whole(measure, len(examples)),
        "intervals": intervals(measure, len(examples)),
        "examples": len(examples),
    }
    if isinstance(task, Classification):
        counts = confusion(*gold_and_said(examples, predictions, model.labels), len(model.labels))
        result |= {"labels": model.labels, "confusion": counts.tolist()}
    if isinstance(task, QuestionAnswering):
        result["scorer"] = choose_scorer(gold_texts(examples))
        impossible = np.array([example.impossible for example in examples])
        for name, chosen in (("answerable", ~impossible), ("unanswerable", impossible)):
            if impossible.any() and chosen.any():
                result[name] = measure(np.flatnonzero(chosen))
    return result


def evaluate_encoder(
    model: Model,
    paths: Sequence[str | Path],
    *,
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    machine: Machine | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return `{task, metrics, intervals, examples}` of a pretrained encoder on plain text.

    The metrics are `loss` and `accuracy` (0 to 1) of each objective of which the model has the head: `masked_lm` with
    15 % of the tokens hidden, and `next_sentence` where the documents have several sentences. Masks and pairs are
    drawn from the seed, so that two models with one tokenizer are asked the same.

    Raises:
        UserError: the model has no pretraining head, or no text is in the files.
    """
    objectives = {
        name: OBJECTIVES[name]().build(model.encoder.settings, model.encoder.vocabulary)
        for name in OBJECTIVES
        if name in model.heads
    }
    if not objectives:
        raise UserError("this model has neither a classification head nor one of a pretraining objective")
    for name, objective in objectives.items():
        model.take(name, objective)
    machine = machine or choose_machine(precision="float32")
    length = min(128, model.encoder.longest)
    with tempfile.TemporaryDirectory() as folder:
        corpus = build_corpus(paths, model.tokenizer, Path(folder) / "corpus", heldout=None, options=options)
        pairs = "next_sentence" in objectives and _has_pairs(corpus.train)
        layout = SentencePairsSettings(length=length) if pairs else DocumentSentencesSettings(length=length)
        if not pairs:
            objectives.pop("next_sentence", None)
        learner = Learner(model.encoder, objectives).to(machine.device, machine.dtype)
        feed = Feed(layout, MaskingSettings(), seed, model.tokenizer, learner.prepare)
        batches = feed.heldout(corpus.train, tokens=corpus.train.num_tokens * 2)
        metrics = evaluate(learner, batches, machine)
    return {
        "task": "pretraining",
        "metrics": metrics,
        "intervals": {},
        "examples": sum(len(batch.keys) for batch in batches),
    }


def _has_pairs(documents: Documents) -> bool:
    """Say whether most documents have a sentence that follows another one, and there is another document."""
    return len(documents) > 1 and documents.num_sentences >= 2 * len(documents)
