"""DistilBERT's settings and body."""

import pytest

from unmask.families.distilbert import DistilBertSettings

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_the_body_has_no_segments():
    settings = DistilBertSettings(**SHAPE)
    assert settings.segments == 0
    names = settings.build(20).state_dict().keys()
    assert "embeddings.positions.weight" in names and "embeddings.segments.weight" not in names


def test_dropout_of_heads_of_texts_and_of_tokens_differs():
    head = DistilBertSettings(**SHAPE, dropout=0.1, head_dropout=0.2).head
    assert (head.dropout, head.token_dropout, head.epsilon) == (0.2, 0.1, 1e-12)


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="feed_forward must be at least 1"):
        DistilBertSettings(**SHAPE | {"feed_forward": 0})
    with pytest.raises(TypeError, match="segments"):
        DistilBertSettings(**SHAPE, segments=2)
