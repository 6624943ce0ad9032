"""General distillation: a student learns from a pretrained teacher on raw text.

corpus -> layout -> masking -> objectives, which read the teacher's outputs -> the training loop -> RUN/model

It is pretraining with a teacher: everything after the student's initial weights is `train_encoder`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from unmask.corpus.corpus import Corpus
from unmask.distillation.student import student_of, student_settings
from unmask.distillation.targets import StoringTeacher, TargetStore
from unmask.errors import UserError
from unmask.model import Model, load_model
from unmask.objectives.hidden_cosine import NAME as HIDDEN_COSINE
from unmask.objectives.layer_matching import NAME as LAYER_MATCHING
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.objectives.soft_targets import SoftTargetsSettings
from unmask.objectives.teacher import Teacher
from unmask.pretraining.checks import check_shape, check_teacher
from unmask.pretraining.pretrain import fingerprint, train_encoder
from unmask.pretraining.start import Start, load_base
from unmask.recipe import Recipe
from unmask.tokenizers.extension import difference
from unmask.training.machine import Machine


def distill_encoder(
    recipe: Recipe,
    teacher: str | Path,
    corpus: Corpus,
    out: str | Path,
    *,
    init: str | Path | None = None,
    layers: int | None = None,
    targets: str | Path | None = None,
    allow_pickle: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Train a student on text by what a teacher computes of it, and write a run directory.

    Args:
        recipe: the shape of the student, and the objectives, of which at least one learns from a teacher.
        teacher: MODEL to learn from; the corpus must have been built with its tokenizer.
        corpus: training text.
        out: the run directory.
        init: MODEL that the student continues from, whose shape replaces [encoder]; None: it begins with weights of the
            teacher, as far as its shape allows.
        layers: number of layers of the student, whose other sizes are then those of the teacher; None: as in the
            recipe.
        targets: directory of the teacher's predictions, which are computed only where they are not stored; students
            with the same seed, layout and masking read the same samples. None: they are not stored.
        allow_pickle: allow `teacher` and `init` to hold pickled weights.
        resume: continue the run in `out` from its last checkpoint.
        machine: device and precision; None chooses them automatically.
        quiet: print nothing.

    Returns:
        The directory of the student, RUN/model.

    Raises:
        UserError: recipe, teacher, student and corpus are not compatible.
        UnmaskError: training was aborted; the run is saved.
    """
    model = load_model(teacher, allow_pickle=allow_pickle, seed=recipe.seed)
    how = f"Distilled from {teacher} on {', '.join(corpus.manifest.sources)}"
    if init is None:
        shape = student_settings(recipe.encoder, model.encoder.settings, layers)
        student, about = student_of(model, shape, f"{teacher}", seed=recipe.seed)
        inputs = {"init": "none"}
    else:
        student = load_base(init, recipe, corpus, allow_pickle=allow_pickle)
        inputs, about = {"init": student.fingerprint()}, f"the student continues from {init}"
    check_teacher(recipe, model)
    check_student(student, model, f"{teacher}")
    check_corpus(model, corpus, recipe, f"{teacher}")
    check_shape(student.encoder.settings, recipe, "the student")
    recipe = msgspec.structs.replace(recipe, encoder=student.encoder.settings)
    start = Start(student, f"{init or teacher}", how, [about], inputs, tokens=student.tokens)
    train = partial(train_encoder, recipe, corpus, out, start, resume=resume, machine=machine, quiet=quiet)
    learner = learner_of(model, recipe)
    if targets is None:
        return train(teacher=Teacher(learner))
    check_targets(recipe.all_objectives)
    temperature = cast(SoftTargetsSettings, recipe.all_objectives[SOFT_TARGETS]).temperature
    of = {"teacher": model.fingerprint(), "corpus": fingerprint(corpus), "temperature": f"{temperature:g}"}
    store = TargetStore(targets, of)
    try:
        return train(teacher=StoringTeacher(learner, store, temperature))
    finally:
        store.flush()


def check_targets(objectives: Iterable[str]) -> None:
    """Raise an error if predictions cannot be stored, or if storing them has no effect."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--targets works with a single process only", remedy="omit it")
    for name in (HIDDEN_COSINE, LAYER_MATCHING):
        if name in objectives:
            raise UserError(
                f"objective.{name} reads hidden states, for which the teacher computes every batch: storing its "
                "predictions has no effect",
                remedy=f"omit --targets, or pass --set objective.{name}=false",
            )


def learner_of(model: Model, recipe: Recipe) -> Learner:
    """Return a pretrained model with the head that soft targets imitate, if the recipe has them."""
    heads: dict[str, Objective] = {}
    name, settings = next(iter(recipe.all_objectives.items()))
    if SOFT_TARGETS in recipe.all_objectives and name in model.heads:
        head = settings.build(BuildContext(model.encoder, tokenizer_size=model.tokenizer.size))
        if not model.take(name, head):
            heads[name] = head
    return Learner(model.encoder, heads)


def check_student(student: Model, teacher: Model, source: str) -> None:
    """Raise an error if a teacher cannot read the batches of a student."""
    ours, theirs = student.encoder.settings, teacher.encoder.settings
    if why := vocabulary_difference(teacher, student):
        raise UserError(
            f"the vocabulary of the student is not that of {source}: {why}",
            remedy="across vocabularies only predictions of a task can be learned: pass --train",
        )
    if ours.summary != theirs.summary:
        raise UserError(
            f"{source} reads the vector of a text at its {theirs.summary} token, but the student at its {ours.summary} "
            "one, so that they frame texts differently",
            remedy="choose a student of the teacher's family: pass --layers N",
        )


def vocabulary_difference(teacher: Model, student: Model) -> str:
    """Return why the ids of a student are not those of a teacher; "" if they are."""
    if why := difference(teacher.tokenizer, student.tokenizer):
        return why
    sizes = student.tokenizer.size, teacher.tokenizer.size
    return "" if len(set(sizes)) == 1 else f"it has {sizes[0]:,} tokens instead of {sizes[1]:,}"


def check_corpus(teacher: Model, corpus: Corpus, recipe: Recipe, source: str) -> None:
    """Raise an error if a teacher cannot read the samples of a corpus."""
    why = difference(teacher.tokenizer, corpus.tokenizer)
    if why or corpus.tokenizer.size != teacher.tokenizer.size:
        raise UserError(
            f"the corpus was not built with the tokenizer of {source}" + (f": {why}" if why else ""),
            file=corpus.directory,
            remedy=f"rebuild it: unmask corpus build FILES --tokenizer {source} --out DIR",
        )
    longest, length = teacher.encoder.longest, max(stage.layout.length for stage in recipe.every_stage)
    if length > longest:
        raise UserError(
            f"the layout's length {length} exceeds the {longest} positions of {source}",
            remedy=f"pass --set layout.length={longest}",
        )
    if recipe.layout.num_streams:
        raise UserError("a teacher reads independent samples, not contiguous streams", remedy="choose another layout")
