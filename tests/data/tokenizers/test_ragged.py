"""Tests of encoding many texts into one array: the ids are those of each text encoded by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.tokenizers import words
from unmask.data.tokenizers.train import train_vocabulary
from unmask.data.tokenizers.words import Ragged, encode_ragged, spans

PARTS = ["the dog", " ", "\t", "\u00a0", "é", "İ", "漢字", "[MASK]", "don't", "...", "x" * 101, "😀", "\u200b", "##s"]
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), max_size=6)


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def any_tokenizer(request, documents):
    return train_vocabulary(request.param, documents, size=350, lowercase=True)


@given(texts=TEXTS)
@pytest.mark.parametrize("many", [0, 1000], ids=["cache", "library"])
def test_ids_are_those_of_each_text(any_tokenizer, texts, many):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "MANY", many)
        ids, lengths = encode_ragged(any_tokenizer, texts)
    expected = [any_tokenizer.encode(text).tolist() for text in texts]
    assert [part.tolist() for part in np.split(ids, np.cumsum(lengths))[:-1]] == expected
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int64)


def test_only_many_texts_are_encoded_with_the_cache(any_tokenizer, monkeypatch):
    def refuse(texts):
        raise AssertionError("the library is asked")

    monkeypatch.setattr(any_tokenizer, "encode_many", refuse)
    texts = ["the dog"] * words.MANY
    if any_tokenizer.kind.name == "wordpiece":
        assert len(encode_ragged(any_tokenizer, texts).lengths) == len(texts)
    else:
        texts.pop()
    with pytest.raises(AssertionError, match="the library is asked"):
        encode_ragged(any_tokenizer, texts[1:])


def test_sequences_are_cut_at_their_ends():
    whole = Ragged(np.arange(7, dtype=np.int32), np.array([3, 0, 4]))
    assert whole.cut(np.array([3, 0, 4])) is whole
    ids, lengths = whole.cut(np.array([1, 0, 3]))
    assert ids.tolist() == [0, 3, 4, 5]
    assert lengths.tolist() == [1, 0, 3]
    assert spans(np.array([5, 9, 0]), np.array([2, 0, 3])).tolist() == [5, 6, 0, 1, 2]
    assert not len(spans(np.zeros(0, np.int64), np.zeros(0, np.int64)))
