"""Pretraining as users call it: the recipe is chosen for the text, the corpus is made, and the run is started.

text -> recipe -> tokenizer and corpus -> search for a learning rate -> `pretrain_corpus`

Modules that import torch are imported in functions: the process that restarts a run after crashes does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.data.text.documents import TextOptions
from unmask.support.choices import Device, Documents, Files, Precision, as_files
from unmask.support.environment import num_cores, refuse_several_processes
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument, call, flags, setting
from unmask.support.settings import Overrides, flatten, to_table, with_minutes, write_line
from unmask.workflows.pretraining.restarts import restarted, started, supervise

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Corpus
    from unmask.recipes.recipe import Recipe


ALIKE = (
    *("layers", "extend", "search", "resume", "field", "documents", "strict", "encoding"),
    *("device", "precision", "deterministic"),
)
"""Parameters with which all processes that train together must be called alike."""


def pretrain(
    recipe: Recipe | str | Path | None = None,
    corpus: Corpus | str | Path | None = None,
    *,
    out: str | Path,
    text: Files = (),
    init: str | Path | None = None,
    allow_pickle: bool = False,
    layers: int | None = None,
    extend: int | None = None,
    general: Files = (),
    minutes: float | None = None,
    settings: Overrides | None = None,
    search: bool = False,
    resume: bool = False,
    restarts: int = 0,
    field: str = "text",
    documents: Documents = "auto",
    strict: bool = False,
    encoding: str | None = None,
    clean: Files = (),
    exclude_overlap: Files = (),
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    deterministic: bool = False,
    quiet: bool = False,
) -> Path:
    """Pretrain an encoder from scratch, or adapt an existing model.

    Args:
        recipe: name of a shipped recipe or a .toml file; by default the best one for the text, the machine and the
            budget, or with init the recipe adapt.
        corpus: training text with the tokenizer that it was built with: a directory of build_corpus,
            or its URL.
        out: run directory to write.
        text: files or URLs of raw text, in place of a corpus; the tokenizer and the corpus are created inside the run.
        init: model to start from, whose shape replaces that of the recipe: a run directory, Hugging Face model
            directory or name on the Hub, or directory of AllenNLP's ELMo.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        layers: with init, number of the model's layers to keep, at equal distances.
        extend: with init and text, extend the model's vocabulary by at most so many tokens learned from the text.
        general: with init, files of general text, of which the first part is scored before and after: whether a gain
            can be expected of adapting the model, what it forgets, and how many of its weights are kept so that this is
            little (initial_share).
        minutes: time to train (budget.minutes).
        settings: settings of the recipe to change, for example budget.steps=100.
        search: first try half, once and twice the learning rate, in short runs that take an eighth of the budget.
        resume: continue the run from its last checkpoint.
        restarts: after a crash, restart and resume at most so many times.
        field: field of JSON Lines that holds the text; a.b is b in the object a.
        documents: what counts as a document in plain text: a whole file, a block between blank lines, or a line; auto
            is blank-line for a single file, file for several.
        strict: stop at the first unreadable document instead of skipping it.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        clean: with text, rules by which documents are dropped or changed: web (those for English pages),
            gopher_quality, gopher_repetition, c4, fineweb, duplicates, near_duplicates, repeated_passages, boilerplate,
            repeated_lines, pii, or a .toml file with a table of settings for each, also [urls] and [language].
        exclude_overlap: with text, test files; documents that have 13 words in a row in common with them are dropped.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        deterministic: on a GPU, compute with kernels that give the same numbers each time, where torch has them; they
            are slower.
        quiet: print only results and errors.

    Returns:
        The directory of the trained model, RUN/model.

    Raises:
        UserError: recipe, corpus, model and run are not compatible, or a parameter has no effect.
        UnmaskError: training was aborted; the run is saved.
    """
    arguments = dict(locals())
    from unmask.training.runs.display import Display

    check_count("restarts", restarts, 0, 999)
    text, general, clean, exclude_overlap = map(as_files, (text, general, clean, exclude_overlap))
    settings = with_minutes(settings or {}, "budget.minutes", minutes)
    display = Display(quiet=quiet)
    if restarts:  # before torch is imported, so that no signal is missed
        supervise(_words(arguments), restarts, display.say)
        return Path(out) / "model"
    from unmask.data.cleaning.rules import read_rules
    from unmask.data.corpus.corpus import Corpus, open_corpus
    from unmask.data.text.record_files import fingerprint_source
    from unmask.model.directory import find, read_settings
    from unmask.recipes.recipe import as_recipe
    from unmask.support.fingerprint import fingerprint_path, fingerprint_values
    from unmask.training.machine import choose_machine
    from unmask.training.processes import Processes
    from unmask.training.restoring import check_agreement
    from unmask.workflows.pretraining.checks import (
        check_layers,
        check_shape,
        check_share,
        check_teacher,
        refuse_fixed,
    )
    from unmask.workflows.pretraining.default import SIZES, WEIGHT_DECAY, choose, describe_decay, for_model, limited
    from unmask.workflows.pretraining.pretrain import fingerprint, pretrain_corpus
    from unmask.workflows.pretraining.search import check_heldout, search_rate
    from unmask.workflows.pretraining.text_corpus import corpus_for_all, corpus_from_text

    run, reading, changes = Path(out), TextOptions(field, documents, strict, encoding), settings
    if corpus is not None:
        refuse_idle("on a corpus that is already built", clean=clean, exclude_overlap=exclude_overlap)
    _check_sources(
        corpus, text, init, extend, layers, reading, general=general, allow_pickle=allow_pickle, search=search
    )
    owner = "the corpus" if corpus is not None else "the model" if init else ""
    refuse_fixed(
        changes,
        encoder=argument("init") if init else "",
        tokenizer=owner and f"{owner} has its own tokenizer",
        layers=f"pass {argument('layers', 'N')} for fewer layers",
    )
    _check_share(changes, layers=layers, extend=extend)
    with Processes.launched() as processes:
        display = Display(quiet=quiet or not processes.is_main)
        check_agreement(processes, _decisive(arguments))
        machine = choose_machine(device, precision, workers, processes, deterministic=deterministic)
        resume = processes.broadcast(resume or (restarted() and started(run)))
        continues = processes.broadcast(resume and not recipe and (run / "recipe.toml").is_file())
        if continues:  # the recipe of the run is taken as it is
            planned = as_recipe(processes.lead(lambda: as_recipe(run / "recipe.toml")), changes)
        elif recipe:
            planned = as_recipe(recipe, changes)
        elif init:
            planned = for_model(init, changes)
        else:
            planned = as_recipe(SIZES[0], changes)
        check_agreement(processes, flatten(to_table(planned)))  # before the corpus is built
        check_teacher(planned, None)
        check_share(planned, init)
        if init:
            shape = read_settings(init)
            check_shape(shape, planned, init)
            if layers is not None:
                check_layers(shape, layers, init)
        named = bool(continues or recipe or init)
        if corpus is None:
            chosen = set() if named else {"kind", "vocabulary"}
            make = partial(
                corpus_from_text,
                text,
                planned,
                run,
                init=init,
                extend=extend,
                options=reading,
                rules=read_rules(clean, exclude_overlap),
                suited={name for name in chosen if f"tokenizer.{name}" not in flatten(changes)},
                resume=resume,
                workers=num_cores(),
                report=display.say,
            )
            corpus = corpus_for_all(processes, run, make)
        elif not isinstance(corpus, Corpus):
            corpus = open_corpus(corpus)
        if init and not (recipe or continues):
            planned = limited(planned, corpus.train.num_tokens, changes)
        if recipe and not (init or resume) and WEIGHT_DECAY not in flatten(changes):
            display.say(*processes.lead(partial(describe_decay, planned, corpus, machine, processes.size)))
        if not named:
            planned, lines = processes.lead(partial(choose, corpus, machine, planned, changes, processes.size))
            display.say(*lines)

        def train(trial: Recipe, folder: Path, again: bool) -> Path:
            return pretrain_corpus(
                trial,
                corpus,
                folder,
                init=init,
                layers=layers,
                general=general,
                allow_pickle=allow_pickle,
                resume=again,
                machine=machine,
                quiet=quiet,
            )

        if search and not continues:  # otherwise it has the rate that was found
            check_heldout(len(corpus.heldout))
            model = fingerprint_path(find(init)) if init else None
            inputs = {"corpus": fingerprint(corpus), "init": model, "precision": machine.precision}
            inputs |= {"layers": str(layers)} if layers else {}
            inputs |= {"general": fingerprint_values(list(map(fingerprint_source, general)))} if general else {}
            planned = search_rate(planned, run, train, display.say, inputs)
        return train(planned, run, resume)


def _decisive(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in the calls of all processes: not the paths, which may differ between hosts."""
    values = {argument(name): arguments[name] for name in ALIKE}
    given = {argument(name): "given" if arguments[name] else None for name in ("recipe", "corpus", "text", "init")}
    return {**values, **given}


