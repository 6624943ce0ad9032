"""The tokens of framed texts have the spelling of the vocabulary and the offsets of the text."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.word_level import train_words
from unmask.inference.pooling import SPECIAL, frame_tokens
from unmask.support.errors import UserError


def spelled(tokens, *texts):
    """Return each token's text, or its name if it is special."""
    return [token.token if token.text == SPECIAL else texts[token.text][token.start : token.end] for token in tokens]


def test_a_pair_has_the_ids_of_its_frame(tokenizer):
    first, second = "The dogs see", "a cat."
    sample, tokens = frame_tokens(tokenizer, [first, second], 64)
    expected = Frame.of(tokenizer).wrap(tokenizer.encode(first), tokenizer.encode(second))
    assert np.array_equal(sample.ids, expected.ids)
    assert np.array_equal(sample.segments, expected.segments)
    assert [token.token for token in tokens] == tokenizer.tokens(sample.ids)
    assert "".join(spelled(tokens, first, second)).replace(" ", "") == "[CLS]Thedogssee[SEP]acat.[SEP]"
    assert {token.text for token in tokens} == {0, 1, SPECIAL}


@pytest.mark.parametrize(("summary", "expected"), [("extract", "[CLS] dog [MASK]"), ("last", "dog [SEP] [CLS]")])
def test_frames_of_other_families(tokenizer, monkeypatch, summary, expected):
    monkeypatch.setattr(tokenizer, "summary", summary)
    _, tokens = frame_tokens(tokenizer, ["dog"], 8)
    assert " ".join(spelled(tokens, "dog")) == expected


def test_words_that_are_read_as_characters_keep_their_offsets():
    words = train_words(["the dog sees the cat"], size=20)
    sample, tokens = frame_tokens(words, ["the zebra."], 8)
    assert sample.ids.ndim == 2
    assert spelled(tokens, "the zebra.")[1:-1] == ["the", "zebra", "."]
    assert [token.token for token in tokens][1:-1] == ["the", "zebra", "."]


def test_long_texts_and_invalid_unicode_are_refused(tokenizer):
    assert len(frame_tokens(tokenizer, ["dog dog dog"], 5)[1]) == 5
    with pytest.raises(UserError, match="6 tokens, but at most 5"):
        frame_tokens(tokenizer, ["dog dog dog dog"], 5)
    with pytest.raises(UserError):
        frame_tokens(tokenizer, ["\ud800"], 5)
