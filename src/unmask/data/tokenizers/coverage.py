"""The characters that a trained vocabulary covers.

A large text contains thousands of characters that hardly ever occur: letters of other scripts, symbols, damage. With
up to two tokens each, alone and within a word, they would take almost half of a vocabulary of 8,000 from longer words.
As in SentencePiece (`character_coverage`), the rarest ones are therefore left out and encoded as unknown.

The vocabulary that suits a text, if nothing else is asked for.

WordPiece takes what is between spaces for a word: a clause of Thai, Lao, Burmese or Khmer, or a protein, which it reads
as unknown if it has more than 100 characters. A text with such letters, or with much in such words, gets a unigram
vocabulary instead.

Each character but the rarest has a token, and another one within a word; a text with many characters therefore needs a
larger vocabulary, so that enough of it remains for longer tokens.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import numpy as np

from unmask.support.scripts import IDEOGRAPHS, OF_CLAUSES

COVERAGE = 0.9999
"""Share of the characters of a text, counted as often as they occur, that its vocabulary covers."""


def covered_characters(words: Mapping[str, int], coverage: float = COVERAGE) -> set[str]:
    """Return the most frequent characters that together make up at least a share of all.

    Of characters that are equally frequent all are returned, or none.

    Args:
        words: the words of a text and how often each occurs; characters by themselves are words, too.
        coverage: the share; 1 covers all.

    Raises:
        ValueError: the share is not above 0 and at most 1.
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"the coverage must be above 0 and at most 1, not {coverage}")
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    least, missing = 0, coverage * counts.total()
    covered = set()
    for character, count in counts.most_common():
        if missing <= 0 and count < least:
            break
        covered.add(character)
        least, missing = count, missing - count
    return covered


def covered_words(words: Mapping[str, int], coverage: float = COVERAGE) -> dict[str, int]:
    """Return the words whose characters are all covered (see `covered_characters`)."""
    covered = covered_characters(words, coverage)
    return {word: count for word, count in words.items() if covered.issuperset(word)}


UNSPACED = 0.05
"""Minimum share of letters of scripts without spaces between words, or of characters in words that are too long for
WordPiece, at which the vocabulary is unigram."""
LONGEST_WORD = 100
"""Maximum number of characters of a word that WordPiece reads; longer ones are unknown."""
LOST, FEWEST_LETTERS = 0.005, 1000
"""Share of the letters that lose a mark from which on users are told, and number of letters from which on it means
something; in English text some 0.1 % have accents."""
_LONG_WORD = re.compile(rf"[^\W_{IDEOGRAPHS}]{{{LONGEST_WORD + 1},}}")
_JOINERS = "\u200c\u200d"
ROUND = 500
BEGINNING = 5_000_000
"""Number of characters of a text that tell which vocabulary suits it."""


