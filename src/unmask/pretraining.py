"""Pretrain an encoder on a corpus, from scratch or from a model that exists (adaptation).

corpus -> layout -> masking -> objectives -> the training loop -> RUN/model
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import torch

from unmask.batches.batch import Batch, Sample
from unmask.batches.chance import number
from unmask.batches.feed import Feed
from unmask.batches.ngram_masking import NgramMaskingSettings, WholeWordMaskingSettings
from unmask.batches.sentence_pairs import LABELS
from unmask.batches.span_masking import SpanMaskingSettings
from unmask.checkpoints.huggingface import read_settings
from unmask.corpus.build import build_corpus, check_sources
from unmask.corpus.corpus import Corpus, open_corpus
from unmask.encoders.transformer import Transformer, TransformerSettings
from unmask.errors import UserError
from unmask.model import Model, build_encoder, find, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective
from unmask.objectives.replaced_token import GENERATOR, ReplacedToken
from unmask.recipe import Recipe, write
from unmask.runs.directory import PREPARED, RunDirectory
from unmask.runs.display import Display
from unmask.runs.plots import plot_training
from unmask.runs.report import model_card, pretraining_report
from unmask.text.documents import Skipped, TextOptions, read_documents, refuse_none
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.tokenizer import Tokenizer
from unmask.tokenizers.train import PADDING, train_tokenizer
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
        _check_shape(base.encoder.settings, recipe, init)
        if base.tokenizer.sha256 != corpus.tokenizer.sha256:
            raise UserError(
                f"the corpus was built with another tokenizer than that of {init}",
                file=corpus.directory,
                remedy=f"build it again: unmask corpus build FILES --tokenizer {init} --out DIR",
            )
        recipe = msgspec.structs.replace(recipe, encoder=base.encoder.settings)
    _check_offset(recipe.encoder.offset, corpus.tokenizer.pad)
    for note in _check_words(recipe, corpus.tokenizer):
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
    _check_hidden(recipe, [feed.prepare()(sample.at(1.0)) for sample in samples])
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
            prepare=feed.prepare(),
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
        plot_training(run)
        run.report(pretraining_report(run, recipe.name, trainer.progress))
    display.say(f"model: {run.model}")
    return run.model


def build_learner(recipe: Recipe, vocabulary: int, base: Model | None) -> tuple[Learner, list[str]]:
    """Return encoder and objectives, and what had to be created because `base` lacks it."""
    encoder = build_encoder(recipe.encoder, vocabulary, seed=recipe.seed) if base is None else base.encoder
    torch.manual_seed(number(recipe.seed, "heads"))
    objectives = {
        name: settings.build(encoder.settings, encoder.vocabulary) for name, settings in recipe.objectives.items()
    }
    if base is None:
        return Learner(encoder, objectives), []
    lacking = [text for name, objective in objectives.items() if (text := _adopt(base, name, objective))]
    return Learner(encoder, objectives), [*base.created, *lacking]


def _adopt(base: Model, name: str, objective: Objective) -> str:
    """Put a model's head into an objective; return what it lacks: of a published ELECTRA only the generator."""
    if base.take(name, objective):
        return ""
    if not isinstance(objective, ReplacedToken) or name not in base.heads:
        return f"the {name} head"
    fresh = {f"generator.{part}": value for part, value in objective.generator.state_dict().items()}
    whole = replace(base, heads={name: {**fresh, **base.heads[name]}})
    whole.take(name, objective)
    return "the generator"


def guess(heldout: Sequence[Batch], token: int) -> dict[str, float]:
    """Return the accuracy of always saying the same: the most frequent token of the training text, where one is asked.

    Of a pair's two answers either is right in half of the cases.
    """
    reader = next(name for name in (GENERATOR, "causal_lm", "masked_lm") if name in (*heldout[0].counts, "masked_lm"))
    gold = torch.cat([batch.labels["next" if reader == "causal_lm" else "hidden"] for batch in heldout])
    metrics = {f"{reader}_accuracy": float((gold == token).float().mean())} if len(gold) else {}
    return metrics | {f"{name}_accuracy": 0.5 for name in LABELS.values() if name in heldout[0].labels}


