"""Evaluation of fine-tuned models on labeled files and of pretrained encoders on plain text."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from unmask.data.batches.curriculum import BATCH_TOKENS, Feed
from unmask.data.batches.layout import DocumentSentencesSettings, LayoutSettings
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.paired_streams import DIRECTIONS, SentenceStreamsSettings
from unmask.data.batches.registries import MASKINGS, AnyMasking
from unmask.data.batches.sentence_pairs import LABELS, SentencePairsSettings
from unmask.data.corpus.build import write_corpus
from unmask.data.corpus.corpus import Corpus, Documents
from unmask.data.labelled.columns import as_columns, refuse_weights
from unmask.data.labelled.duplicates import overlap
from unmask.data.labelled.table import Data, Source, as_sources, check_once
from unmask.data.text.documents import TextOptions
from unmask.data.text.files import display_name
from unmask.inference.backend import finite, inference_copy, pretraining_objective
from unmask.inference.evaluation.errors_page import errors_page
from unmask.inference.predictor import Predictor
from unmask.metrics import METRICS
from unmask.metrics.intervals import Measure, differences, intervals, measure_all
from unmask.model.model import Model
from unmask.objectives import OBJECTIVES
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import Objective
from unmask.support.choices import ColumnNames
from unmask.support.durable import replace_file
from unmask.support.errors import UserError, counted, nearest
from unmask.support.messages import argument
from unmask.tasks.gold_labels import describe_unseen
from unmask.tasks.holding_out import describe_overlap, without
from unmask.tasks.mistakes import Mistake, worst_first
from unmask.tasks.task import Task
from unmask.tasks.unlabelled import describe_damaged
from unmask.training.evaluate import evaluate
from unmask.training.machine import Machine, choose_machine
from unmask.training.runs.display import Display

MAX_CONSTANTS = 10
"""Maximum number of predictions for all examples that are tried."""


def evaluate_task(
    model: Model | Predictor,
    data: Data,
    *,
    columns: ColumnNames | None = None,
    kind: str | None = None,
    against: Model | Predictor | None = None,
    errors: str | Path | None = None,
    trained_on: Data = (),
    metrics: Sequence[str] = (),
    names: tuple[str, str] = ("the first model", "the second"),
) -> dict[str, Any]:
    """Evaluate a fine-tuned model on labeled files; several files are one data set.

    Args:
        model: a predictor, which computes as it does itself, or a model, in float32 on the best device.
        data: labeled files or examples in memory; see `unmask.data.labelled.table.as_sources`.
        columns: mapping of our column names to those of the files.
        kind: format of the files, if the suffix does not determine it.
        against: a second model, evaluated on the same examples.
        errors: path of a page of the worst mistakes to write.
        trained_on: the examples that the model was trained on; the scores without those among them, and without those
            that nearly equal one, are added.
        metrics: names of `METRICS` to add to those of the task.
        names: names of the two models in error messages.

    Returns:
        The result of `score_examples`; the `calibration` of the task, if it has probabilities; `notes` about what the
        formats of the files exclude, if anything; with `trained_on`, the scores `without_training_examples`; with
        `against`, the `metrics` of the second model and the `differences` of `intervals.differences`, the first model
        minus the second, by metric.

    Raises:
        UserError: the model is not fine-tuned, a file is malformed, the model does not know a label, a metric is
            unknown or not for this task, or the second model has another task or other labels.
    """
    for name in metrics:
        if name not in METRICS:
            remedy = nearest(name, METRICS) if METRICS else "install the package that provides it"
            raise UserError(f"{argument('metrics', name)}: unknown", remedy=remedy)
    predictor, other = (Predictor(source) if isinstance(source, Model) else source for source in (model, against))
    assert predictor is not None
    model = predictor.model
    if model.task is None:
        raise UserError("this model was not fine-tuned for a task")
    if other is not None:
        _check_comparable(model, other.model, names)
    sources, named, notes = as_sources(data), as_columns(columns), list[str]()
    check_once(sources)
    refuse_weights(named, "scores count each example once")
    examples = model.task.read(sources, columns=named, kind=kind, notes=notes)
    notes += describe_damaged(examples, model.task.texts)
    predictions = predictor.run(examples, notes)
    result, first = _scores(model, examples, predictions, metrics)
    if calibration := model.task.calibration(examples, predictions):
        result["calibration"] = calibration
    if known := as_sources(trained_on):
        train = model.task.read(known, columns=named, kind=kind)
        result["without_training_examples"] = _unseen(model.task, train, examples, first, notes)
    if notes := [*notes, *result.pop("notes", ())]:
        result["notes"] = notes
    if other is not None:
        second = _measure(model, examples, other.run(examples), metrics)
        result["against"] = {
            "model": names[1],
            "metrics": measure_all(second, len(examples)),
            "differences": differences(first, second, len(examples), groups=model.task.groups(examples)),
        }
    if errors is not None:
        mistakes = worst_first(model.task.mistakes(examples, predictions, model.labels))
        replace_file(Path(errors), _errors_page(mistakes, sources, result).encode())
    return result


def _unseen(
    task: Task, train: Sequence[Any], examples: Sequence[Any], measure: Measure, notes: list[str]
) -> dict[str, Any]:
    """Return `{metrics, examples, equal, near}` of the examples that are not training examples."""
    common = overlap(task.identities(train), task.identities(examples))
    notes += describe_overlap(common, train, examples, "given")
    unseen = np.flatnonzero(without(examples, common))
    metrics = measure(unseen) if len(unseen) else {}
    if len(unseen) == len(examples):
        notes.append("no example equals or nearly equals a training example")
    else:
        shown = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
        notes.append(f"without them ({counted(len(unseen), 'example')}): {shown or 'nothing is left'}")
    return {"metrics": metrics, "examples": len(unseen), "equal": len(common.equal), "near": len(common.near)}


def score_examples(predictor: Predictor, examples: Sequence[Any]) -> dict[str, Any]:
    """Return `{task, metrics, intervals, examples}` of a fine-tuned model, `details`, `notes` and `warnings`.

    Scores are times 100; `intervals` are 95 % confidence intervals.
    """
    return _scores(predictor.model, examples, predictor.run(examples))[0]


def _measure(model: Model, examples: Sequence[Any], predictions: Sequence[Any], metrics: Sequence[str]) -> Measure:
    """Return the metrics of the task, and further ones of `METRICS`.

    Raises:
        UserError: one is not for this task, or has the name of a metric of the task.
    """
    assert model.task is not None
    measure = model.task.measure(examples, predictions, model.labels)
    own = measure_all(measure, len(examples)) if metrics else {}
    for name in metrics:
        if name in own:
            raise UserError(f"{argument('metrics', name)}: the task has a metric of this name", remedy="omit it")
    added = {name: METRICS[name](examples, predictions, model.labels) for name in metrics}
    return lambda chosen: measure(chosen) | {name: metric(chosen) for name, metric in added.items()}


def _scores(
    model: Model, examples: Sequence[Any], predictions: Sequence[Any], metrics: Sequence[str] = ()
) -> tuple[dict[str, Any], Measure]:
    task = model.task
    assert task is not None
    measure = _measure(model, examples, predictions, metrics)
    result = {
        "task": task.part.replace("_", "-"),
        "metrics": measure_all(measure, len(examples)),
        "intervals": intervals(measure, len(examples), groups=task.groups(examples)),
        "examples": len(examples),
        **task.details(examples, predictions, model.labels),
    }
    found = {label for example in examples for label in task.labels_of(example)}
    if notes := describe_unseen(task.classes(model.labels), found):
        result["notes"] = notes
    if told := describe_uninformative(task, examples, predictions):
        result["warnings"] = [told]
    return result, measure


def describe_uninformative(task: Task, examples: Sequence[Any], predictions: Sequence[Any]) -> str:
    """Return a warning that scores say little: metrics are undefined, or a model predicts the same for all examples,
    though they differ; "": neither."""
    if told := task.undefined(examples, predictions):
        return told
    if len({task.labels_of(example) for example in examples}) < 2:
        return ""
    predicted = {task.labels_of(example) for example in task.labelled(examples, predictions)}
    if len(predicted) > 1:
        return ""
    (labels,) = predicted
    same = f"'{', '.join(dict.fromkeys(labels))}' is" if labels else "no label is"
    return f"{same} predicted for all {counted(len(examples), 'example')}: the model tells none of them apart"


def constant_scores(
    task: Task, train: Sequence[Any], examples: Sequence[Any], labels: Sequence[str]
) -> dict[str, float]:
    """Return the highest score of each metric that one prediction for all examples gets.

    Args:
        task: the task.
        train: training examples: predictions with their most frequent labels are tried.
        examples: what is evaluated.
        labels: of the model.

    Returns:
        {} if predictions are not of examples, but of their parts.
    """
    counts = Counter(label for example in train for label in task.labels_of(example))
    frequent = sorted(labels, key=lambda label: -counts[label])
    scores = [
        measure_all(task.measure(examples, [prediction] * len(examples), labels), len(examples))
        for prediction in task.constants(frequent)[:MAX_CONSTANTS]
    ]
    return {name: max(each[name] for each in scores) for name in scores[0]} if scores else {}


def _check_comparable(model: Model, other: Model, names: tuple[str, str]) -> None:
    """Raise an error if two models cannot be evaluated on the same examples; the order of labels may differ."""
    first, second = names
    assert model.task is not None
    if other.task is None:
        raise UserError(f"{argument('against')}: {second} was not fine-tuned for a task")
    models = [(model, model.task), (other, other.task)]
    labels = (", ".join(sorted(task.classes(compared.labels))) for compared, task in models)
    for verb, value, other_value in (
        ("is for", model.task.part.replace("_", "-"), other.task.part.replace("_", "-")),
        ("has the labels", *labels),
    ):
        if value != other_value:
            raise UserError(
                f"{argument('against')}: {first} {verb} {value}; {second} {verb} {other_value}",
                remedy="compare models with the same task and labels",
            )


def _errors_page(mistakes: Sequence[Mistake], sources: Sequence[Source], result: Mapping[str, Any]) -> str:
    about = [
        counted(result["examples"], "example"),
        ", ".join(f"{name} {value:.2f}" for name, value in result["metrics"].items()),
    ]
    return errors_page(f"Mistakes: {result['task']}, {', '.join(map(display_name, sources))}", about, mistakes)


def evaluate_encoder(
    model: Model,
    paths: Sequence[str | Path],
    *,
    options: TextOptions = TextOptions(),  # noqa: B008 (frozen)
    machine: Machine | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """Return `{task, metrics, intervals, examples}` of a pretrained encoder on plain text.

    The metrics are `loss` and `accuracy` (0 to 1) of each objective of which the model has a complete head: those of
    masked tokens (15 % of the tokens are masked), `causal_lm`, and `next_sentence` or `sentence_order` if the documents
    have several sentences; the masking is one that provides what the objectives need. Masks and pairs are always the
    same, so that two models with the same tokenizer are evaluated on the same inputs. Two language models read the text
    in streams, in both directions, with states that go on, and their perplexities are among the metrics.

    Raises:
        UserError: the model has no pretraining head, the files contain no text or too little, or the loss is not a
            number.
    """
    with torch.random.fork_rng(devices=()):  # the random weights are overwritten
        objectives = _objectives(model)
    if not objectives:
        raise UserError("this model has neither a task head nor a complete head of a pretraining objective")
    machine = machine or choose_machine(precision="float32")
    length = min(128, model.encoder.longest)
    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(paths, model.tokenizer, Path(folder) / "corpus", heldout=None, options=options)
        second = next((kind for kind, name in LABELS.items() if name in objectives), None)
        if any(DIRECTIONS in OBJECTIVES[name].requires for name in objectives):
            layout: LayoutSettings = _streams(corpus, length)
        elif second is None or not _has_pairs(corpus.train, others=second == "random"):
            layout = DocumentSentencesSettings(length=length)
            objectives = {name: objective for name, objective in objectives.items() if name not in LABELS.values()}
            if not objectives:
                raise UserError("this model classifies pairs of sentences, but the documents contain none")
        else:
            layout = SentencePairsSettings(length=length, second=second)
        masking = _masking(objectives)
        objectives = _answerable(objectives, model.encoder.provides | masking.provides | layout.provides)
        weights = loss_weights({name: OBJECTIVES[name]() for name in objectives})
        learner = inference_copy(Learner(model.encoder, objectives, weights), machine)
        feed = Feed(layout, masking, 0, corpus.tokenizer, learner.prepare, model.encoder.settings.pretraining)
        batches = feed.heldout(corpus.train, tokens=corpus.train.num_tokens * 2)
        if not batches:
            raise UserError(
                "too little text to score: no token of it can be predicted", remedy="add text that the model can read"
            )
        metrics = evaluate(learner, batches, machine, display=display)
    finite(np.array(metrics["loss"]))
    for name, objective in learner.parts.items():
        metrics |= objective.derived(name, metrics)
    return {
        "task": "pretraining",
        "metrics": metrics,
        "intervals": {},
        "examples": sum(len(batch.keys) for batch in batches),
    }


def _streams(corpus: Corpus, longest: int) -> SentenceStreamsSettings:
    """Return a layout of few streams, whose windows leave less than two words of each unread."""
    layout = SentenceStreamsSettings(length=longest, streams=BATCH_TOKENS // longest)
    layout = layout.heldout(corpus.train.num_tokens, BATCH_TOKENS)
    words = int(layout.sizes(corpus.train).sum()) * layout.directions // layout.streams
    lengths = range(min(longest, words), min(longest, words) // 2, -1)  # those of windows
    return msgspec.structs.replace(layout, length=min(lengths, key=lambda length: words % length))


def _objectives(model: Model) -> dict[str, Objective]:
    """Return the pretraining objectives of which a model has a complete head.

    Raises:
        UserError: a head is damaged.
    """
    objectives = {}
    for name in OBJECTIVES:
        if name in model.heads:
            objective = pretraining_objective(model, name, model.encoder)
            if not model.take(name, objective):
                objectives[name] = objective
    return objectives


def _masking(objectives: Mapping[str, Objective]) -> AnyMasking:
    """Return a masking with default settings that provides what objectives need; BERT's if there is none."""
    provided = frozenset().union(*(kind.provides for kind in MASKINGS.values()))
    needed = frozenset().union(*(OBJECTIVES[name].requires for name in objectives)) & provided
    return next((kind() for kind in MASKINGS.values() if needed <= kind.provides), TokenMaskingSettings())


def _answerable(objectives: Mapping[str, Objective], available: frozenset[str]) -> dict[str, Objective]:
    """Return the objectives that need nothing but what is given.

    Raises:
        UserError: there are none.
    """
    missing = {name: sorted(OBJECTIVES[name].requires - available) for name in objectives}
    if all(missing.values()):
        needs = "; ".join(f"{name} needs {', '.join(names)}" for name, names in missing.items())
        raise UserError(f"the pretraining objectives of this model need more than plain text: {needs}")
    return {name: objective for name, objective in objectives.items() if not missing[name]}


def _has_pairs(documents: Documents, *, others: bool) -> bool:
    """Return whether most documents have consecutive sentences and, with `others`, there are several documents."""
    return len(documents) > others and documents.num_sentences >= 2 * len(documents)
