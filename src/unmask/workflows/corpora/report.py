"""`unmask corpus report`: what a corpus consists of, and what to do about it, on one page."""

from __future__ import annotations

from pathlib import Path

from unmask.data.corpus.corpus import open_corpus
from unmask.support.durable import replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument, rendered
from unmask.training.runs.display import Display
from unmask.workflows.corpora.advice import Advice, advise
from unmask.workflows.corpora.page import as_page
from unmask.workflows.corpora.survey import survey


def report_corpus(
    directory: str | Path,
    *,
    out: str | Path,
    recipe: str | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> list[Advice]:
    """Report what a corpus consists of, on one HTML page, and what stands out.

    Sizes, lengths and equal documents are those of the whole corpus; the rest is measured on samples, as the page says,
    so that memory does not grow with the corpus.

    Args:
        directory: directory of a corpus.
        out: .html file to write.
        recipe: name of a recipe that is to be trained on it, or a .toml file, for which the text may be too little;
            by default the smallest one.
        seed: of the choice of samples.
        quiet: print only what stands out.

    Returns:
        What stands out, and what to do about each.

    Raises:
        UserError: there is no corpus, it is damaged, there is no such recipe, or the file is not named .html.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{argument('out', str(out))}: the report is an HTML page", remedy="name it .html")
    if Path(out).is_dir() or not Path(out).absolute().parent.is_dir():
        raise UserError("cannot be written", file=out, remedy="name a file in a folder that exists")
    corpus = open_corpus(directory)
    measured = survey(corpus, seed=seed)
    advice = advise(measured, recipe)
    replace_file(Path(out), as_page(measured, advice).encode("utf8", "replace"))
    Display(quiet=quiet).say(f"report: {out}")
    return [Advice(rendered(each.problem), rendered(each.remedy)) for each in advice]