def corpus_from_text(
    paths: Sequence[str | Path],
    recipe: Recipe,
    out: Path,
    *,
    init: str | Path | None = None,
    options: TextOptions | None = None,
    resume: bool = False,
    workers: int = 1,
    report: Callable[[str], None] = print,
) -> Corpus:
    """Make tokenizer and corpus inside a run directory that is about to start; on resume take the ones made then.

    Args:
        paths: raw files.
        recipe: its [tokenizer] is trained, unless `init` brings one.
        out: the run directory.
        init: MODEL that the run goes on from.
        options: how the files are read.
        resume: the corpus is there already.
        workers: processes that encode (see `build_corpus`).
        report: is told in a line what was done.

    Raises:
        UserError: the run is not empty (or, on resume, was started on other files), the files cannot be read twice
            (standard input), no text is in them, or recipe and `init` do not go together.
    """
    if resume:
        corpus = open_corpus(out / PREPARED / "corpus")
        if corpus.manifest.sources != [str(path) for path in paths]:
            raise UserError(
                f"this run was started on the text of {', '.join(corpus.manifest.sources)}",
                file=out,
                remedy="resume with the same command, or start another run",
            )
        return corpus
    if "-" in map(str, paths) and init is None:
        raise UserError(
            "standard input can be read only once, and --text reads it for the tokenizer and for the corpus",
            remedy="write it to a file first",
        )
    options = options or TextOptions()
    check_sources(paths, options)
    if init is not None:
        _check_shape(read_settings(find(init)), recipe, init)
    else:
        _check_offset(recipe.encoder.offset, PADDING[recipe.tokenizer.kind])
    with RunDirectory.reserved(out) as folder:
        if init is not None:
            tokenizer = load_tokenizer(find(init))
        else:
            settings = recipe.tokenizer
            report("training the tokenizer")
            documents = refuse_none(read_documents(paths, options, skipped := Skipped()), skipped)
            tokenizer = train_tokenizer(
                settings.kind, documents, size=settings.vocabulary, lowercase=settings.lowercase
            )
            tokenizer.save(folder / "tokenizer")
        _check_words(recipe, tokenizer)  # again where it trains; here before the corpus is built
        return build_corpus(paths, tokenizer, folder / "corpus", options=options, workers=workers, report=report)


def fingerprint(corpus: Corpus) -> str:
    """Return a digest of all that a corpus holds."""
    manifest = corpus.manifest
    return hashlib.sha256(msgspec.json.encode([manifest.tokenizer, manifest.train, manifest.heldout])).hexdigest()


def _check_offset(offset: int, pad: int) -> None:
    """Refuse positions that transformers would count otherwise: there they begin after the id of padding."""
    if offset and offset != pad + 1:
        raise UserError(
            f"encoder.offset is {offset}, but padding has the id {pad} in this vocabulary",
            remedy=f"pass --set encoder.offset={pad + 1}",
        )


def _check_words(recipe: Recipe, tokenizer: Tokenizer) -> list[str]:
    """Refuse to hide whole words where every piece is one; say it where several are hidden together.

    Returns:
        What the user should know.
    """
    masking = recipe.masking
    if not isinstance(masking, WholeWordMaskingSettings | NgramMaskingSettings | SpanMaskingSettings):
        return []
    if not tokenizer.begins_word(np.arange(tokenizer.size)).all():
        return []
    if isinstance(masking, WholeWordMaskingSettings) or masking.longest == 1:
        raise UserError(
            "in this vocabulary every piece is a word, so that whole words are single tokens",
            remedy="pass --set masking.kind=token, or train a vocabulary whose pieces go on words",
        )
    return ["in this vocabulary every piece is a word: what is hidden together is counted in tokens"]


def _check_hidden(recipe: Recipe, samples: Sequence[Sample]) -> None:
    """Refuse text in most samples of which, prepared as at the end of the run, nothing is hidden."""
    empty = sum(not len(sample.positions.get("hidden", [0])) for sample in samples)
    if 2 * empty <= len(samples):
        return
    if isinstance(recipe.masking, WholeWordMaskingSettings | NgramMaskingSettings):
        raise UserError(
            f"{empty} of the first {len(samples)} samples have no word that could be hidden whole: each is longer than "
            f"{recipe.masking.rate_at(1.0):.0%} of its text, as where words have no spaces between them",
            remedy="pass --set masking.kind=token (or span)",
        )
    raise UserError(
        f"{empty} of the first {len(samples)} samples have nothing to hide: the vocabulary does not know their text",
        remedy="train a tokenizer on it: unmask tokenizer train FILES --out DIR",
    )


def _check_shape(shape: TransformerSettings, recipe: Recipe, init: str | Path) -> None:
    """Refuse a model that reads in another direction than the recipe, or no sequences of its length."""
    if shape.causal != recipe.encoder.causal:
        reads = ("both sides", "from left to right")
        raise UserError(
            f"{init} reads {reads[shape.causal]}, the recipe {recipe.name} {reads[recipe.encoder.causal]}",
            remedy="take a recipe such as gpt-mini" if shape.causal else "take one such as bert-mini",
        )
    length = max(stage.length for stage in recipe.layout.all_stages)
    if length > shape.positions:
        raise UserError(
            f"the layout's length {length} exceeds the {shape.positions} positions of {init}",
            remedy=f"pass --set layout.length={shape.positions}",
        )
