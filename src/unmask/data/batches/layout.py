"""The base class of layouts, and layouts of one text. A layout defines how samples are cut from documents.

Input: the recipe's [layout], and documents. Output: where samples are cut, which depends on the lengths of sentences
alone, the samples once their text is read, and the source of all of them in seeded order. Others have files of their
own, such as `sentence_pairs`.

**Single.** One sample per document: documents longer than a sequence are truncated at the end.

For texts that are short by nature (reviews, queries, notes), one per line.

**Full sentences.** Whole sentences packed up to the length, across document boundaries.

Input: documents. Output: samples [CLS] sentences [SEP], with an additional [SEP] at a document boundary inside. A
sentence longer than a whole sequence is split; no token is lost or read twice. Documents follow each other in the
seeded order of the epoch; a sample also ends where a block of documents ends (about 250,000 tokens).

Liu et al. 2019 (RoBERTa), section 4.2, FULL-SENTENCES.

**Document sentences.** Whole sentences of one document, packed up to the length: one text per sample.

Input: documents. Output: samples [CLS] sentences [SEP]. A sentence longer than a whole sequence is split.

Liu et al. 2019 (RoBERTa), section 4.2, DOC-SENTENCES.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.samples import Cuts
from unmask.data.batches.sources import CorpusSource, Source, Stage
from unmask.data.tokenizers.words import Ragged

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents


class LayoutSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that [layout] of a recipe has for every kind.

    Attributes:
        length: maximum tokens per sequence, including special tokens.
        offers: what this kind of layout can give to objectives, with the settings that enable it.
        without: the settings with which it gives nothing.
    """

    length: int

    kept = ("length",)
    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    without: ClassVar[Mapping[str, Any]] = {}

    @property
    def provides(self) -> frozenset[str]:
        """What it gives to objectives."""
        return frozenset()

    @property
    def requires(self) -> frozenset[str]:
        """What the encoder must give."""
        return frozenset()

    @property
    def num_streams(self) -> int:
        """Number of contiguous streams that a step reads a window of; 0 if samples are independent."""
        return 0

    @property
    def remember(self) -> int | None:
        """Number of a sample's first tokens that bodies with memory remember; None: all."""
        return None

    @abstractmethod
    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """Return where the samples of documents are cut; see `Layout`."""

    def samples(self, frame: Frame, texts: Sequence[Ragged], labels: np.ndarray) -> list[Sample]:
        """Return the samples of texts, or of pairs of them, that were cut; see `Layout`."""
        return frame.wrap_all(*texts)

    def source(self, documents: Documents, frame: Frame, *, seed: int, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource`."""
        layouts = [(Stage(share=1.0, length=self.length), self)]
        return CorpusSource(documents, layouts, frame, seed=seed, block_tokens=block_tokens)

    def heldout(self, num_tokens: int, batch_tokens: int) -> LayoutSettings:
        """Return the layout that cuts fixed evaluation batches.

        Args:
            num_tokens: approximate number of tokens in all of them.
            batch_tokens: maximum number of tokens in each.
        """
        return self


class SingleSettings(LayoutSettings, frozen=True, kw_only=True, tag="single"):
    """The recipe's [layout] for `kind = "single"`; see `LayoutSettings`."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """See `Layout`."""
        capacity = frame.capacity(self.length, texts=1)
        totals = [int(sizes.sum()) for sizes in documents.sentence_lengths(indices)]
        return Cuts.of([[(index, 0, min(total, capacity))] for index, total in zip(indices, totals, strict=True)])


class FullSentencesSettings(LayoutSettings, frozen=True, kw_only=True, tag="full_sentences"):
    """The recipe's [layout] for `kind = "full_sentences"`; see `LayoutSettings`."""

    across: ClassVar[bool] = True
    """Whether a sample goes on with the next document."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """See `Layout`."""
        if not len(indices):
            return Cuts.of([])
        capacity = frame.capacity(self.length, texts=1)
        sentences = documents.sentence_lengths(indices)
        counts = np.array(list(map(len, sentences)))  # (documents,)
        # A sentence consists of parts that fit. The tokens of all documents follow each other, as do the parts.
        whole = np.concatenate(sentences)  # (sentences,)
        parts = -(-whole // capacity)  # (sentences,), how many each has
        sizes = np.full(parts.sum(), capacity)  # (parts,)
        sizes[np.cumsum(parts) - 1] = whole - (parts - 1) * capacity
        last = np.cumsum(np.add.reduceat(parts, np.cumsum(counts) - counts))  # (documents,), the part after their last
        separators = np.zeros(len(sizes), int)  # (parts,), before each of them
        separators[last[:-1]] = 1
        ends = np.cumsum(sizes + separators)  # (parts,)
        full = np.searchsorted(ends, ends - sizes + capacity, side="right")  # (parts,), where samples from there end
        if not self.across:
            full = np.minimum(full, np.repeat(last, np.diff(last, prepend=0)))
        starts, following = [0], full.tolist()
        while starts[-1] < len(sizes):
            starts.append(following[starts[-1]])
        tokens = np.concatenate([[0], np.cumsum(sizes)])  # (parts + 1,)
        bounds = np.concatenate([[0], tokens[last]])  # (documents + 1,)
        first = tokens[starts]  # (samples + 1,), the first token of each sample
        pieces = np.union1d(first, bounds)  # (pieces + 1,), likewise
        document = np.searchsorted(bounds, pieces[:-1], side="right") - 1
        own = np.stack([np.array(indices)[document], pieces[:-1] - bounds[document], pieces[1:] - bounds[document]], 1)
        none = np.zeros(len(first) - 1, np.int64)
        return Cuts(own, np.searchsorted(pieces, first), none.astype(bool), none)


class DocumentSentencesSettings(FullSentencesSettings, frozen=True, kw_only=True, tag="document_sentences"):
    """The recipe's [layout] for `kind = "document_sentences"`; see `LayoutSettings`."""

    across = False
