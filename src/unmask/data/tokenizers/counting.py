"""Counts of the words of a text of any length, in bounded memory.

Input: texts, or the counts of parts of a text. Output: the words and how often each occurs.

The counts are exact as long as the distinct words have at most `MOST_CHARACTERS` characters. Beyond that they become a
sample: a word that occurs n times is kept with probability min(1, n/t), with the count max(n, t), where t is the least
number with which half of the space is free again (threshold sampling: Duffield, Lund and Thorup 2005, "Learn more,
sample less", section 2). Frequent words keep their counts, and the expected count of each other word is its own, so
that the statistics of characters and of subwords from which vocabularies are trained remain unbiased, also in
languages that write no spaces, where most "words" are clauses that occur once. The sample depends on the texts alone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import tokenizers
from tokenizers import trainers

from unmask.support.errors import UserError, refuse_string

MOST_CHARACTERS = 1 << 24
"""Maximum number of characters of the distinct words that are counted; training needs about 1.5 GB for them."""
AT_ONCE = 1 << 24
"""Number of characters of the texts whose words are counted at a time."""
MOST_REPEATED = 1 << 28
"""Maximum number of words, counted as often as they occur, that a trainer is given; more are scaled down."""
_REPEATS = 10_000  # maximum number of words in a text for the trainer


class WordCounts:
    """Counts of words; see the module.

    Args:
        most: maximum number of characters of all distinct words.
        seed: of the samples.
    """

    def __init__(self, most: int = MOST_CHARACTERS, seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._most, self._characters, self._rng = most, 0, np.random.default_rng(seed)

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another part of the text."""
        self._characters += sum(len(word) for word in counts if word not in self.counts)
        self.counts.update(counts)
        if self._characters > self._most:
            self._thin()

    def _thin(self) -> None:
        """Keep a sample of the words that has half of the characters."""
        words = sorted(self.counts)
        counts, lengths = np.array([self.counts[word] for word in words]), np.array([*map(len, words)])
        low, high = 1, int(counts.max()) * len(words)
        while low < high:  # the least threshold that suffices
            threshold = (low + high) // 2
            enough = (np.minimum(1, counts / threshold) * lengths).sum() <= self._most / 2
            low, high = (low, threshold) if enough else (threshold + 1, high)
        kept = np.flatnonzero(self._rng.random(len(words)) * low < counts)
        self.counts = Counter({words[at]: max(int(counts[at]), low) for at in kept.tolist()})
        self._characters = int(lengths[kept].sum())


def count_words(library: tokenizers.Tokenizer, texts: Iterable[str], *, progress: bool) -> dict[str, int]:
    """Count the words into which a tokenizer of the library splits texts before it looks at its vocabulary.

    The library does it on all cores; the counts are in the trainer's pickled state. Its vocabulary is lost.
    """

    def split(part: list[str]) -> Mapping[str, int]:
        trainer = trainers.WordPieceTrainer(vocab_size=0, show_progress=False)
        library.train_from_iterator(part, trainer)
        words: dict[str, int] = json.loads(trainer.__getstate__())["WordPieceTrainer"]["bpe_trainer"]["words"]
        return words

    return count_parts(split, texts, progress=progress)


def count_parts(
    split: Callable[[list[str]], Mapping[str, int]],
    texts: Iterable[str],
    *,
    progress: bool,
    most: int = MOST_CHARACTERS,
) -> dict[str, int]:
    """Count the words of texts by a function that counts those of a list of texts; see `WordCounts` for `most`.

    Raises:
        UserError: the texts are a string.
    """
    refuse_string(texts)
    words, characters = WordCounts(most), 0
    for part in chunks(texts, AT_ONCE):
        words.add(split(part))
        characters += sum(map(len, part))
        if progress:
            print(f"\rcounting words: {characters / 1e6:,.0f} million characters", end="", file=sys.stderr, flush=True)
    if progress:
        print(file=sys.stderr)
    return dict(words.counts)


def no_text() -> UserError:
    """Return the error for texts without words."""
    return UserError("there is no text to train a tokenizer on")


def repeat(words: Mapping[str, int]) -> Iterator[str]:
    """Yield texts that contain each word as many times as it was counted, for a trainer that accepts only texts.

    Larger counts than a trainer needs are scaled down; words that are then rarer than half of one are left out.
    """
    scale = min(1.0, MOST_REPEATED / max(1, sum(words.values())))
    for word, count in sorted(words.items()):
        times = round(scale * count)
        for start in range(0, times, _REPEATS):
            yield f"{word} " * min(_REPEATS, times - start)


def chunks(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Yield texts in lists of at least so many characters, but for the last one."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= characters:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
