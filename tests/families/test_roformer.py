"""RoFormer's rotation in place of learned positions, and the table of it in directories."""

import math

import pytest
import torch

from unmask.families.roformer import (
    SINUSOIDS,
    RoFormerSettings,
    read_embedding,
    sinusoids,
    without_sinusoids,
    write_embedding,
)

SHAPE = {"layers": 1, "width": 8, "heads": 2, "feed_forward": 16, "positions": 12}


def test_the_body_has_no_table_of_positions():
    settings = RoFormerSettings(**SHAPE)
    assert settings.rotation.interleaved
    body = settings.build(20)
    assert body.longest == 12
    assert not any("positions" in name for name in body.state_dict())
    with pytest.raises(ValueError, match="rotary positions require heads of even width, not 3"):
        RoFormerSettings(**SHAPE | {"width": 6})


def test_the_table_is_that_of_the_paper():
    """Equation 15: the angle of position m in pair i of dimensions is m * 10000 ** (-2 i / d)."""
    table = sinusoids(RoFormerSettings(**SHAPE))[SINUSOIDS]
    assert table.shape == (12, 4)
    expected = [[f(m / 10000 ** (i / 2)) for f in (math.sin, math.cos) for i in range(2)] for m in range(12)]
    torch.testing.assert_close(table, torch.tensor(expected))


def test_another_table_is_refused_and_one_in_float16_is_not():
    settings = RoFormerSettings(**SHAPE)
    table = sinusoids(settings)
    assert without_sinusoids(settings, {}) is settings
    assert without_sinusoids(settings, {SINUSOIDS: table[SINUSOIDS].half()}) is settings
    with pytest.raises(ValueError, match=r"encoder\.embed_positions\.weight is not the table of rotary positions"):
        without_sinusoids(settings, {SINUSOIDS: table[SINUSOIDS].flip(0)})


@pytest.mark.parametrize("embedding", [None, 4])
def test_the_width_of_embeddings_is_read_as_it_is_written(embedding):
    settings = RoFormerSettings(**SHAPE, embedding=embedding)
    config = write_embedding(settings)
    assert config == {"embedding_size": embedding or 8, "rotary_value": False}
    assert read_embedding(config, {"width": 8}) == {"embedding": embedding}
    assert RoFormerSettings(**SHAPE, embedding=8) == RoFormerSettings(**SHAPE)


def test_rotated_values_are_refused():
    with pytest.raises(TypeError, match="values are rotated too"):
        read_embedding({"rotary_value": True}, {"width": 8})
