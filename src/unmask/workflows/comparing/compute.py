"""What each kind of cell does: each function fills the folder of its cell, and returns what the report needs.

A cell that was interrupted continues: runs are resumed from their checkpoints, a corpus from its shards.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.cleaning.overlap import count_seen
from unmask.data.corpus.build import held_out, write_corpus
from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.partial import remove_published
from unmask.data.labelled.columns import without_weights
from unmask.data.text.documents import Skipped, read_documents
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.train import TokenizerSettings, train_vocabulary
from unmask.inference.backend import TorchBackend
from unmask.inference.bench import measure_engines
from unmask.inference.evaluation.language_models import document_bits, likelihood_of_bits, unpredicted
from unmask.inference.evaluation.likelihood import Likelihood, TokenizedText
from unmask.inference.evaluation.scoring import constant_scores, describe_uninformative
from unmask.inference.predictor import Predictor
from unmask.metrics.comparison.estimates import mean_score
from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.metrics.intervals import measure_all, resampled
from unmask.model.directory import find
from unmask.model.model import Model, load_model
from unmask.recipes.recipe import as_recipe
from unmask.support.arrays import save_array
from unmask.support.durable import new_directory, replace_file
from unmask.support.environment import num_cores
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_values
from unmask.support.messages import argument, rendered
from unmask.support.settings import convert, to_table, write
from unmask.tasks import TASKS
from unmask.tasks.mistakes import Mistake, worst_first
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import CHECKPOINTS, SEARCHED, RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.usage import FILE as USAGE
from unmask.training.runs.usage import read_usage
from unmask.workflows.comparing.cells import (
    BITS,
    CORPUS,
    HELD,
    MISTAKES,
    RESAMPLED,
    RUN,
    TOKENIZER,
    Cell,
    content_of,
    result_of,
    tested_on,
)
from unmask.workflows.comparing.first_look import first_look
from unmask.workflows.distillation.distill import distill
from unmask.workflows.distillation.lesson import Lesson
from unmask.workflows.distillation.task_distillation import prepare_lesson
from unmask.workflows.finetuning.examples import frame_examples, read_parts
from unmask.workflows.finetuning.finetune import can_resume, metric_of, search_rates
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel
from unmask.workflows.finetuning.prepare import Prepared, prepare
from unmask.workflows.finetuning.run_job import run_prepared
from unmask.workflows.pretraining.default import DECAY, WEIGHT_DECAY, decay, num_passes, rounded
from unmask.workflows.pretraining.launch import pretrain
from unmask.workflows.pretraining.restarts import started
from unmask.workflows.pretraining.search import training_speed

LOOKED_AT = 1000
"""Maximum number of examples of a first look."""
FAMILIAR, FAMILIAR_TOKENS = 200, 32
"""Maximum number of training and of test texts whose bits are compared, and of their first tokens."""
MAX_MISTAKES, MAX_TEXT = 5_000, 400
"""Number of mistakes whose texts are stored, and of their characters."""
PARTIAL_WORD = re.compile(r"\S{0,40}\s+")
"""The rest of a word with which a passage begins."""
LATENCY_REQUESTS, SPEED_SEQUENCES = 100, 400
"""Number of sequences that the engines of an arm's model are measured with, one by one and together."""

Result = dict[str, Any]
Compute = Callable[[Cell, Path, Mapping[str, Path], Machine], Result]
"""Computes a cell in its folder, given the folders of the cells it needs and the machine; it prints nothing."""


