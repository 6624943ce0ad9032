"""What occurs again in a corpus: documents, passages of 50 tokens, and sentences.

Input: the documents of a part, as tokens. Output: shares, and what occurs most often, in bounded memory. Documents are
compared by their checksums and lengths, for which the index is read alone. Passages are all windows of `PASSAGE` tokens
within a document, the shortest that Lee et al. 2022 (arXiv 2107.06499, section 4.1) count as duplicated; sentences are
those of the corpus. Both are counted by hashes of 64 bits (hashes.py), so the number of different ones that are counted
at all, and by how much counts may be wrong, is part of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unmask.data.corpus.corpus import Corpus, DocumentBlock, Documents
from unmask.data.corpus.hashes import FrequentHashes, Hashes, HashSample, mixed, segment_hashes, window_starts
from unmask.data.tokenizers.tokenizer import Tokenizer

PASSAGE = 50
"""Number of tokens of a passage."""
ENOUGH = 100_000_000
"""Number of tokens that are read, about; of a larger corpus, blocks at equal distances."""
SHOWN = 12
"""How many of the most frequent sentences and passages are returned."""
FREQUENT, FREQUENT_SHARE = 10, 1e-4
"""How often a frequent sentence occurs at least, and as what share of all sentences."""
_PLACE = 32  # bits of a place that are the position in the document


@dataclass(frozen=True)
class Repeated:
    """A sentence or passage that occurs again and again.

    Attributes:
        count: how often it occurs.
        tokens: number of its tokens.
        text: its text, decoded.
    """

    count: int
    tokens: int
    text: str


@dataclass(frozen=True)
class Repeats:
    """What occurs again.

    Attributes:
        documents, tokens: what was read.
        unknown: number of unknown tokens.
        sentences: number of sentences.
        frequent_sentences: those frequent ones that have the most tokens together.
        frequent_share: share of the tokens in sentences that are frequent (`FREQUENT`, `FREQUENT_SHARE`).
        lacking: by how much the counts of sentences may be too small.
        passages: share of passages that occurred before.
        passage_sample: share of the different passages by which it is estimated.
        frequent_passages: those that occur most often among these, no two of which overlap.
    """

    documents: int
    tokens: int
    unknown: int
    sentences: int
    frequent_sentences: list[Repeated]
    frequent_share: float
    lacking: int
    passages: float
    passage_sample: float
    frequent_passages: list[Repeated]


def equal_documents(documents: Documents) -> HashSample:
    """Count documents by their content: `repeated` is the share of those that equal an earlier one."""
    counts = HashSample()
    for keys in document_keys(documents):
        counts.add(keys, np.zeros(len(keys), np.int64))
    return counts


def document_keys(documents: Documents) -> Iterator[Hashes]:
    """Yield a hash of each document, those of a shard at a time, from its checksum and its lengths.

    Two documents of the same lengths that differ have the same hash in one of four billion cases.
    """
    for tokens, sentences, checksums in documents.index():
        yield mixed(mixed(checksums) ^ mixed(mixed(tokens.astype(np.uint64)) + sentences.astype(np.uint64)))


def held_out_again(corpus: Corpus) -> int:
    """Return how many held-out documents equal a training document."""
    held = np.concatenate([np.zeros(0, np.uint64), *document_keys(corpus.heldout)])
    found = np.zeros(len(held), bool)
    for keys in document_keys(corpus.train) if len(held) else ():
        found |= np.isin(held, keys)
    return int(found.sum())


def count_repeats(documents: Documents, tokenizer: Tokenizer) -> Repeats:
    """Count what occurs again.

    Args:
        documents: the documents.
        tokenizer: that of the corpus.

    Raises:
        UserError: a document is damaged (the message names the file).
    """
    of_tokens = mixed(np.arange(tokenizer.size, dtype=np.uint64))
    passages, sentences = HashSample(), FrequentHashes()
    num_documents = num_tokens = unknown = 0
    for block in documents.blocks(ENOUGH):
        hashes = of_tokens[block.ids]
        starts = window_starts(block.documents, PASSAGE)
        passages.add(segment_hashes(hashes, starts, starts + PASSAGE), _places(block, starts))
        starts, ends = block.sentences[:-1], block.sentences[1:]
        sentences.add(segment_hashes(hashes, starts, ends), _places(block, starts))
        num_documents += len(block.documents) - 1
        num_tokens += len(block.ids)
        unknown += int((block.ids == tokenizer.unk).sum())
    frequent = [
        _sentence(documents, tokenizer, count, place)
        for count, place in sentences.most_frequent(round(1 / FREQUENT_SHARE))
        if count >= max(FREQUENT, FREQUENT_SHARE * sentences.total)
    ]
    frequent.sort(key=lambda each: -each.count * each.tokens)
    return Repeats(
        documents=num_documents,
        tokens=num_tokens,
        unknown=unknown,
        sentences=sentences.total,
        frequent_sentences=frequent[:SHOWN],
        frequent_share=sum(each.count * each.tokens for each in frequent) / max(1, num_tokens),
        lacking=sentences.lacking,
        passages=passages.repeated,
        passage_sample=passages.share,
        frequent_passages=_apart(documents, tokenizer, passages),
    )


def _places(block: DocumentBlock, starts: np.ndarray) -> np.ndarray:
    """Return places, (starts,): the index of the document in the upper bits, and the position in it."""
    rows = np.searchsorted(block.documents, starts, side="right") - 1
    return ((block.first + rows) << _PLACE) + starts - block.documents[rows]


def _tokens(documents: Documents, place: int) -> tuple[list[np.ndarray], int]:
    """Return the sentences of the document at a place, and the position in it."""
    return documents.sentences(place >> _PLACE), place & ((1 << _PLACE) - 1)


def _sentence(documents: Documents, tokenizer: Tokenizer, count: int, place: int) -> Repeated:
    """Return the sentence that starts at a place."""
    sentences, start = _tokens(documents, place)
    starts = np.cumsum([0, *map(len, sentences)])
    ids = sentences[int(np.searchsorted(starts, start))]
    return Repeated(count, len(ids), tokenizer.decode(ids))


def _apart(documents: Documents, tokenizer: Tokenizer, passages: HashSample) -> list[Repeated]:
    """Return the passages that occur most often, without those that overlap a more frequent one."""
    chosen: list[Repeated] = []
    places: list[int] = []
    for count, place in passages.most_frequent(PASSAGE * SHOWN * 4):
        if count < 2 or len(chosen) == SHOWN:
            break
        if any(abs(place - other) < PASSAGE for other in places):
            continue
        sentences, start = _tokens(documents, place)
        places.append(place)
        ids = np.concatenate(sentences)[start : start + PASSAGE]
        chosen.append(Repeated(count, PASSAGE, tokenizer.decode(ids)))
    return chosen
