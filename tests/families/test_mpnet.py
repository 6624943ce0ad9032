"""MPNet's positions and biases, in settings, body and config."""

import pytest

from unmask.families.mpnet import MpnetSettings, read_distances, write_distances
from unmask.nn.encoders.encoder import NARROW_BLOCKS, SCORES

SHAPE = {"layers": 2, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_all_layers_read_one_table_of_biases():
    state = MpnetSettings(**SHAPE).build(20).state_dict()
    assert [name for name in state if "distances" in name] == ["embeddings.distances.weight"]
    assert state["embeddings.distances.weight"].shape == (32, 2)
    assert state["embeddings.positions.weight"].shape == (14, 8)


def test_a_generator_cannot_be_built_over_it_but_scores_are_given():
    provides = MpnetSettings(**SHAPE).provides
    assert NARROW_BLOCKS not in provides
    assert SCORES in provides


def test_positions_are_read_as_they_are_written():
    config = write_distances(MpnetSettings(**SHAPE))
    assert config == {"max_position_embeddings": 14, "pad_token_id": 1}
    assert read_distances(config, {"positions": 14}) == {"positions": 12}
    with pytest.raises(TypeError, match="relative_attention_num_buckets must be 32"):
        read_distances({"relative_attention_num_buckets": 64}, {})


def test_the_padding_id_is_1():
    assert MpnetSettings(**SHAPE).mismatch(1) == ""
    assert MpnetSettings(**SHAPE).mismatch(0) == "kind=bert"
