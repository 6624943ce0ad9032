"""Windows [CLS] text [SEP] of a text in which a [SEP] ends each document."""

import numpy as np

from unmask.data.batches.frame import Frame
from unmask.data.batches.streams import ContiguousText

TEXT = ContiguousText(Frame(1, 2), 7)


def test_documents_end_with_a_separator(written):
    documents = written([[3, 4], [1]])
    assert TEXT.sizes(documents).tolist() == [8, 2]
    assert TEXT.read(documents.sentences(1)).tolist() == [17, 2]
    assert [len(TEXT.read(documents.sentences(index))) for index in range(2)] == [8, 2]


def test_a_window_is_framed():
    assert TEXT.capacity == 5
    assert TEXT.window(np.arange(10, 15), 0, None, None).ids.tolist() == [1, 10, 11, 12, 13, 14, 2]