def suited_vocabulary(texts: Iterable[str], size: int) -> tuple[Literal["wordpiece", "unigram"], int]:
    """Return the kind of the vocabulary that suits a text, and its size with capitals and accents.

    Args:
        texts: all of the text, which is read once.
        size: the size that suffices for text with few characters.
    """
    too_long = 0

    def watched() -> Iterator[str]:
        nonlocal too_long
        for text in texts:
            too_long += sum(map(len, _long_words(text)))
            yield text

    characters = count_characters(watched())
    letters = {
        character: count for character, count in characters.items() if unicodedata.category(character)[0] in "LM"
    }
    of_clauses = sum(count for character, count in letters.items() if re.match(f"[{OF_CLAUSES}]", character))
    written = sum(count for character, count in characters.items() if not character.isspace())
    unspaced = 0 < of_clauses >= UNSPACED * sum(letters.values()) or 0 < too_long >= UNSPACED * written
    fixed = sum(1 if _stands_alone(character) else 2 for character in covered_characters(characters))
    return "unigram" if unspaced else "wordpiece", max(size, -(-(fixed + size // 2) // ROUND) * ROUND)


def lost_marks(characters: Mapping[str, int], normalize: Callable[[str], str]) -> dict[str, int]:
    """Return the characters that lose accents, vowels or joiners, the most frequent first, with their numbers.

    Vowels of Hindi, Thai, Arabic or Hebrew are marks to Unicode, as accents are; without joiners, parts of words of
    Persian and conjuncts of Sinhala become others.

    Args:
        characters: the characters of a text, and how often each occurs.
        normalize: what a vocabulary does to text first.
    """
    lost = {
        character: count
        for character, count in characters.items()
        if (marks := _marks(character)) and len(_marks(normalize(character))) < len(marks)
    }
    return dict(sorted(lost.items(), key=lambda item: -item[1]))


def _marks(text: str) -> list[str]:
    decomposed = unicodedata.normalize("NFD", text)
    return [mark for mark in decomposed if mark in _JOINERS or unicodedata.category(mark).startswith("M")]


def loss_note(texts: Iterable[str], normalize: Callable[[str], str]) -> str:
    """Return a sentence on the accents, vowels and joiners of texts that a vocabulary does not read; "": they are few.

    Args:
        texts: the texts.
        normalize: see `lost_marks`.
    """
    characters = count_characters(texts)
    lost = lost_marks(characters, normalize)
    letters = sum(count for character, count in characters.items() if character.isalpha() or _marks(character))
    if letters < FEWEST_LETTERS or sum(lost.values()) < LOST * letters:
        return ""
    share = f"{sum(lost.values()) / letters:.1%}"
    if lost.keys() <= set(_JOINERS):
        return (
            f"{share} of the characters of words are joiners, which WordPiece removes, as within words of Persian: to "
            "keep them, train a vocabulary of the kind unigram"
        )
    shown = [character for character in lost if character not in _JOINERS][:5]
    examples = " ".join("◌" * (_marks(character) == [character]) + character for character in shown)
    return (
        f"{share} of the letters lose accents or vowels ({examples}), as the vocabulary is lowercase: words that "
        "differ only in them become the same; to keep them, train it without lowercasing"
    )


def decomposition_note(texts: Iterable[str], normalize: Callable[[str], str]) -> str:
    """Return a sentence on letters of texts that a vocabulary learns apart from their marks (NFD); "": they are few.

    Args:
        texts: the texts.
        normalize: see `lost_marks`.
    """
    characters = apart = 0
    for text in texts:
        characters += len(text)
        if not unicodedata.is_normalized("NFC", text):
            apart += len(normalize(text)) - len(normalize(unicodedata.normalize("NFC", text)))
    if characters < FEWEST_LETTERS or apart < LOST * characters:
        return ""
    return (
        f"{apart / characters:.1%} of the characters are marks or letters that belong to the one before them: the text "
        "is in decomposed Unicode (NFD), and a vocabulary of it lacks the characters of composed text (NFC), as nearly "
        "all text is; compose it, in Python by unicodedata.normalize('NFC', text)"
    )


def beginning(texts: Iterable[str]) -> list[str]:
    """Return the first texts, until they have `BEGINNING` characters; of an iterator the others are left."""
    first, characters = [], 0
    for text in texts:
        first.append(text)
        characters += len(text)
        if characters >= BEGINNING:
            break
    return first


def count_characters(texts: Iterable[str]) -> dict[str, int]:
    """Count the characters of texts, ten times as fast as `Counter`."""
    counts = np.zeros(sys.maxunicode + 1, np.int64)
    for text in texts:
        of_text = np.bincount(np.frombuffer(text.encode("utf-32-le"), np.uint32))
        counts[: len(of_text)] += of_text
    return {chr(code): int(counts[code]) for code in counts.nonzero()[0]}


def _long_words(text: str) -> list[str]:
    """Return the words of a text that are too long for WordPiece, which also splits at punctuation and ideographs."""
    return [word for part in text.split() if len(part) > LONGEST_WORD for word in _LONG_WORD.findall(part)]


def _stands_alone(character: str) -> bool:
    """Return whether a character never continues a word: an ideograph, punctuation or a symbol."""
    return unicodedata.name(character, "").startswith("CJK") or unicodedata.category(character)[0] in "PSZC"
