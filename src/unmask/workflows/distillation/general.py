"""General distillation: a student learns from a pretrained teacher on raw text.

corpus -> layout -> masking -> objectives, which read the teacher's outputs -> the training loop -> RUN/model

It is pretraining with a teacher: everything after the student's initial weights is `train_encoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.masking import MASKED
from unmask.data.corpus.corpus import Corpus
from unmask.data.tokenizers.extend import difference
from unmask.model.model import Model, build_encoder, load_model
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.objectives.soft_targets import SoftTargetsSettings
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import Recipe
from unmask.support.errors import UserError
from unmask.support.messages import argument, call, setting
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display
from unmask.workflows.distillation.comparison import BASELINE, MANY, SAME_ALONE, measure, of_text, write_comparison
from unmask.workflows.distillation.student import student_of, student_settings, vocabulary_difference
from unmask.workflows.distillation.targets import StoringTeacher, TargetStore, check_targets
from unmask.workflows.pretraining.checks import check_shape, check_teacher
from unmask.workflows.pretraining.pretrain import HELDOUT_TOKENS, fingerprint, train_encoder
from unmask.workflows.pretraining.restarts import started
from unmask.workflows.pretraining.start import InitialWeights, build_learner, load_base


def distill_encoder(
    recipe: Recipe,
    teacher: str | Path,
    corpus: Corpus,
    out: str | Path,
    *,
    init: str | Path | None = None,
    layers: int | None = None,
    targets: str | Path | None = None,
    baseline: bool = False,
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
        baseline: whether to also train the same student without a teacher, in RUN/baseline, for the report.
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
    run = Path(out)
    with Processes.launched() as processes:
        machine = machine or choose_machine(processes=processes)
        display = Display(quiet=quiet or not processes.is_main)
        begin = partial(_begin, recipe, teacher, corpus, init, layers, allow_pickle)
        alone = without_teacher(recipe) if baseline else None
        model, start = begin()
        check_teacher(recipe, model)
        recipe = msgspec.structs.replace(
            recipe, encoder=start.model.encoder.settings if start.model else recipe.encoder
        )
        with _taught(model, recipe, corpus, targets) as taught:
            finished = train_encoder(
                recipe, corpus, run, start, teacher=taught, resume=resume, machine=machine, quiet=quiet
            )
        models = {"teacher": teacher, "student": run}
        if alone is not None:
            again = resume and started(run / BASELINE)
            display.say(SAME_ALONE)
            other = replace(begin()[1], how="Pretrained from the same weights, without a teacher,")
            train_encoder(alone, corpus, run / BASELINE, other, resume=again, machine=machine, quiet=quiet)
            models["without a teacher"] = run / BASELINE
        if processes.is_main:
            exact = replace(machine, precision="float32")
            loaded = {name: load_model(path, allow_pickle=allow_pickle) for name, path in models.items()}
            samples, batches = _heldout(recipe, corpus)
            subjects = [of_text(name, models[name], model, batches, exact) for name, model in loaded.items()]
            write_comparison(run, measure(subjects, samples), display.say)
        return finished


def _begin(
    recipe: Recipe,
    teacher: str | Path,
    corpus: Corpus,
    init: str | Path | None,
    layers: int | None,
    allow_pickle: bool,
) -> tuple[Model, InitialWeights]:
    """Return the teacher, and the student before it learns; see `distill_encoder`."""
    model = load_model(teacher, allow_pickle=allow_pickle, seed=recipe.seed)
    how = f"Distilled from {teacher} on {', '.join(corpus.manifest.sources)}"
    if init is None:
        shape = student_settings(recipe.encoder, model.encoder.settings, layers)
        student, about = student_of(model, shape, f"{teacher}", seed=recipe.seed)
        inputs = {"init": "none"}
    else:
        student = load_base(init, recipe, corpus, allow_pickle=allow_pickle)
        inputs, about = student.inputs("init"), f"the student continues from {init}"
    if getattr(student.encoder.settings, "memory", 0):
        student, about = without_memory(student), f"{about}; it has no memory, as samples are independent"
    check_student(student, model, f"{teacher}")
    check_corpus(model, corpus, f"{teacher}")
    check_samples(model, recipe, f"{teacher}")
    check_shape(student.encoder.settings, recipe, init or "the student")
    return model, InitialWeights(student, f"{init or teacher}", how, [about], inputs, tokens=student.tokens)


def check_distillation(
    recipe: Recipe,
    teacher: str | Path,
    init: str | Path | None = None,
    layers: int | None = None,
    *,
    allow_pickle: bool = False,
) -> None:
    """Check that a student can learn from a teacher, before there is a corpus; the arguments are those of
    `distill_encoder`.

    Raises:
        UserError: the teacher lacks what an objective learns from, or cannot read the batches of the student.
    """
    model = load_model(teacher, allow_pickle=allow_pickle, seed=recipe.seed)
    check_teacher(recipe, model)
    if init is None:
        shape = student_settings(recipe.encoder, model.encoder.settings, layers)
        student, _ = student_of(model, shape, f"{teacher}", seed=recipe.seed)
    else:
        student = load_model(init, allow_pickle=allow_pickle, seed=recipe.seed)
    if getattr(student.encoder.settings, "memory", 0):
        student = without_memory(student)
    check_student(student, model, f"{teacher}")
    check_shape(student.encoder.settings, recipe, init or "the student")
    recipe = msgspec.structs.replace(recipe, encoder=student.encoder.settings)
    build_learner(recipe, model.tokenizer.size, student, Teacher(learner_of(model, recipe)))
    check_samples(model, recipe, f"{teacher}")


def without_memory(model: Model) -> Model:
    """Return an XLNet that reads each sample by itself."""
    shape = msgspec.structs.replace(model.encoder.settings, memory=0, window=None)
    encoder = build_encoder(shape, model.encoder.vocabulary)
    encoder.load_state_dict(model.encoder.state_dict())
    return replace(model, encoder=encoder)


@contextmanager
def _taught(model: Model, recipe: Recipe, corpus: Corpus, targets: str | Path | None) -> Iterator[Teacher]:
    """Yield the teacher; at the end what it predicted is stored, if it is to be."""
    learner = learner_of(model, recipe)
    if targets is None:
        yield Teacher(learner)
        return
    check_targets(recipe.all_objectives)
    temperature = cast(SoftTargetsSettings, recipe.all_objectives[SOFT_TARGETS]).temperature
    of = {"teacher": model.fingerprint(), "corpus": fingerprint(corpus), "temperature": f"{temperature:g}"}
    store = TargetStore(targets, of)
    try:
        yield StoringTeacher(learner, store, temperature)
    finally:
        store.flush()


def without_teacher(recipe: Recipe) -> Recipe:
    """Return a recipe without the objectives that learn from a teacher.

    Raises:
        UserError: it has no others.
    """
    taught = [name for name, objective in recipe.all_objectives.items() if TEACHER in objective.requires]
    if len(taught) == len(recipe.all_objectives):
        raise UserError(
            f"without a teacher the recipe {recipe.name} has no objective, so that {argument('baseline')} has "
            "nothing to train",
            remedy="omit it",
        )
    return msgspec.structs.replace(recipe, objective=msgspec.structs.replace(recipe.objective, **dict.fromkeys(taught)))


def _heldout(recipe: Recipe, corpus: Corpus) -> tuple[list[Sample], list[Batch]]:
    """Return held-out samples, and batches of them with masked tokens, if the recipe masks any."""
    stage = recipe.every_stage[-1]
    documents = corpus.heldout if len(corpus.heldout) else corpus.train

    def count(sample: Sample) -> Sample:
        return sample.add(counts={"masked_lm": len(sample.labels[MASKED])} if MASKED in sample.labels else {})

    feed = Feed(stage.layout, stage.masking, recipe.seed, corpus.tokenizer, count, recipe.encoder.pretraining)
    source = feed.source(documents)
    samples, _ = source.take(source.start, sequences=MANY)
    masks = MASKED in stage.masking.provides
    return list(samples), feed.heldout(corpus.heldout, HELDOUT_TOKENS) if masks else []


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
    of_student, of_teacher = student.encoder.settings, teacher.encoder.settings
    if why := vocabulary_difference(teacher, student):
        raise UserError(
            f"the vocabulary of the student is not that of {source}: {why}",
            remedy=f"across vocabularies only predictions of a task can be learned: pass {argument('train')}",
        )
    if of_student.summary != of_teacher.summary:
        raise UserError(
            f"{source} reads the vector of a text at its {of_teacher.summary} token, but the student at its "
            f"{of_student.summary} one, so that they frame texts differently",
            remedy=f"choose a student of the teacher's family: pass {argument('layers', 'N')}",
        )
    if of_student.requires:
        raise UserError(
            f"the student needs {', '.join(sorted(of_student.requires))}, but on text a teacher reads independent "
            "samples",
            remedy="pretrain it without a teacher, or choose a student of another family",
        )


def check_corpus(teacher: Model, corpus: Corpus, source: str) -> None:
    """Raise an error if a teacher cannot read a corpus."""
    why = difference(teacher.tokenizer, corpus.tokenizer)
    if why or corpus.tokenizer.size != teacher.tokenizer.size:
        raise UserError(
            f"the corpus was not built with the tokenizer of {source}" + (f": {why}" if why else ""),
            file=corpus.place,
            remedy=f"rebuild it: {call('corpus build', 'FILES', tokenizer=source, out='DIR')}",
        )


def check_samples(teacher: Model, recipe: Recipe, source: str) -> None:
    """Raise an error if a teacher cannot read the samples of a recipe."""
    longest, length = teacher.encoder.longest, max(stage.layout.length for stage in recipe.every_stage)
    if length > longest:
        raise UserError(
            f"the layout's length {length} exceeds the {longest} positions of {source}",
            remedy=f"pass {setting('layout.length', longest)}",
        )
    if recipe.layout.num_streams:
        raise UserError(
            "a teacher reads independent samples, not contiguous streams",
            remedy=(
                f"pass {setting('layout.kind', 'document_sentences')}, or for an XLNet use the recipe distilxlnet-mini"
            ),
        )
