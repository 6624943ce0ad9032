"""Each document is one sample, truncated at its end."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import SingleSettings

from .conftest import cut_samples

CLS, SEP = 2, 3


def test_single_is_one_document_per_sample_truncated_at_its_end(written):
    documents = written([[3, 4], [30, 30], [1]])
    layout = SingleSettings(length=16)
    samples = cut_samples(layout, Frame(CLS, SEP), documents, [1, 2, 0], np.random.default_rng(0))
    for sample, index in zip(samples, [1, 2, 0], strict=True):
        assert sample.ids[1:-1].tolist() == np.concatenate(documents.sentences(index)).tolist()[:14]
        assert (sample.ids[0], sample.ids[-1], len(sample.positions["summary"])) == (CLS, SEP, 1)


@pytest.mark.parametrize(("tokens", "length"), [(13, 15), (14, 16), (15, 16), (60, 16)])
def test_a_sample_is_at_most_as_long_as_a_sequence(written, tokens, length):
    layout = SingleSettings(length=16)
    (sample,) = cut_samples(layout, Frame(CLS, SEP), written([[tokens]]), [0], np.random.default_rng(0))
    assert len(sample) == length
    assert not sample.segments.any()
