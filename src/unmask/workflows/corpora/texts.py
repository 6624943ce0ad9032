"""Texts of a corpus for people (`unmask corpus sample`): those that were sampled when it was built, or decoded tokens.

Decoded text is what a model reads: in a vocabulary without case all is lower-cased, and what the vocabulary lacks is
its unknown token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.sample import SampledText, read_sample
from unmask.support.errors import check_count
from unmask.training.runs.display import Display

FIRST = 4000
"""Number of tokens, from the start of a document, that are decoded."""


@dataclass(frozen=True)
class Texts:
    """A sample of the training documents.

    Attributes:
        texts: the documents.
        are_decoded: whether they are decoded tokens, because the corpus has no sample of its texts.
    """

    texts: list[SampledText]
    are_decoded: bool


def sample_corpus(directory: str | Path, *, count: int = 10, seed: int = 0, quiet: bool = False) -> list[SampledText]:
    """Draw texts from a corpus at random, to read.

    Texts are as they were before they became tokens, with their addresses, as far as the corpus keeps them: of 1,000
    documents, the first 10,000 characters. If more are asked for, or it keeps none, tokens are decoded.

    Args:
        directory: directory or URL of a corpus.
        count: number of documents.
        seed: of the choice.
        quiet: print only the texts.

    Returns:
        The texts, in the order of the corpus.

    Raises:
        UserError: there is no corpus, it is damaged, or the number is not positive.
    """
    check_count("count", count)
    corpus = open_corpus(directory)
    sample = sampled_texts(corpus, count, seed)
    kind = "decoded tokens, as a model reads them" if sample.are_decoded else "texts as they were before tokenization"
    Display(quiet=quiet).say(f"{len(sample.texts):,} of {len(corpus.train):,} training documents, {kind}")
    return sample.texts


def sampled_texts(corpus: Corpus, count: int, seed: int) -> Texts:
    """Return a random sample of texts: those that the corpus keeps, or if they are fewer than asked for, decoded ones.

    Args:
        corpus: the corpus.
        count: number of documents; all, if there are fewer.
        seed: of the choice.

    Raises:
        UserError: the sample or a document is damaged.
    """
    kept = read_sample(corpus.directory)
    if len(kept) < min(count, len(corpus.train)):
        return Texts([SampledText(text) for text in decoded_texts(corpus, count, seed)], True)
    return Texts([kept[index] for index in _choice(len(kept), count, seed)], False)


def decoded_texts(corpus: Corpus, count: int, seed: int) -> list[str]:
    """Return the starts of random training documents, decoded; see `sampled_texts`."""
    indices = _choice(len(corpus.train), count, seed)
    starts = (np.concatenate(corpus.train.sentences(index))[:FIRST] for index in indices)
    return [corpus.tokenizer.decode(ids) for ids in starts]


def _choice(size: int, count: int, seed: int) -> list[int]:
    """Return random numbers below `size`, in order."""
    rng = np.random.default_rng(seed)
    return sorted(rng.choice(size, min(size, count), replace=False, shuffle=False).tolist())
