"""How many test examples occur in the text that arms are trained on: such arms have seen what they are tested on.

Texts are compared by n-grams of eight words, as evaluations of large language models do (Brown et al. 2020, appendix C,
with 13; Touvron et al. 2023, section A.6, with 10); shorter texts by all of their words, if they have five or more.
Words are casefolded and without punctuation; in scripts without spaces, such as Chinese or Thai, a character is a word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from unmask.data.cleaning.overlap import comparable_words

LONGEST, SHORTEST = 8, 5
"""Number of words of an n-gram, and of the shortest text that is looked for."""
SHARE = 0.8
"""Share of an example's n-grams from which on it has been seen."""


def count_seen(documents: Iterable[str], examples: Sequence[Sequence[str]]) -> int:
    """Return the number of examples of which nearly all n-grams are in the documents.

    Args:
        documents: the text, read once.
        examples: the texts of each example, such as a pair; texts that are too short are not looked for.
    """
    owners: dict[tuple[str, ...], list[int]] = defaultdict(list)
    totals: list[int] = []
    for number, texts in enumerate(examples):
        grams = {gram for text in texts for gram in _grams(comparable_words(text))}
        totals.append(len(grams))
        for gram in grams:
            owners[gram].append(number)
    sizes = sorted({len(gram) for gram in owners})
    found: list[int] = [0] * len(totals)
    for document in documents:
        words = comparable_words(document)
        for size in sizes:
            for start in range(len(words) - size + 1):
                if owned := owners.pop(tuple(words[start : start + size]), None):
                    for number in owned:
                        found[number] += 1
    return sum(total > 0 and count >= SHARE * total for count, total in zip(found, totals, strict=True))


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the n-grams of a text: the text itself if it is short, none if it is too short."""
    if len(words) >= SHORTEST:
        size = min(LONGEST, len(words))
        for start in range(len(words) - size + 1):
            yield tuple(words[start : start + size])
