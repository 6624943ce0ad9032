"""RoBERTa's offset of positions, in settings, body and config."""

import pytest

from unmask.families.roberta import RobertaSettings, read_positions, write_positions

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_the_table_of_positions_has_additional_rows():
    body = RobertaSettings(**SHAPE, offset=3).build(20)
    assert body.state_dict()["embeddings.positions.weight"].shape == (15, 8)
    assert body.longest == 12
    with pytest.raises(ValueError, match="offset must be at least 1"):
        RobertaSettings(**SHAPE, offset=0)


def test_the_offset_follows_from_the_padding_id():
    settings = RobertaSettings(**SHAPE)
    assert settings.mismatch(1) == ""
    assert settings.mismatch(0) == "offset=1"


@pytest.mark.parametrize("offset", [1, 2, 5])
def test_positions_are_read_as_they_are_written(offset):
    settings = RobertaSettings(**SHAPE, offset=offset)
    config = write_positions(settings)
    assert config == {"max_position_embeddings": 12 + offset, "pad_token_id": offset - 1}
    assert read_positions(config, {"positions": 12 + offset}) == {"offset": offset, "positions": 12}


def test_a_config_without_positions_has_those_of_transformers():
    assert read_positions({}, {}) == {"offset": 2, "positions": 512}
    with pytest.raises(TypeError, match="pad_token_id must be an integer"):
        read_positions({"pad_token_id": None}, {})


def test_heads_have_gelu_and_dropout_before_the_dense_layer():
    head = RobertaSettings(**SHAPE, activation="relu", head_dropout=0.3).head
    assert (head.activation, head.lm_activation, head.pooler_dropout) == ("relu", "gelu", 0.3)
