"""Windows [CLS] text [SEP] of a text in which a [SEP] ends each document."""

import numpy as np

from unmask.data.batches.frame import Frame
from unmask.data.batches.streams import ContiguousSettings

FRAME, TEXT = Frame(1, 2), ContiguousSettings(length=7, streams=1)


def test_documents_end_with_a_separator(written):
    documents = written([[3, 4], [1]])
    assert TEXT.sizes(documents).tolist() == [8, 2]
    assert TEXT.read(FRAME, documents.sentences(1)).tolist() == [17, 2]
    assert [len(TEXT.read(FRAME, documents.sentences(index))) for index in range(2)] == [8, 2]


def test_a_window_is_framed():
    assert TEXT.capacity(FRAME) == 5
    assert TEXT.window(FRAME, np.arange(10, 15), 0, None, None).ids.tolist() == [1, 10, 11, 12, 13, 14, 2]
