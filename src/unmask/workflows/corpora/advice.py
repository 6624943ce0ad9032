"""What stands out in a corpus, and what to do about it.

Input: a `Survey`. Output: warnings with remedies, the most serious first. Thresholds are rules of thumb: below them,
corpora that train well have such text, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.data.cleaning.published import STOP_WORDS
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import counted
from unmask.support.messages import argument, call
from unmask.workflows.corpora.survey import UNCERTAIN, Survey
from unmask.workflows.pretraining.default import PASSES, SIZES, rounded
from unmask.workflows.pretraining.search import cost

FREQUENT_LINES = 0.01
"""Share of the tokens in sentences that occur again and again; they are learned by heart, and hold the loss down."""
EQUAL, NEAR, PASSAGES = 0.02, 0.05, 0.05
"""Share of documents that equal another one, or nearly equal one of a sample, and of passages that occur again."""
BOILERPLATE = 0.05
"""Share of the sampled texts that have a line in common."""
FOREIGN = 0.05
"""Share of the sampled texts in other languages than the most frequent one."""
UNKNOWN, MISSING = 0.01, 0.002
"""Share of unknown tokens, and of characters that the vocabulary does not cover."""
DROPPED = 0.3
"""Share of the sampled texts that a rule for English pages would drop."""
ENGLISH = 0.02
"""Share of the words of texts in English that the most common ones have at least; in an encyclopedia they have 19 %."""
DIVIDED = 0.001
"""Share of the words that a hyphen divides; of printed prose, about one in a hundred is."""
SHORT = 16
"""Median length in tokens at which documents may be lines of longer ones."""
LARGE = 0.2
"""Share of the tokens in one document."""
FEWEST = 20
"""Number of sampled texts from which on shares mean something."""


@dataclass(frozen=True)
class Advice:
    """What stands out, and what to do about it."""

    problem: str
    remedy: str


def advise(survey: Survey, recipe: str | None = None) -> list[Advice]:
    """Return what stands out in a corpus.

    Args:
        survey: what it consists of.
        recipe: name of a recipe that is to be trained on it, or a .toml file; None: the shipped ones.

    Raises:
        UserError: there is no such recipe.
    """
    return [*_size(survey, recipe), *_vocabulary(survey), *_repeats(survey), *_texts(survey), *_shape(survey)]


def _size(survey: Survey, recipe: str | None) -> Iterator[Advice]:
    """Yield advice if a text is too small: read `PASSES` times, it needs a token per parameter of the layers."""
    tokens = survey.manifest.train.tokens
    name = recipe or SIZES[0]
    needed = cost(read_recipe(name)).inner / PASSES
    if tokens < needed:
        what = f"the recipe {name}" if recipe else "any of the shipped recipes"
        yield Advice(
            f"{counted(tokens, 'token')} are too little text for {what}: with {rounded(PASSES * needed)} "
            f"parameters in its layers, it needs {rounded(needed)} tokens, even if read {PASSES} times.",
            f"Add text, also general text ({call('corpus mix', 'CORPORA…')}), or adapt a model that exists "
            f"({argument('init', 'MODEL')}).",
        )


def _vocabulary(survey: Survey) -> Iterator[Advice]:
    unknown = survey.repeats.unknown / max(1, survey.repeats.tokens)
    missing = survey.missing.share if survey.missing else 0.0
    if unknown >= UNKNOWN or missing >= MISSING:
        examples = " ".join(character for character, _ in survey.missing.characters[:8]) if survey.missing else ""
        yield Advice(
            f"{percent(unknown)} of the tokens are unknown to the vocabulary, which reads all of them as the same"
            + (f"; it lacks for example {examples}" if examples else "")
            + ".",
            f"Train a vocabulary on this text ({call('tokenizer train', 'FILES…')}; a higher {argument('coverage')} "
            f"keeps rarer characters), extend this one ({call('tokenizer extend', 'FILES…')}), or remove the "
            "documents in other scripts.",
        )


def _repeats(survey: Survey) -> Iterator[Advice]:
    repeats, duplicates = survey.repeats, survey.duplicates
    near = duplicates.near / max(1, duplicates.compared)
    if duplicates.equal >= EQUAL:
        yield Advice(
            f"{percent(duplicates.equal)} of the documents equal an earlier one.",
            f"Build the corpus with {argument('clean', 'duplicates')}.",
        )
    if near >= NEAR:
        yield Advice(
            f"{percent(near)} of {duplicates.compared:,} documents nearly equal another one of them.",
            f"Build the corpus with {argument('clean', 'near_duplicates')}.",
        )
    if repeats.frequent_share >= FREQUENT_LINES:
        first = repeats.frequent_sentences[0]
        yield Advice(
            f"{percent(repeats.frequent_share)} of the tokens are in sentences that occur again and again, such as "
            f"“{short(first.text)}” ({first.count:,} times). A model learns them by heart: they hold the loss down, "
            "and teach it nothing else.",
            _clean_lines(survey),
        )
    if repeats.passages >= PASSAGES:
        yield Advice(
            f"{percent(repeats.passages)} of all passages of 50 tokens occurred before.",
            f"Build the corpus with {argument('clean', ['duplicates', 'near_duplicates', 'repeated_passages'])}.",
        )


def _texts(survey: Survey) -> Iterator[Advice]:
    """Yield advice about the sampled texts."""
    number = len(survey.texts)
    if number < FEWEST:
        return
    if survey.lines and survey.lines[0][1] >= BOILERPLATE * number:
        line, count = survey.lines[0]
        yield Advice(
            f"Boilerplate: the line “{short(line)}” is in {count:,} of {number:,} documents.",
            _clean_lines(survey),
        )
    divided = survey.divided
    if divided.count >= DIVIDED * divided.words > 0:
        written, _ = divided.frequent[0]
        yield Advice(
            f"At least {divided.count:,} of {counted(divided.words, 'word')} of the sampled texts are divided by a "
            f"hyphen, as at the end of a line: “{written}”.",
            "Join those in the files that occur undivided, too: others may be meant so, as “pre- and postwar”.",
        )
    languages = [(language, count) for language, count in survey.languages if language != UNCERTAIN]
    if languages:
        (main, count), *others = languages
        if sum(each for _, each in others) >= FOREIGN * number:
            listed = ", ".join(f"{language} {percent(each / number)}" for language, each in others[:5])
            yield Advice(
                f"Languages: {percent(count / number)} of the documents are in {main}, others in {listed}.",
                f"If that is not meant, keep one language: {argument('clean', 'rules.toml')}, with [language] and "
                f'keep = ["{main}"] in this file.',
            )
    is_english = languages[0][0] == "en" if languages else _has_english(survey)
    drops = {name: tally.documents / tally.judged for name, tally in survey.rules.items() if tally.judged}
    if is_english and drops and max(drops.values()) >= DROPPED and not survey.tally.documents:
        listed = ", ".join(f"{name} {percent(share)}" for name, share in drops.items() if share >= DROPPED)
        yield Advice(
            f"Rules for English pages would drop much of it ({listed}): lists, menus and fragments rather than prose.",
            f"Look at the texts below; if they are no prose, build the corpus with {argument('clean', 'web')}.",
        )


def _has_english(survey: Survey) -> bool:
    """Return whether the sampled texts, whose languages are not known, have common words of English."""
    words = [word.lower() for sampled in survey.texts for word in sampled.text.split()]
    return sum(word in STOP_WORDS for word in words) >= ENGLISH * len(words)


def _shape(survey: Survey) -> Iterator[Advice]:
    """Yield advice about documents and parts."""
    lengths, manifest = survey.lengths, survey.manifest
    if lengths.longest >= LARGE * manifest.train.tokens and manifest.train.documents > 1 / LARGE:
        yield Advice(
            f"One document has {percent(lengths.longest / manifest.train.tokens)} of the tokens.",
            f"If it is several documents in plain text, divide it ({argument('documents', 'blank-line')} or "
            f"{argument('documents', 'line')}).",
        )
    if lengths.median <= SHORT and manifest.train.documents > 1:
        yield Advice(
            f"Half of the documents have at most {lengths.median:g} tokens: sequences will be short or cross "
            "documents, and nothing can be learned from one sentence about the next.",
            f"If lines are parts of longer documents, pass {argument('documents', 'file')} or "
            f"{argument('documents', 'blank-line')}.",
        )
    if not manifest.heldout.documents:
        yield Advice(
            "No documents are held out, so the loss on unseen text will not be known.",
            f"Build the corpus with {argument('heldout', 'FILES…')}, or from at least two documents.",
        )
    skipped = manifest.skipped.count
    if skipped > 0.01 * (manifest.train.documents + skipped):
        yield Advice(
            f"{counted(skipped, 'document')} could not be read, the first: {manifest.skipped.places[0]}.",
            "Repair the files, or pass the encoding or field that they have.",
        )


def _clean_lines(survey: Survey) -> str:
    """Return which rules remove lines, without those that were applied."""
    rules = {
        "boilerplate": "lines on many pages of a host, where addresses are known",
        "repeated_lines": "all lines that occurred before",
    }
    ways = [f"{argument('clean', name)} ({what})" for name, what in rules.items() if name not in survey.tally.rules]
    return f"Build the corpus with {' or '.join(ways)}." if ways else "Remove them from the files."


def percent(share: float) -> str:
    """Return a share with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def short(text: str, most: int = 60) -> str:
    """Return a text on one line, with an ellipsis after so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"
