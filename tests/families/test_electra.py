"""ELECTRA's narrow embeddings and heads."""

import pytest

from unmask.families.bert import read_embedding, write_embedding
from unmask.families.electra import ElectraSettings

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_embeddings_as_wide_as_the_layers_are_not_projected():
    assert ElectraSettings(**SHAPE, embedding=8) == ElectraSettings(**SHAPE)
    assert ElectraSettings(**SHAPE, embedding=8).build(20).embeddings.project is None
    narrow = ElectraSettings(**SHAPE, embedding=4).build(20)
    assert narrow.embeddings.project.weight.shape == (8, 4)
    with pytest.raises(ValueError, match="embedding must be at least 1"):
        ElectraSettings(**SHAPE, embedding=0)


@pytest.mark.parametrize("embedding", [None, 4])
def test_the_width_is_read_as_it_is_written(embedding):
    settings = ElectraSettings(**SHAPE, embedding=embedding)
    config = write_embedding(settings)
    assert config == {"embedding_size": embedding or 8}
    assert read_embedding(config, {"embedding": config["embedding_size"], "width": 8}) == {"embedding": embedding}


def test_the_masked_lm_head_has_gelu_whatever_the_layers_have():
    head = ElectraSettings(**SHAPE, activation="relu", head_dropout=0.3).head
    assert (head.activation, head.lm_activation) == ("relu", "gelu")
    assert (head.dropout, head.pooler_dropout) == (0.3, 0.3)
