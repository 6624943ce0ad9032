"""Documents in memory, made to measure."""

import numpy as np
import pytest


class Written:
    """What a layout reads of a corpus; every token is another one, so that each can be traced to its sentence."""

    def __init__(self, documents):
        self.documents = documents

    def __len__(self):
        return len(self.documents)

    @property
    def num_tokens(self):
        return sum(len(sentence) for document in self.documents for sentence in document)

    def lengths(self):
        return np.array([sum(map(len, document)) for document in self.documents])

    def sentences(self, index):
        return self.documents[index]


@pytest.fixture(scope="session")
def written():
    """Makes documents of sentences of given lengths, their tokens numbered from 10."""

    def write(lengths):
        counter, documents = 10, []
        for document in lengths:
            documents.append([])
            for length in document:
                documents[-1].append(np.arange(counter, counter + length, dtype=np.int32))
                counter += length
        return Written(documents)

    return write
