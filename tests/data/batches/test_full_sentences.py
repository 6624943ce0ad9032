"""Sentences are packed across documents in order, and no token is lost or read twice."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings, FullSentencesSettings
from unmask.data.batches.samples import Cuts

from .conftest import cut_samples

CLS, SEP = 2, 3


def lengths(documents=50, longest=40):
    rng = np.random.default_rng(0)
    return [rng.integers(1, longest, rng.integers(1, 12)) for _ in range(documents)]


def tokens_of(documents, indices):
    return [int(token) for index in indices for sentence in documents.sentences(index) for token in sentence]


def check(layout, documents, length):
    order = np.random.default_rng(1).permutation(len(documents)).tolist()
    samples = cut_samples(layout, Frame(CLS, SEP), documents, order, np.random.default_rng(0))
    texts = [sample.ids[1:-1].tolist() for sample in samples]
    assert [token for text in texts for token in text if token != SEP] == tokens_of(documents, order)
    homes = {token: index for index in order for token in tokens_of(documents, [index])}
    starts = {int(sentence[0]): len(sentence) for index in order for sentence in documents.sentences(index)}
    crossed = 0
    for sample, text, following in zip(samples, texts, [*texts[1:], None], strict=True):
        assert (sample.ids[0], sample.ids[-1]) == (CLS, SEP)
        assert 3 <= len(sample) <= length
        assert not sample.segments.any()
        assert sample.positions["summary"].tolist() == [0]
        for index, token in enumerate(text):  # there is a separator at each end of a document, and nowhere else
            if token == SEP:
                crossed += 1
                assert homes[text[index - 1]] != homes[text[index + 1]]
            elif index and text[index - 1] != SEP:
                assert homes[text[index - 1]] == homes[token]
        if following is not None:  # the following text would not have fitted
            wanted = min(starts.get(following[0], length), length - 2) + (homes[text[-1]] != homes[following[0]])
            assert len(text) + wanted > length - 2
    return crossed


@pytest.mark.parametrize("length", [8, 20, 64, 200])
def test_sentences_are_packed_across_documents(written, length):
    layout = FullSentencesSettings(length=length)
    assert check(layout, written(lengths()), length) > 0


class LosesEnds(FullSentencesSettings, tag="loses_ends"):
    """Drops texts of at most three tokens."""

    def cut(self, frame, documents, indices, rng):
        cuts = super().cut(frame, documents, indices, rng)
        samples = np.split(cuts.pieces, cuts.first[1:-1])
        return Cuts.of([sample.tolist() for sample in samples if (sample[:, 2] - sample[:, 1]).sum() > 3])


class NoSeparators(FullSentencesSettings, tag="no_separators"):
    """Omits the separators between documents."""

    def samples(self, frame, texts, labels):
        return [frame.wrap(text[text != SEP]) for text in texts[0].split()]


@pytest.mark.parametrize("fault", [LosesEnds, NoSeparators])
def test_planted_faults_are_found(written, fault):
    with pytest.raises(AssertionError):
        check(fault(length=20), written(lengths()), 20)


@pytest.mark.parametrize("kind", [FullSentencesSettings, DocumentSentencesSettings])
def test_an_epoch_reads_each_token_once(corpus, kind):
    """Blocks are small here, so that samples end where a block ends."""
    source = kind(length=32).source(corpus.train, Frame(CLS, SEP), seed=0, block_tokens=500)
    assert source.num_blocks > 4
    samples, cursor = [], source.start
    while cursor[0] < 1:
        taken, cursor = source.take(cursor, sequences=1)
        samples += [sample for sample in taken if sample.key[0] == 0]
    ordinary = [token for sample in samples for token in sample.ids[1:-1].tolist() if token != SEP]
    assert sorted(ordinary) == sorted(
        token for token in tokens_of(corpus.train, range(len(corpus.train))) if token != SEP
    )
    again, _ = source.take(source.start, sequences=3)
    assert [sample.ids.tolist() for sample in again] == [sample.ids.tolist() for sample in samples[:3]]
