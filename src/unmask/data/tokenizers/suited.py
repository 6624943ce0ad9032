"""The WordPiece vocabulary that suits a text, if nothing else is asked for.

Lowercasing also strips accents (BERT's normalizer), which decomposes syllables of Korean and drops vowels of Hindi.
So a vocabulary is lowercase only if the text has hardly any of these. Each character but the rarest has a token, and
another one within a word; a text with many characters therefore needs a larger vocabulary, so that enough of it
remains for longer tokens.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from unmask.data.tokenizers.coverage import covered_characters

MARKED = 0.005
"""Minimum share of accented letters at which accents, and so case, are kept: between English and Italian."""
ROUND = 500


def suited_vocabulary(texts: Iterable[str], size: int) -> tuple[int, bool]:
    """Return the size of the vocabulary, and whether it is lowercase.

    Args:
        texts: all of the text, which is read once.
        size: the size that suffices for text with few characters.
    """
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    letters = {one: count for one, count in characters.items() if unicodedata.category(one)[0] in "LM"}
    marked = sum(count for one, count in letters.items() if _is_marked(one))
    lowercase = marked < MARKED * max(1, sum(letters.values()))
    covered = covered_characters(characters)
    kept = {part for one in covered for part in (_stripped(one) if lowercase else one)}
    fixed = sum(1 if _stands_alone(one) else 2 for one in kept)
    return max(size, -(-(fixed + size // 2) // ROUND) * ROUND), lowercase


def _is_marked(letter: str) -> bool:
    return unicodedata.category(letter)[0] == "M" or unicodedata.normalize("NFD", letter) != letter


def _stripped(character: str) -> str:
    return unicodedata.normalize("NFD", character.lower())


def _stands_alone(character: str) -> bool:
    """Return whether a character never continues a word: an ideograph, punctuation or a symbol."""
    return unicodedata.name(character, "").startswith("CJK") or unicodedata.category(character)[0] in "PSZC"