def make_corpus(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Tokenize the text, with a tokenizer that is trained on it unless it is that of a model."""
    text, options = cell.paths["text"], cell.paths["reading"]
    if cell.paths["tokenizer"]:
        tokenizer = load_tokenizer(find(cell.paths["tokenizer"]))
    else:
        settings = convert(dict(cell.inputs["tokenizer"]), TokenizerSettings, "tokenizer")
        if not (folder / TOKENIZER).exists():
            trained = train_vocabulary(
                settings.kind,
                read_documents(text, options, Skipped()),
                size=settings.vocabulary,
                lowercase=settings.lowercase,
            )
            with new_directory(folder / TOKENIZER) as aside:
                trained.save(aside)
        tokenizer = load_tokenizer(folder / TOKENIZER)
    if (folder / CORPUS).exists():  # complete, as the process ended before the result was written
        remove_published(folder / CORPUS)
    else:
        write_corpus(text, tokenizer, folder / CORPUS, options=options, workers=num_cores())
    corpus = open_corpus(folder / CORPUS)
    return {"tokens": corpus.train.num_tokens, "documents": len(corpus.train), "vocabulary": tokenizer.size}


def find_overlap(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Count the test examples that occur in the text."""
    task, paths = TASKS[cell.inputs["task"]](), cell.paths
    held = read_parts(task, paths["files"]).held
    seen = count_seen(
        read_documents(paths["text"], paths["reading"], Skipped()), [task.texts(example) for example in held]
    )
    return {"seen": seen, "examples": len(held)}


def look_first(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Judge the features of a model by the task's labels."""
    inputs = cell.inputs
    looked = first_look(
        [_model(cell, needed)],
        list(cell.paths["files"].train),
        inputs["task"],
        columns=without_weights(inputs["columns"]),
        format=inputs["format"],
        examples=min(inputs.get("examples", LOOKED_AT), LOOKED_AT),
        device=machine.device.type,  # type: ignore[arg-type]
        quiet=True,
    )
    (look,) = looked.ranking
    return {"score": look.logme if look.h_score is None else look.h_score, "examples": looked.examples}


def compare_familiarity(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Compare how well a language model predicts the first tokens of test texts and training texts, in bits per token.

    Both are of one distribution: a model that has read the test texts, but not the others, predicts them better.

    Returns:
        `{train, test, z}`, z being the difference in standard errors (Welch); {} if the model is no language model.
    """
    task = TASKS[cell.inputs["task"]]()
    parts = read_parts(task, cell.paths["files"])
    likelihood = _likelihood(load_model(_model(cell, needed)), machine)
    if likelihood is None:
        return {}
    rates = []
    for examples in (parts.train, parts.held):
        spaced = examples[:: math.ceil(len(examples) / FAMILIAR) or 1]  # files may be sorted
        texts = likelihood.encode([" ".join(task.texts(example)) for example in spaced])
        starts = [TokenizedText(*(part[:FAMILIAR_TOKENS] for part in text)) for text in texts if len(text.ids)]
        rates.append(np.array([-row.mean() / math.log(2) for row in likelihood(starts)]))
    if min(map(len, rates)) < 2:
        return {}
    train, test = rates
    error = np.sqrt(train.var(ddof=1) / len(train) + test.var(ddof=1) / len(test))
    z = float((test.mean() - train.mean()) / max(error, 1e-9))
    return {"train": float(train.mean()), "test": float(test.mean()), "z": z}


def draw_heldout(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Draw passages of the held-out documents, at random places in documents in random order."""
    rng, most = derive_rng(0, "held-out passages"), cell.inputs["longest"]
    texts = list(held_out(read_documents(cell.paths["text"], cell.paths["reading"], Skipped())))
    if len(texts) < 2 and cell.paths["decides"]:
        raise UserError("fewer than two documents are held out of the text", remedy=f"add to {argument('text')}")
    passages: list[str] = []
    characters = 0
    for index in rng.permutation(len(texts)).tolist():
        if characters >= cell.inputs["characters"]:
            break
        passages.append(_passage(texts[index], most, rng))
        characters += len(passages[-1])
    replace_file(folder / HELD, b"".join(msgspec.json.encode({"text": passage}) + b"\n" for passage in passages))
    return {"documents": len(texts), "passages": len(passages), "characters": characters}


def _passage(text: str, most: int, rng: np.random.Generator) -> str:
    """Return a text, or of a longer one so many characters from a random place, which begins with a whole word."""
    start = int(rng.integers(len(text) - most + 1)) if len(text) > most else 0
    partial = PARTIAL_WORD.match(text, start) if start else None
    return text[partial.end() if partial else start : start + most]


def measure_bits(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Measure how well a model predicts held-out text, in bits per character, which no vocabulary changes.

    Returns:
        `{bits, low, high, characters, head, notes}`, and what a score has; {} if the model is no language model, or if
        there are no two documents.
    """
    model = load_model(_model(cell, needed))
    likelihood = _likelihood(model, machine)
    passages = content_of(needed["heldout"], HELD, _result(cell, needed, "heldout"))
    texts = [msgspec.json.decode(line)["text"] for line in passages.splitlines()]
    if likelihood is None or len(texts) < 2:
        return {}
    scored = document_bits(likelihood, texts, Display(quiet=True))
    (drawn,) = resampled([scored.measure], len(texts), _resampling_seed(cell.needs["heldout"].inputs["text"]), None)
    if not np.isfinite(drawn[BITS]).all():
        raise UserError("the loss of the held-out text is not finite", remedy="lower the learning rate")
    save_array(folder / RESAMPLED, drawn[BITS][None].astype(np.float32))
    bits = measure_all(scored.measure, len(texts))[BITS]
    _, low, high = mean_score(Resampled((cell.seed,), np.array([bits]), drawn[BITS][None], len(texts), None))
    return {
        "bits": bits,
        "low": low,
        "high": high,
        "characters": int(scored.characters.sum()),
        "head": likelihood.head,
        "notes": unpredicted(likelihood, texts),
        "metric": BITS,
        "deciding": [BITS],
        "metrics": {BITS: bits},
        "independent": len(texts),
        "parameters": sum(value.numel() for value in model.encoder.parameters()),
    }


def measure_speed(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Measure about how fast models are trained, in floating-point operations per second."""
    return {"flops_per_second": training_speed(machine)}


def train_model(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Pretrain, adapt or distill a model within its budget."""
    run, way = folder / RUN, cell.inputs["way"]
    corpus = needed["corpus"] / CORPUS
    common: dict[str, Any] = {"corpus": corpus, "out": run, "quiet": True, "resume": started(run)}
    common |= {"device": machine.device.type, "precision": machine.precision, "workers": machine.workers}
    measured = machine.reset_peak_memory()
    recipe, notes = cell.paths["recipe"], list[str]()
    if WEIGHT_DECAY in cell.inputs:
        passes = num_passes(
            recipe,
            open_corpus(corpus).train.num_tokens,
            cell.paths["vocabulary"],
            lambda: float(_result(cell, needed, "speed")["flops_per_second"]),
        )
        if changes := decay(passes / cell.share):
            recipe = as_recipe(recipe, changes)
            notes.append(f"reads the text about {rounded(passes)} times, and so has a weight decay of {DECAY:g}")
    if way == "distill":
        distill(recipe, cell.paths["model"], **common)
    else:
        init = cell.paths["model"] if way == "adapt" else None
        pretrain(recipe, init=init, search=cell.inputs["search"], **common)
    runs = [RunDirectory(path) for path in (*(run / SEARCHED).glob("x*"), run)]  # with the trials of a search
    starts = [start for each in runs for start in each.read_metrics("start")]
    lines = [each.read_metrics("train") for each in runs]
    ends = [end for each in lines for end in each[-1:]]
    return {
        "seconds": sum(line["seconds"] for line in (*starts, *ends)),
        "tokens": sum(end["tokens"] for end in ends),
        "memory": machine.memory() if measured else 0,
        "curve": _curve(lines[-1], runs[-1].read_metrics("heldout")),
        "notes": notes,
    }


def _curve(steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the evaluations of a run with the seconds and tokens of the steps before them."""
    at = {line["step"]: line for line in steps}
    start = {"seconds": 0.0, "tokens": 0}
    return [{**line, **{name: at.get(line["step"], start)[name] for name in start}} for line in evaluations]


def choose_rate(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Choose the learning rate of fine-tuning by a tenth of the training examples; none where nothing has one.

    Test examples are not used (`choosing`).
    """
    job = _job(cell, folder, needed, machine)
    ready = prepare(job, machine, Display(quiet=True), choosing=True)
    if ready.recipe.budget.epochs == 0:  # fitted, not trained
        return {"rate": None, "scores": {}}
    scores = search_rates(job, folder, resume=True, metric=cell.inputs["metric"])
    return {"rate": max(scores, key=lambda rate: scores[rate]), "scores": {f"{k:g}": v for k, v in scores.items()}}


def learn_and_score(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Learn a task, and score the model on the test examples."""
    run, start, display = folder / RUN, time.monotonic(), Display(quiet=True)
    earlier = sum(usage.seconds for usage in read_usage(run / USAGE))  # of starts that were interrupted
    measured = machine.reset_peak_memory()
    ready = _prepared(cell, folder, needed, machine, display)
    examples = ready.data.held
    if not examples:
        raise UserError(f"task '{cell.task}': there are no examples to test on", remedy="name files in test")
    run_prepared(_untested(ready), run, machine, Processes.launched(), display, resume=can_resume(run, True))
    seconds, memory = earlier + time.monotonic() - start, machine.memory() if measured else 0
    model = load_model(run)
    task = model.task
    assert task is not None
    told = list[str]()
    predictions = Predictor(model, replace(machine, precision="float32"), Display(quiet=True)).run(examples, told)
    measure, groups = task.measure(examples, predictions, model.labels), task.groups(examples)
    metrics = measure_all(measure, len(examples))
    tested = list(map(str, cell.paths["files"].dev or cell.paths["files"].train))
    (drawn,) = resampled([measure], len(examples), _resampling_seed(tested_on(cell)), groups)
    metric, known = metric_of(cell.inputs["task"], metrics), task.metrics_of(examples, model.labels)
    deciding = [name for name in known if math.isfinite(metrics[name]) and np.isfinite(drawn[name]).all()]
    if metric not in deciding:
        raise UserError(f"task '{cell.task}': {metric} is not a number", remedy="lower the learning rate")
    save_array(folder / RESAMPLED, np.array([drawn[name] for name in deciding], np.float32))
    wrong = [] if cell.seed else _listed(task.mistakes(examples, predictions, model.labels), tested)
    replace_file(folder / MISTAKES, msgspec.json.encode(wrong))
    parameters = sum(value.numel() for value in model.encoder.parameters())
    notes, recipe = [*ready.data.notes, *(f"test: {note}" for note in told)], ready.recipe
    uninformative = describe_uninformative(task, examples, predictions)
    return {
        "metric": metric,
        "deciding": deciding,
        "metrics": metrics,
        "constant": constant_scores(task, ready.data.train, examples, model.labels),
        "calibration": task.calibration(examples, predictions),
        "by_label": task.details(examples, predictions, model.labels).get("by_label", {}),
        "examples": len(examples),
        "independent": len(set(groups)) if groups else len(examples),
        "trained_on": len(ready.data.train),
        "labels": len(ready.data.labels),
        "seconds": seconds,
        "memory": memory,
        "parameters": parameters,
        "learning_rate": None if recipe.budget.epochs == 0 else recipe.optimizer.learning_rate,
        "notes": [rendered(str(note)) for note in notes],
        "warnings": [rendered(warning) for warning in (*ready.data.warnings, uninformative) if warning],
    }


def _prepared(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine, display: Display) -> Prepared:
    """Return what a cell learns, by fine-tuning or from a teacher."""
    inputs, paths = cell.inputs, cell.paths
    settings, limit = {**inputs["settings"], "seed": cell.seed}, inputs.get("examples")
    if "teacher" in needed:
        lesson = Lesson(
            paths["student"],
            needed["teacher"] / RUN,
            paths["files"],
            paths["unlabelled"],
            layers=inputs["student"]["layers"],
            settings=settings,
            examples=limit,
        )
        return prepare_lesson(lesson, machine, display)
    job = _job(cell, folder, needed, machine)
    if "rate" in needed:
        rate = _result(cell, needed, "rate")["rate"]
        job = job if rate is None else replace(job, settings={**settings, "optimizer.learning_rate": rate})
    return prepare(job, machine, display, choosing=False)


def measure_cost(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> Result:
    """Measure how fast the model of an arm is on this machine, in torch and in what it can be exported to.

    No other cell is computed at the same time (see `work`).
    """
    model = load_model(needed["score"] / RUN if "score" in needed else _model(cell, needed))
    measured = measure_engines(model, sequences=SPEED_SEQUENCES, requests=LATENCY_REQUESTS)
    heads = {name: {part: list(tensor.shape) for part, tensor in head.items()} for name, head in model.heads.items()}
    settings = model.encoder.settings and to_table(model.encoder.settings)
    shape = fingerprint_values([settings, model.tokenizer.size, heads])
    return {"engines": msgspec.to_builtins(measured.rows), "left_out": measured.left_out, "shape": shape}


COMPUTE: dict[str, Compute] = {
    "look": look_first,
    "familiarity": compare_familiarity,
    "overlap": find_overlap,
    "heldout": draw_heldout,
    "speed": measure_speed,
    "corpus": make_corpus,
    "pretraining": train_model,
    "bits": measure_bits,
    "rate": choose_rate,
    "score": learn_and_score,
    "cost": measure_cost,
}
"""Functions by the kind of cell."""


def tidy(cell: Cell, folder: Path) -> None:
    """Remove from the folder of a finished cell what only an interrupted one needs; see `Cell.keeps`."""
    for run in (folder / RUN, *folder.glob("rate-*")):
        if not cell.keeps:
            shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)


def _job(cell: Cell, folder: Path, needed: Mapping[str, Path], machine: Machine) -> FinetuningJob:
    """Return the fine-tuning of a cell."""
    paths = cell.paths
    if "recipe" in paths:  # random weights of this shape
        tokenizer = needed["tokenizer"] / TOKENIZER if "tokenizer" in needed else paths["tokenizer"]
        file = folder / "random.toml"
        replace_file(file, write(paths["recipe"]).encode())
        start = InitialModel(f"random:{file}", tokenizer)
    else:
        start = InitialModel(_model(cell, needed))
    return FinetuningJob(
        cell.inputs["task"],
        start,
        paths["files"],
        {**cell.inputs["settings"], "seed": cell.seed},
        frozen=paths["frozen"],
        downstream=paths["small"],
        machine=machine,
        quiet=True,
        examples=cell.inputs.get("examples"),
    )


def _result(cell: Cell, needed: Mapping[str, Path], name: str) -> Result:
    """Return the result of a cell that a cell needs."""
    result = result_of(needed[name].parents[1], cell.needs[name])
    assert result is not None, "it is computed before"
    return result


def _model(cell: Cell, needed: Mapping[str, Path]) -> Path | str:
    """Return the model of a cell: one that another cell made, or a checkpoint."""
    return needed["model"] / RUN if "model" in needed else cell.paths["model"]


def _likelihood(model: Model, machine: Machine) -> Likelihood | None:
    """Return what scores texts by a model; None if it is no language model."""
    try:
        return likelihood_of_bits(TorchBackend(model, machine))
    except UserError:
        return None


def _untested(ready: Prepared) -> Prepared:
    """Return a run that does not read the test examples, which are predicted once, by its finished model."""
    nothing = frame_examples(ready.recipe.task, ready.base, [], ready.data.labels, "evaluation")
    held = ready.held if ready.stops_early else nothing
    return replace(ready, data=replace(ready.data, held=[]), held=held)


def _resampling_seed(tested: Sequence[Any]) -> int:
    """Return the seed of the resamples of what is tested on: the same for all arms, and tasks with this test set."""
    return int(fingerprint_values(tested)[:8], 16)


def _listed(mistakes: Sequence[Mistake], files: Sequence[str]) -> list[dict[str, str]]:
    """Return all mistakes as they are stored, the worst first: beyond `MAX_MISTAKES`, only of which `example`.

    That is where it is, with the number of the file for its name: other arms may have read the same file elsewhere.
    """
    numbers = {name: str(number) for number, name in reversed(list(enumerate(files)))}
    listed = []
    for rank, mistake in enumerate(worst_first(mistakes)):
        name = next((name for name in numbers if mistake.caption.startswith(f"{name}:")), "")
        example = {"example": numbers.get(name, "") + mistake.caption.removeprefix(name)}
        listed.append({**example, **_described(mistake)} if rank < MAX_MISTAKES else example)
    return listed


def _described(mistake: Mistake) -> dict[str, str]:
    """Return a mistake as the report shows it."""
    text = " | ".join(passage.text for passage in mistake.passages)
    return {
        "where": mistake.caption,
        "text": text[:MAX_TEXT] + ("…" if len(text) > MAX_TEXT else ""),
        "gold": mistake.gold,
        "predicted": mistake.predicted,
    }
