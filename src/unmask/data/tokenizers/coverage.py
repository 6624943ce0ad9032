"""The characters that a trained vocabulary covers.

A large text contains thousands of characters that hardly ever occur: letters of other scripts, symbols, damage. With
up to two tokens each, alone and within a word, they would take almost half of a vocabulary of 8,000 from longer words.
As in SentencePiece (`character_coverage`), the rarest ones are therefore left out and encoded as unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

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
    kept = set()
    for character, count in counts.most_common():
        if missing <= 0 and count < least:
            break
        kept.add(character)
        least, missing = count, missing - count
    return kept


def covered_words(words: Mapping[str, int], coverage: float = COVERAGE) -> dict[str, int]:
    """Return the words whose characters are all covered (see `covered_characters`)."""
    kept = covered_characters(words, coverage)
    return {word: count for word, count in words.items() if kept.issuperset(word)}
