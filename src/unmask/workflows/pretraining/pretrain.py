"""Pretrain an encoder on a corpus, from scratch or starting from an existing model (adaptation).

corpus -> layout -> masking -> objectives -> training loop -> RUN/model
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.data.batches.curriculum import Curriculum
from unmask.data.batches.sources import Source, stage_ends
from unmask.data.cleaning.language import main_languages
from unmask.data.corpus.corpus import Corpus, Documents, open_corpus
from unmask.data.corpus.sample import read_sample
from unmask.data.text.record_files import fingerprint_source
from unmask.data.tokenizers.tokenizer import UNKNOWN_SHARE
from unmask.inference.fill import HEADS
from unmask.model.model import Model, save_model
from unmask.objectives.learner import Learner
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import Recipe, as_recipe
from unmask.support import __version__
from unmask.support.durable import replaced_directory
from unmask.support.fingerprint import fingerprint_values
from unmask.support.messages import call, in_command, rendered, setting
from unmask.support.model_card import BaseModel, Origin, model_card
from unmask.support.papers import papers_of
from unmask.support.settings import write
from unmask.training.checkpoint import copied
from unmask.training.evaluate import evaluate
from unmask.training.loop import Trainer
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.restoring import open_run
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.plots import plot_training
from unmask.training.runs.report import Remarks, pretraining_report
from unmask.training.settings import BudgetSettings
from unmask.workflows.pretraining.checks import (
    build_curriculum,
    check_masked,
    check_memory,
    check_teacher,
    check_vocabulary,
    check_words,
    open_others,
)
from unmask.workflows.pretraining.general_text import (
    MOST_LOST,
    expectation,
    fertility,
    forgotten,
    general_batches,
)
from unmask.workflows.pretraining.start import (
    USUAL_SHARE,
    InitialWeights,
    begin_from_text,
    build_learner,
    continued,
    fit_to_text,
    least_share,
    mix,
    usual_share,
)

HELDOUT_TOKENS = 40_000
"""Number of held-out tokens that each evaluation reads."""
LEAST_MINUTES = 1e-3
"""What remains of a budget at least, which is a step."""
CHECKED_SAMPLES = 64
"""Number of samples checked at the start for tokens that can be masked."""


def pretrain_corpus(
    recipe: Recipe | str | Path,
    corpus: Corpus | str | Path,
    out: str | Path,
    *,
    init: str | Path | None = None,
    layers: int | None = None,
    general: Sequence[str | Path] = (),
    allow_pickle: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Pretrain an encoder and write a run directory.

    Args:
        recipe: what to train, or the name or file of a recipe; with `init` the shape of that model replaces [encoder]
            except for dropout.
        corpus: training text, with the tokenizer that it was built with, or its directory.
        out: the run directory.
        init: model to continue from; the corpus must have been built with its tokenizer, or with one that extends it:
            then the vocabulary of the model is extended (`extend_tokenizer`, workflows/pretraining/start.py).
        layers: number of layers to keep of those of `init`, at equal distances; None: all.
        general: with `init`, files of general text, which is scored before and after.
        allow_pickle: allow `init` to hold pickled weights.
        resume: continue the run in `out` from its last checkpoint.
        machine: device and precision; None chooses them automatically.
        quiet: print nothing.

    Returns:
        The directory of the trained model, RUN/model.

    Raises:
        UserError: recipe, corpus, model and run are not compatible.
        UnmaskError: training was aborted; the run is saved.
    """
    with Processes.launched() as processes:
        recipe, machine = as_recipe(recipe), machine or choose_machine(processes=processes)
        corpus = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
        start = InitialWeights()
        if init is not None:
            start = continued(init, recipe, corpus, layers=layers, allow_pickle=allow_pickle)
        return train_encoder(recipe, corpus, out, start, general=general, resume=resume, machine=machine, quiet=quiet)


