"""`unmask corpus report`: what a corpus consists of, and what to do about it, on one page.

The page is HTML that loads nothing and runs no script, since it shows texts of strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from unmask.data.corpus.corpus import open_corpus
from unmask.data.corpus.repeats import Repeated
from unmask.support.durable import replace_file
from unmask.support.errors import UserError, counted, printable
from unmask.support.messages import argument, in_command, rendered
from unmask.support.pictures import histogram
from unmask.training.runs.display import Display
from unmask.workflows.comparing.report import figure, report_page
from unmask.workflows.corpora.advice import Advice, advise, percent, short
from unmask.workflows.corpora.survey import Survey, survey

TEXTS, CHARACTERS = 12, 1500
"""How many texts are shown, and how many characters of each."""
SOURCES = 20
"""How many files are named."""


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


def as_page(survey: Survey, advice: Sequence[Advice]) -> str:
    """Return the report as HTML."""
    parts = [
        *_advice(advice),
        *_sizes(survey),
        *_lengths(survey),
        *_repeats(survey),
        *_lines(survey),
        *_languages(survey),
        *_hosts(survey),
        *_characters(survey),
        *_cleaning(survey),
        *_texts(survey),
        *_measured(survey),
    ]
    return report_page(f"Corpus {survey.name}", parts)


def _advice(advice: Sequence[Advice]) -> Iterable[str]:
    if not advice:
        yield '<div class="recommendation"><p>Nothing stands out.</p></div>'
    for each in advice:
        yield f'<div class="warning"><p><strong>{_shown(each.problem)}</strong></p><p>{_shown(each.remedy)}</p></div>'


def _sizes(survey: Survey) -> Iterable[str]:
    manifest, frequent = survey.manifest, survey.manifest.most_frequent_token
    rows = [
        (name, f"{part.documents:,}", f"{part.sentences:,}", f"{part.tokens:,}", f"{len(part.shards):,}")
        for name, part in (("train", manifest.train), ("heldout", manifest.heldout))
    ]
    yield "<h2>Sizes</h2>"
    yield _table(("part", "documents", "sentences", "tokens", "shards"), rows)
    token = f"<code>{escape(survey.frequent_token)}</code> is most frequent, with {percent(frequent.share)} of the text"
    yield f"<p>The vocabulary has {manifest.tokenizer.size:,} tokens, of which {token}.</p>"
    more = f" and {len(manifest.sources) - SOURCES:,} more" if len(manifest.sources) > SOURCES else ""
    yield f'<p class="muted">Made from {escape(", ".join(manifest.sources[:SOURCES]))}{more}.</p>'


def _lengths(survey: Survey) -> Iterable[str]:
    lengths = survey.lengths
    first = next(power for power, count in enumerate(lengths.powers) if count)
    powers = (2**power for power in range(first, len(lengths.powers)))
    starts = [f"{power}" if power < 1024 else f"{power // 1024} k" for power in powers]
    yield "<h2>Lengths of documents</h2>"
    yield figure(
        histogram(lengths.powers[first:], starts, "tokens of a document, from", "documents"),
        f"From {lengths.shortest:,} to {lengths.longest:,} tokens; median {lengths.median:,.0f}, "
        f"mean {lengths.mean:,.0f}.",
    )


def _repeats(survey: Survey) -> Iterable[str]:
    repeats, duplicates = survey.repeats, survey.duplicates
    near = duplicates.near / max(1, duplicates.compared)
    whole = duplicates.compared == survey.manifest.train.documents
    among = "of all documents" if whole else f"of {duplicates.compared:,} documents; among all, at least as many"
    sample = "" if duplicates.sample == 1 else f", estimated from {percent(duplicates.sample)} of the different ones"
    passages = "" if repeats.passage_sample == 1 else f", estimated from {percent(repeats.passage_sample)} of them"
    read = "" if repeats.tokens == survey.manifest.train.tokens else f" in {repeats.tokens / 1e6:,.0f} million tokens"
    yield "<h2>Duplicates</h2>"
    yield _table(
        ("what", "share", ""),
        [
            ("documents that equal an earlier one", percent(duplicates.equal), f"of all documents{sample}"),
            ("documents that nearly equal another one", percent(near), among),
            (
                "passages of 50 tokens that occurred before",
                percent(repeats.passages),
                f"of all{read}{passages}",
            ),
        ],
    )
    if repeats.frequent_passages:
        yield "<details><summary>Passages that occur most often</summary>"
        yield _repeated(repeats.frequent_passages)
        yield "</details>"


def _lines(survey: Survey) -> Iterable[str]:
    repeats = survey.repeats
    yield "<h2>Sentences, lines and n-grams that are everywhere</h2>"
    if repeats.frequent_sentences:
        lacking = f", and counts may be too small by {repeats.lacking:,}" if repeats.lacking else ""
        yield (
            f"<p>{percent(repeats.frequent_share)} of the tokens are in sentences that occur again and again: at least "
            f"ten times, and one in 10,000 of all {repeats.sentences:,} sentences{lacking}. Those with most tokens "
            "together:</p>"
        )
        yield _repeated(repeats.frequent_sentences)
    else:
        yield "<p>No sentence occurs again and again.</p>"
    for what, parts in (("Lines", survey.lines), ("N-grams of five words", survey.ngrams)):
        if parts:
            yield f"<p>{what} that are in most documents, of {len(survey.texts):,}:</p>"
            yield _table(("documents", ""), [(f"{count:,}", short(part, 200)) for part, count in parts], text=True)


def _languages(survey: Survey) -> Iterable[str]:
    yield "<h2>Languages</h2>"
    if survey.no_languages:
        yield f"<p>Not identified: {_shown(survey.no_languages)}.</p>"
    else:
        yield _bars("language", survey.languages[:SOURCES], len(survey.texts))


def _hosts(survey: Survey) -> Iterable[str]:
    if survey.located:
        yield "<h2>Hosts</h2>"
        yield (
            f"<p>{survey.located:,} of {len(survey.texts):,} documents have an address, on "
            f"{counted(survey.num_hosts, 'host')}.</p>"
        )
        yield _bars("host", survey.hosts, len(survey.texts))


def _characters(survey: Survey) -> Iterable[str]:
    repeats = survey.repeats
    yield "<h2>What the vocabulary lacks</h2>"
    yield f"<p>{percent(repeats.unknown / max(1, repeats.tokens))} of the tokens are unknown to it.</p>"
    if survey.missing is None and survey.are_decoded:
        yield "<p>Which characters it lacks is not known, as the corpus keeps no texts.</p>"
    elif survey.missing is None:
        yield "<p>It has whole words; their characters are read whatever they are.</p>"
    elif survey.missing.characters:
        yield f"<p>{percent(survey.missing.share)} of the characters are not covered, most of all:</p>"
        listed = (
            f"{escape(printable(character))} <small>U+{ord(character):04X}, {count:,}</small>"
            for character, count in survey.missing.characters
        )
        yield f'<p dir="ltr">{" · ".join(listed)}</p>'
    else:
        yield "<p>It covers all characters of the sampled texts.</p>"


def _cleaning(survey: Survey) -> Iterable[str]:
    yield "<h2>Cleaning</h2>"
    lines = list(survey.tally.lines())
    if lines:
        yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    else:
        yield "<p>The text was not cleaned.</p>"
    if not survey.rules:
        return
    number = len(survey.texts)
    yield f"<p>What rules for pages in English would do to {counted(number, 'document')}, each alone:</p>"
    rows = []
    for name, tally in survey.rules.items():
        reasons = sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))[:4]
        listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
        rows.append((name, f"{tally.documents:,}", f"{tally.changed:,}", listed))
    yield _table(("rule", "dropped", "changed", "reasons"), rows)


def _texts(survey: Survey) -> Iterable[str]:
    kind = "decoded tokens, as a model reads them" if survey.are_decoded else "as they were before they became tokens"
    yield f'<h2>Texts to read</h2><p class="muted">Chosen at random, {kind}.</p>'
    every = max(1, len(survey.texts) // TEXTS)
    for text in survey.texts[::every][:TEXTS]:
        more = "…" if len(text.text) > CHARACTERS else ""
        where = f'<div class="where">{escape(text.url)}</div>' if text.url else ""
        yield f'<article>{where}<div class="text" dir="auto">{escape(text.text[:CHARACTERS])}{more}</div></article>'


def _measured(survey: Survey) -> Iterable[str]:
    repeats, number = survey.repeats, len(survey.texts)
    train = survey.manifest.train
    yield (
        '<p class="muted">How this was measured: sizes, lengths and equal documents on all '
        f"{train.documents:,} training documents; repeated sentences and passages on {repeats.documents:,} of them; "
        f"nearly equal ones among {survey.duplicates.compared:,}, by the first 4,000 tokens of each; languages, hosts, "
        f"characters, lines, n-grams and rules on a sample of {number:,}"
        f"{'' if survey.are_decoded else ', of which only the first 10,000 characters are kept'}.</p>"
    )


def _repeated(parts: Sequence[Repeated]) -> str:
    rows = [(f"{part.count:,}", f"{part.tokens:,}", short(part.text, 300)) for part in parts]
    return _table(("times", "tokens", ""), rows, text=True)


def _bars(what: str, counts: Sequence[tuple[str, int]], total: int) -> str:
    """Return a table of names with bars, whose widths are shares of the largest count."""
    most = max((count for _, count in counts), default=1)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{count:,}</td><td class="number">{percent(count / total)}</td>'
        f'<td><span class="bar" style="width: {6 * count / most:.2f}rem"></span></td></tr>'
        for name, count in counts
    )
    head = f'<tr><th>{what}</th><th class="number">documents</th><th></th><th></th></tr>'
    return f'<div class="scroll narrow"><table>{head}{rows}</table></div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, text: bool = False) -> str:
    """Return a table, whose columns of numbers are aligned; with `text`, the last column is text of the corpus."""
    last = len(heads) - 1
    attributes = [
        ' dir="auto"' if text and number == last else ' class="number"' if rows[0][number][:1].isdigit() else ""
        for number in range(len(heads))
    ]

    def row(kind: str, cells: Sequence[str]) -> str:
        shown = (escape(printable(cell)) for cell in cells)
        return "".join(f"<{kind}{attribute}>{cell}</{kind}>" for attribute, cell in zip(attributes, shown, strict=True))

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    return f'<div class="scroll narrow"><table><tr>{row("th", heads)}</tr>{body}</table></div>'


def _shown(text: str) -> str:
    """Return a message as HTML, with parameters as the command line writes them."""
    return escape(printable(rendered(text, in_command)))
