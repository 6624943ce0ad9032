"""A corpus made from raw text inside a run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unmask.checkpoints.huggingface import read_settings
from unmask.corpus.build import build_corpus, check_sources
from unmask.corpus.corpus import Corpus, open_corpus
from unmask.errors import UserError
from unmask.model import find
from unmask.pretraining.checks import check_shape, check_vocabulary, check_words
from unmask.recipe import Recipe
from unmask.runs.directory import PREPARED, RunDirectory
from unmask.text.documents import Skipped, TextOptions, read_documents, refuse_none
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.train import PADDING, train_tokenizer


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
        check_shape(read_settings(find(init)), recipe, init)
    else:
        check_vocabulary(recipe.encoder, PADDING[recipe.tokenizer.kind])
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
        check_words(recipe, tokenizer)  # again where it trains; here before the corpus is built
        return build_corpus(paths, tokenizer, folder / "corpus", options=options, workers=workers, report=report)