def train_encoder(
    recipe: Recipe,
    corpus: Corpus,
    out: str | Path,
    start: InitialWeights,
    *,
    teacher: Teacher | None = None,
    general: Sequence[str | Path] = (),
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Train an encoder that starts from given weights, and write a run directory; see `pretrain_corpus`.

    Args:
        recipe: what to train; the shape of the model that it starts from replaces [encoder].
        corpus: training text.
        out: the run directory.
        start: the initial weights.
        teacher: model that objectives learn from; it is moved to the machine.
        general: files of general text, which is scored before and after; see general_text.py.
        resume: continue the run in `out` from its last checkpoint.
        machine: device and precision; None chooses them automatically.
        quiet: print nothing.
    """
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.is_main)
    machine = machine or choose_machine()
    check_teacher(recipe, teacher)
    tokenizer = corpus.tokenizer
    if start.model is not None:  # pairs are framed as those that it has learned from
        recipe = msgspec.structs.replace(recipe, encoder=start.model.encoder.settings)
        tokenizer = tokenizer.framed_as(start.model.tokenizer)
    check_vocabulary(recipe.encoder, tokenizer.pad, tokenizer.kind.name)
    display.say(*check_words(recipe, tokenizer))
    others = open_others(recipe, corpus)
    inputs = {"corpus": fingerprint(corpus), **start.inputs}
    inputs |= {f"corpus of stages[{number}]": fingerprint(other) for number, other in others.items()}
    if general:
        inputs["general"] = fingerprint_values(list(map(fingerprint_source, general)))
    if teacher is not None:
        inputs["teacher"] = teacher.fingerprint()  # before its precision is changed
        teacher.to(machine.device, machine.dtype)
    learner, created = build_learner(recipe, tokenizer.size, start.model, teacher)
    recipe, start, initial = fit_to_text(learner, recipe, start, corpus)
    learner.to(machine.device)
    curriculum = build_curriculum(recipe, tokenizer, learner)
    by_content = {fingerprint(corpus): corpus.train}
    read = {number: by_content.setdefault(fingerprint(other), other.train) for number, other in others.items()}
    source, heldout = _read(curriculum, recipe, corpus, read, display)
    other = general_batches(general, tokenizer, curriculum, HELDOUT_TOKENS, display.say) if general else []
    with processes, open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run:
        display.say(*start.changes)
        display.warn(*start.warnings)
        if created:
            display.say(f"newly initialized, because {start.source} lacks it: {', '.join(created)}")
        if start.model is None and recipe.initial_embeddings == "cooccurrence" and processes.is_main and not resume:
            began = time.monotonic()
            display.say(begin_from_text(learner, read.get(0, corpus.train)))  # other processes receive the weights
            run.log({"kind": "start", "step": 0, "seconds": round(time.monotonic() - began, 3)})
        if heldout and not resume:
            run.log(
                {"kind": "baseline", "step": 0, **baseline(learner, heldout, corpus.manifest.most_frequent_token.id)}
            )
        new_heads = set(created).difference(start.model.created if start.model else ())
        if other and not new_heads and processes.is_main and not resume:
            known, unseen = (
                {**evaluate(learner, batches, machine), "fertility": fertility(batches, tokenizer)}
                for batches in (other, curriculum.heldout(corpus.train, HELDOUT_TOKENS))  # unseen so far
            )
            of_text = {f"text_{name}": unseen[name] for name in ("loss", "fertility")}
            run.log({"kind": "general", "step": 0, **known, **of_text})
            counts = corpus.train.token_counts()
            lacking = counts[tokenizer.unk] >= UNKNOWN_SHARE * counts.sum()  # ELMo reads such words, without a warning
            if not (start.warnings or lacking):  # what the vocabulary lacks is few tokens, which are easy to predict
                display.say(expectation(unseen, known))
        trainer = Trainer(
            learner,
            source,
            prepare=curriculum.prepare(),
            heldout=heldout,
            settings=msgspec.structs.replace(recipe, budget=_remaining(recipe.budget, run, processes)),
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
        if not processes.is_main:
            return run.model
        chosen = dict[str, float]()
        if initial:
            before = run.read_metrics("general")
            epochs = source.epochs(trainer.progress.cursor)
            share, start = _mix(learner, initial, recipe.initial_share, start, other, before, epochs, machine)
            chosen = {"initial_share": share}
            display.say(*start.changes)
        metrics = evaluate(learner, heldout, machine) if heldout else {}
        if initial and heldout:
            reached = {"step": trainer.progress.step, "tokens": trainer.progress.tokens}
            run.log({"kind": "heldout", **reached, **metrics})
        if other:
            run.log({"kind": "general", "step": trainer.progress.step, **evaluate(learner, other, machine), **chosen})
        remarks = _finish(run, recipe, corpus, curriculum, trainer, start, metrics, display)
    display.warn(*remarks.warnings)
    display.say(f"model: {run.model}")
    return run.model


def _read(
    curriculum: Curriculum, recipe: Recipe, corpus: Corpus, others: Mapping[int, Documents], display: Display
) -> tuple[Source, list[Batch]]:
    """Return the source of training samples, given the documents of stages that read others, and the held-out batches.

    Raises:
        UserError: the corpus has no samples, nothing in them can be masked, or a document is damaged.
    """
    heldout = curriculum.heldout(corpus.heldout, HELDOUT_TOKENS)
    if len(corpus.heldout) and not heldout:  # such as a single document where each sample has a text of another one
        display.say("the held-out text is too short for this layout: there is no evaluation during training")
    source, prepare = curriculum.source(corpus.train, others), curriculum.prepare()
    check_memory(recipe.encoder, source)
    for number, stage in enumerate(recipe.every_stage):
        cursor = source.enter(source.start, number)
        samples, _ = source.take(cursor, sequences=CHECKED_SAMPLES)  # raises if the corpus has no samples
        check_masked(stage, prepare([sample.at(1.0) for sample in samples]))
    return source, heldout


def _mix(
    learner: Learner,
    initial: Mapping[str, Tensor],
    share: float | Literal["auto"],
    start: InitialWeights,
    general: Sequence[Batch],
    before: Sequence[Mapping[str, float]],
    epochs: float,
    machine: Machine,
) -> tuple[float, InitialWeights]:
    """Move trained weights towards initial ones; return the share of these, and the start with what was done, in words.

    Args:
        learner: encoder and objectives; modified in place.
        initial: the weights that it started from, by name.
        share: `Recipe.initial_share`.
        start: what it started from.
        general: batches of general text.
        before: their metrics before the first step; none if they were not scored then.
        epochs: how often the text was read.
        machine: where to compute.
    """
    trained, reason = copied(learner.state_dict()), ""

    def general_loss(share: float) -> float:
        mix(learner, initial, trained, share)
        return evaluate(learner, general, machine)["loss"]

    if share == "auto" and before:
        share = least_share(general_loss, before[0]["loss"] + MOST_LOST)
        reason = f" (the least with which the loss of the general text rises by at most {MOST_LOST} nats)"
    elif share == "auto":
        share = usual_share(epochs)
    mix(learner, initial, trained, share)
    how = f"the weights are {share:.0%} those of {start.source}{reason}, the rest the trained ones"
    unchanged = (
        f"the model is that of {start.source}: with any trained weights, more of the general text would be lost; "
        f"pass a lower optimizer.learning_rate, or {setting('initial_share', USUAL_SHARE)}"
    )
    return share, replace(start, changes=[how], warnings=[*start.warnings, *([unchanged] if share == 1 else [])])


def _remaining(budget: BudgetSettings, run: RunDirectory, processes: Processes) -> BudgetSettings:
    """Return a budget whose minutes are without those that the initial embeddings have taken."""
    spent = processes.broadcast(sum(line["seconds"] for line in run.read_metrics("start")) / 60)
    if budget.timed is None or not spent:
        return budget
    minutes, limit = (
        each if each is None else max(each - spent, LEAST_MINUTES) for each in (budget.minutes, budget.max_minutes)
    )
    return msgspec.structs.replace(budget, minutes=minutes, max_minutes=limit)


def baseline(learner: Learner, heldout: Sequence[Batch], token: int) -> dict[str, float]:
    """Return the metrics of a constant prediction, which is `token` (the most frequent one) for objectives on tokens.

    Args:
        learner: encoder and objectives.
        heldout: batches to score on, at least one.
        token: id of the most frequent token.
    """
    losses: dict[str, float] = {}
    for name, part in learner.active(heldout[0]).items():
        losses |= part.baseline(name, heldout, token)
    return losses


def _trained(recipe: Recipe, curriculum: Curriculum, total: int) -> dict[str, int]:
    """Return the last step of each objective, by name, without those that have no step."""
    last_steps: dict[str, int] = {}
    begin = 0
    for stage, end in zip(recipe.every_stage, stage_ends(curriculum.stages, total), strict=True):
        if end > begin:
            last_steps |= dict.fromkeys(stage.objectives, end)
        begin = end
    return {name: last_steps[name] for name in recipe.all_objectives if name in last_steps}


def _finish(
    run: RunDirectory,
    recipe: Recipe,
    corpus: Corpus,
    curriculum: Curriculum,
    trainer: Trainer,
    start: InitialWeights,
    metrics: Mapping[str, float],
    display: Display,
) -> Remarks:
    """Write the results of a finished run: model, report, and then the plot, which may fail.

    Only objectives of the last stage were evaluated, and none if no text is held out. The heads of earlier stages are
    published, and noted.
    """
    learner, progress = trainer.learner, trainer.progress
    trained = _trained(recipe, curriculum, progress.total)
    constant, total = (run.read_metrics("baseline") or [{}])[0], progress.total
    last = [(name, learner.parts[name]) for name, step in trained.items() if step == total and metrics]
    notes = [note for name, part in last for note in part.notes(name, metrics, constant)]
    if other := run.read_metrics("general"):
        notes.append(forgotten(other))
    earlier = [
        f"the {name} head is that of step {step:,}: it belongs to an earlier stage, and the encoder has changed since"
        for name, step in trained.items()
        if step < total
    ]
    fill = rendered(call("fill", model=run.path), in_command)
    remarks = Remarks(
        how=start.how,
        changes=start.changes,
        stages=[*trainer.calibration.stage_lines(total), *earlier],
        notes=notes,
        warnings=[*start.warnings, *(text for name, part in last for text in part.warnings(name, metrics))],
        usage=[f'{fill} "Text with a [MASK] in it."'] if HEADS.keys() & trained else [],
    )
    published = [name for name in trained if TEACHER not in recipe.all_objectives[name].requires]
    heads = {name: learner.parts[name].published() for name in published}
    tokens = None if start.tokens is None else start.tokens + progress.tokens
    about = f"{start.how} with unmask {__version__}: {', '.join(trained)}."
    texts = [document.text for document in read_sample(corpus.directory)]
    if languages := main_languages(texts):
        about += f" Languages of the text, as fastText identifies them: {', '.join(languages)}."
    model = Model(learner.encoder, curriculum.feeds[-1].tokenizer, heads, tokens=tokens)
    with replaced_directory(run.model) as aside:
        pipeline = "fill-mask" if "masked_lm" in heads else ""
        origin = Origin(
            settings=recipe.card,
            base=BaseModel() if start.model is None else start.model.as_base,
            languages=languages,
            library=recipe.encoder.library,
            pipeline=pipeline,
            papers=papers_of(*(type(recipe.all_objectives[name]) for name in trained), *model.parts),
        )
        save_model(aside, model, model_card(recipe.name, about, metrics, origin))
    shutil.rmtree(run.plots, ignore_errors=True)  # from before the run was extended
    plot_training(run)
    run.report(pretraining_report(run, recipe.name, progress, remarks))
    return remarks


def fingerprint(corpus: Corpus) -> str:
    """Return a digest of the content of a corpus."""
    manifest = corpus.manifest
    return fingerprint_values([manifest.tokenizer, manifest.train, manifest.heldout])
