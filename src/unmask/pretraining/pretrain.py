"""Pretrain an encoder on a corpus, from scratch or from a model that exists (adaptation).

corpus -> layout -> masking -> objectives -> the training loop -> RUN/model
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from unmask.batches.batch import Batch
from unmask.batches.feed import Feed
from unmask.batches.sentence_pairs import LABELS
from unmask.corpus.corpus import Corpus
from unmask.encoders.transformer import Transformer
from unmask.errors import UserError
from unmask.model import Model, load_model, save_model
from unmask.objectives.replaced_token import GENERATOR
from unmask.pretraining.checks import check_hidden, check_offset, check_shape, check_words
from unmask.pretraining.learner import build_learner
from unmask.recipe import Recipe
from unmask.runs.display import Display
from unmask.runs.plots import plot_training, try_to_draw
from unmask.runs.report import model_card, pretraining_report, warning
from unmask.settings import write
from unmask.training.evaluate import evaluate
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.version import __version__

HELDOUT_TOKENS = 40_000
"""How much of the held-out part each evaluation reads."""
LOOKED_AT = 64
"""So many samples show at the start whether there is something to hide."""


def pretrain(
    recipe: Recipe,
    corpus: Corpus,
    out: str | Path,
    *,
    init: str | Path | None = None,
    allow_pickle: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Pretrain and leave a run directory.

    Args:
        recipe: what to train; with `init` the body of that model stands in place of [encoder], dropout aside.
        corpus: text, with the tokenizer that it was built with.
        out: the run directory.
        init: MODEL to go on from; the corpus must have been built with its tokenizer.
        allow_pickle: let `init` hold pickled weights.
        resume: go on where the run in `out` stands.
        machine: device and precision; None chooses.
        quiet: print nothing.

    Returns:
        The model's directory, RUN/model.

    Raises:
        UserError: recipe, corpus, model and run do not go together.
        UnmaskError: the run broke off; it is saved.
    """
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.leads)
    machine = machine or choose_machine()
    base = None
    if init is not None:
        base = load_model(
            init,
            allow_pickle=allow_pickle,
            dropout=recipe.encoder.dropout,
            keep_head_dropout=True,
            seed=recipe.seed,
        )
        check_shape(base.encoder.settings, recipe, init)
        if base.tokenizer.sha256 != corpus.tokenizer.sha256:
            raise UserError(
                f"the corpus was built with another tokenizer than that of {init}",
                file=corpus.directory,
                remedy=f"build it again: unmask corpus build FILES --tokenizer {init} --out DIR",
            )
        recipe = msgspec.structs.replace(recipe, encoder=base.encoder.settings)
    check_offset(recipe.encoder, corpus.tokenizer.pad)
    for note in check_words(recipe, corpus.tokenizer):
        display.say(note)
    learner, created = build_learner(recipe, corpus.tokenizer.size, base)
    learner.to(machine.device)
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, learner.prepare)
    try:
        heldout = feed.heldout(corpus.heldout, HELDOUT_TOKENS)
    except UserError:  # a single document has no other one to draw a second text from
        heldout = []
        display.say("the held-out text is too short for this layout: nothing to evaluate on while training")
    source = feed.source(corpus.train)
    samples, _ = source.take(source.start, sequences=LOOKED_AT)  # refuses a corpus without samples
    prepare = feed.prepare()
    check_hidden(recipe, [prepare(sample.at(1.0)) for sample in samples])
    inputs = {
        "corpus": fingerprint(corpus),
        "init": "none" if base is None else base.fingerprint(),
    }
    with processes, open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run:
        if created:
            display.say(f"created, as {init} has it not: {', '.join(created)}")
        if heldout and not resume:
            run.log({"kind": "guess", "step": 0, **guess(heldout, corpus.manifest.most_frequent_token.id)})
        trainer = Trainer(
            learner,
            source,
            prepare=prepare,
            heldout=heldout,
            settings=recipe,
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
        if not processes.leads:
            return run.model
        metrics = evaluate(learner, heldout, machine) if heldout else {}
        heads = {name: part.published() for name, part in learner.parts.items()}
        about = f"Pretrained with unmask {__version__}: {', '.join(heads)}."
        assert isinstance(learner.encoder, Transformer)
        finished = Model(learner.encoder, corpus.tokenizer, heads)
        save_model(run.model, finished, model_card(recipe.name, about, metrics))
        shutil.rmtree(run.plots, ignore_errors=True)  # of an end that is no longer the end
        run.report(pretraining_report(run, recipe.name, trainer.progress))
        try_to_draw(lambda: plot_training(run), display.say)
        run.report(pretraining_report(run, recipe.name, trainer.progress))  # with the picture
    if warned := warning(metrics):
        display.say(warned)
    display.say(f"model: {run.model}")
    return run.model


def guess(heldout: Sequence[Batch], token: int) -> dict[str, float]:
    """Return the accuracy of always saying the same: the most frequent token of the training text, where one is asked.

    Of a pair's two answers either is right in half of the cases.
    """
    metrics = {}
    for reader, asked in ((GENERATOR, "hidden"), ("masked_lm", "hidden"), ("causal_lm", "next")):
        if sum(batch.counts.get(reader, 0) for batch in heldout):
            gold = torch.cat([batch.labels[asked] for batch in heldout])
            metrics[f"{reader}_accuracy"] = float((gold == token).float().mean())
    return metrics | {f"{name}_accuracy": 0.5 for name in LABELS.values() if name in heldout[0].labels}


def fingerprint(corpus: Corpus) -> str:
    """Return a digest of all that a corpus holds."""
    manifest = corpus.manifest
    return hashlib.sha256(msgspec.json.encode([manifest.tokenizer, manifest.train, manifest.heldout])).hexdigest()
