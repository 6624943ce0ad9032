"""`unmask corpus diff`: what two corpora have in common, and in what they differ.

Documents are compared by the checksums of their tokens and their lengths, so only between corpora of one vocabulary.
Words are those of random documents, decoded, and compared by the log-odds of their frequencies with a prior of both
corpora, in standard errors (Monroe et al. 2008, "Fightin' Words", equations 16, 20 and 22).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.cleaning.rule import Document
from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.repeats import document_keys
from unmask.workflows.corpora.texts import decoded_texts

READ = 2000
"""Number of documents of each corpus whose words are counted."""
COMPARED = 1 << 24
"""Number of documents of both corpora that are compared; of more, those with the smallest keys."""
WORDS = 20
"""Number of words that are named for each corpus."""
PRIOR = 1000.0
"""Number of words that the prior is worth."""


@dataclass(frozen=True)
class Side:
    """What one of the corpora has.

    Attributes:
        name: its directory.
        documents, tokens: of the train part.
        lengths: quantiles of the lengths of documents in tokens: 0.05, 0.25, 0.5, 0.75 and 0.95.
        different: number of different documents; None: not compared.
        alone: share of these that the other corpus does not have; None: not compared.
        words: words that are more frequent in it, with their numbers of occurrences per million words in it and in the
            other one.
    """

    name: str
    documents: int
    tokens: int
    lengths: list[float]
    different: int | None
    alone: float | None
    words: list[tuple[str, float, float]]


@dataclass(frozen=True)
class Difference:
    """How two corpora differ.

    Attributes:
        first, second: what each has.
        common: number of different documents that both have; None: not compared, as their vocabularies differ.
        sample: share of the different documents by which numbers of documents are estimated.
    """

    first: Side
    second: Side
    common: int | None
    sample: float


def diff_corpora(first: str | Path, second: str | Path, *, seed: int = 0) -> Difference:
    """Compare two corpora: documents that both have, lengths, and words that are more frequent in one of them.

    Args:
        first: directory of a corpus.
        second: directory of another one.
        seed: of the choice of documents whose words are counted.

    Raises:
        UserError: there is no corpus, or it is damaged.
    """
    corpora = [open_corpus(first), open_corpus(second)]
    counts = [_words(corpus, seed) for corpus in corpora]
    words = [_typical(counts[0], counts[1]), _typical(counts[1], counts[0])]
    different: list[int | None] = [None, None]
    alone: list[float | None] = [None, None]
    common, share = None, 1.0
    if corpora[0].manifest.tokenizer == corpora[1].manifest.tokenizer:
        (first_keys, second_keys), share = _keys(corpora)
        in_both = len(np.intersect1d(first_keys, second_keys, assume_unique=True))
        sizes = len(first_keys), len(second_keys)
        different = [round(size / share) for size in sizes]
        alone = [1 - in_both / max(1, size) for size in sizes]
        common = round(in_both / share)
    sides = [
        Side(
            name=str(corpus.place),
            documents=len(corpus.train),
            tokens=corpus.train.num_tokens,
            lengths=_quantiles(corpus),
            different=different[number],
            alone=alone[number],
            words=words[number],
        )
        for number, corpus in enumerate(corpora)
    ]
    return Difference(sides[0], sides[1], common, share)


def _keys(corpora: Sequence[Corpus]) -> tuple[list[np.ndarray], float]:
    """Return the keys of the different documents of each corpus, in order, and the share of them that these are."""
    share = min(1.0, COMPARED / max(1, sum(len(corpus.train) for corpus in corpora)))
    limit = np.uint64(min((1 << 64) - 1, int(share * (1 << 64))))
    keys = []
    for corpus in corpora:
        parts = [np.zeros(0, np.uint64), *(part[part <= limit] for part in document_keys(corpus.train))]
        keys.append(np.unique(np.concatenate(parts)))
    return keys, share


def _quantiles(corpus: Corpus) -> list[float]:
    every = 1 + len(corpus.train) // 10_000_000
    lengths = np.concatenate([tokens[::every].astype(np.int32) for tokens, _, _ in corpus.train.index()])
    return [float(value) for value in np.quantile(lengths, (0.05, 0.25, 0.5, 0.75, 0.95))]


def _words(corpus: Corpus, seed: int) -> Counter[str]:
    """Count the words of random documents."""
    counts: Counter[str] = Counter()
    for text in decoded_texts(corpus, READ, seed):
        counts.update(word for word in Document(text).words if any(map(str.isalpha, word)))
    return counts


def _typical(counts: Counter[str], others: Counter[str]) -> list[tuple[str, float, float]]:
    """Return the words that are more frequent in one text than in another, the most significant first."""
    total, other_total = counts.total(), others.total()
    scores = {}
    for word, count in counts.items():
        other = others[word]
        prior = PRIOR * (count + other) / (total + other_total)
        odds = math.log((count + prior) / (total + PRIOR - count - prior))
        other_odds = math.log((other + prior) / (other_total + PRIOR - other - prior))
        score = (odds - other_odds) / math.sqrt(1 / (count + prior) + 1 / (other + prior))
        if score > 3:  # standard errors
            scores[word] = score
    chosen = sorted(scores, key=lambda word: (-scores[word], word))[:WORDS]
    return [(word, 1e6 * counts[word] / total, 1e6 * others[word] / max(1, other_total)) for word in chosen]