def _words(arguments: dict[str, Any]) -> list[str]:
    """Return the command line of a call, for another process.

    Raises:
        UserError: an argument is an object in memory.
    """
    recipe, settings = arguments.pop("recipe"), arguments.pop("settings") or {}
    del arguments["restarts"]
    for name in ("recipe", "corpus"):
        if not isinstance(arguments.get(name, recipe), str | Path | None):
            raise UserError(f"a run with {argument('restarts')} reads its {name} from files", remedy="name the file")
    words = ["pretrain", *([] if recipe is None else [str(recipe)])]
    for name, value in arguments.items():
        if value is True or not (value is None or value is False or value in ((), [])):
            words += flags(name, value)
    for key, value in settings.items():
        words += flags("settings", write_line(key, value))
    return words


def _check_sources(
    corpus: Corpus | str | Path | None,
    text: Sequence[str | Path],
    init: str | Path | None,
    extend: int | None,
    layers: int | None,
    reading: TextOptions,
    *,
    general: Sequence[str | Path],
    allow_pickle: bool,
    search: bool,
) -> None:
    """Raise an error for parameters that have no effect, or that do not work with several processes."""
    if (corpus is None) == (not text):
        problem = "there is nothing to learn from" if corpus is None else "there are two sources of text"
        raise UserError(problem, remedy=f"pass either {argument('corpus')} or {argument('text')}")
    if search:
        refuse_several_processes("search", "search first, with one process")
    if corpus is not None:
        reason = "on a corpus that is already built"
        refuse_idle(reason, **reading.changed())
        remedy = f"extend its tokenizer with {call('tokenizer extend')}, and rebuild it"
        refuse_idle(reason, remedy, extend=extend is not None)
    if not init:
        reason = f"without {argument('init')}"
        refuse_idle(reason, allow_pickle=allow_pickle, general=general)
        refuse_idle(reason, f"pass {setting('encoder.layers', 'N')}", layers=layers is not None)
        refuse_idle(reason, f"pass {setting('tokenizer.vocabulary', 'N')}", extend=extend is not None)


def _check_share(settings: Overrides, **changed: int | None) -> None:
    """Raise an error if settings keep a share of initial weights that the trained ones cannot be mixed with."""
    share, names = flatten(settings).get("initial_share"), [argument(name) for name, value in changed.items() if value]
    if share and names:
        reason = f"with {names[0]}: all weights are the trained ones"
        raise UserError(f"{setting('initial_share', share)} has no effect {reason}", remedy="omit it")
