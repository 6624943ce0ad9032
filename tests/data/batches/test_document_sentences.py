"""Whole sentences of one document are packed in order, and no token is lost."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings

from .conftest import cut_samples

CLS, SEP = 2, 3


@pytest.mark.parametrize("length", [8, 20, 64])
def test_sentences_are_packed_in_order(written, length):
    rng = np.random.default_rng(0)
    documents = written([rng.integers(1, 40, rng.integers(1, 12)) for _ in range(50)])
    layout = DocumentSentencesSettings(length=length)
    for index in range(len(documents)):
        samples = cut_samples(layout, Frame(CLS, SEP), documents, [index], rng)
        sentences = documents.sentences(index)
        texts = [sample.ids[1:-1].tolist() for sample in samples]
        assert [token for text in texts for token in text] == np.concatenate(sentences).tolist()
        starts = {int(sentence[0]) for sentence in sentences}
        for sample, text, following in zip(samples, texts, [*texts[1:], None], strict=True):
            assert 3 <= len(sample) <= length
            assert (sample.ids[0], sample.ids[-1]) == (CLS, SEP)
            assert not sample.segments.any()
            assert sample.positions["summary"].tolist() == [0]
            if following is None:
                continue
            if following[0] in starts:  # a boundary: the next sentence (or its first part) would not have fitted
                sentence = next(s for s in sentences if s[0] == following[0])
                assert len(text) + min(len(sentence), length - 2) > length - 2
            else:  # a sentence longer than a sequence is split where a sequence is full
                assert len(text) == length - 2


def test_all_documents_asked_for_are_cut(written):
    documents = written([[3], [4], [5]])
    layout = DocumentSentencesSettings(length=16)
    samples = cut_samples(layout, Frame(CLS, SEP), documents, [2, 0], np.random.default_rng(0))
    assert [sample.ids[1:-1].tolist() for sample in samples] == [documents.sentences(i)[0].tolist() for i in (2, 0)]
