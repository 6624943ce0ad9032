"""RoFormer's rotation in place of learned positions, and the table of it in directories."""

import math
from functools import partial

import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.families.modernbert import ModernBertSettings
from unmask.families.roformer import (
    SINUSOIDS,
    RoFormerSettings,
    read,
    sinusoids,
    without_sinusoids,
    write,
)
from unmask.nn.encoders.encoder import Keep
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext

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
    table = sinusoids(RoFormerSettings(**SHAPE))
    assert table.shape == (12, 4)
    expected = [[f(m / 10000 ** (i / 2)) for f in (math.sin, math.cos) for i in range(2)] for m in range(12)]
    torch.testing.assert_close(table, torch.tensor(expected))


def test_another_table_is_refused_and_one_in_float16_is_not():
    settings = RoFormerSettings(**SHAPE)
    table = sinusoids(settings)
    assert without_sinusoids(settings, {}) == (settings, {})
    assert without_sinusoids(settings, {SINUSOIDS: table.half()}) == (settings, {})
    with pytest.raises(ValueError, match=r"encoder\.embed_positions\.weight is not the table of rotary positions"):
        without_sinusoids(settings, {SINUSOIDS: table.flip(0)})


@pytest.mark.parametrize("embedding", [None, 4])
def test_the_width_of_embeddings_is_read_as_it_is_written(embedding):
    settings = RoFormerSettings(**SHAPE, embedding=embedding)
    config = write(settings)
    assert config == {"embedding_size": embedding or 8, "rotary_value": False}
    assert read(config, {"embedding": config["embedding_size"], "width": 8}) == {"embedding": embedding}
    assert RoFormerSettings(**SHAPE, embedding=8) == RoFormerSettings(**SHAPE)


def test_rotated_values_are_refused():
    with pytest.raises(TypeError, match="values are rotated too"):
        read({"rotary_value": True}, {"width": 8})


@pytest.mark.parametrize(
    "settings", [partial(RoFormerSettings, segments=1), partial(ModernBertSettings, attention_bias=True)]
)
def test_the_first_heads_of_a_new_body_attend_to_the_tokens_at_the_initial_offsets(settings):
    """Of every layer; the other heads attend to all tokens alike, as without initial offsets."""
    torch.manual_seed(0)
    shape = {"layers": 2, "width": 48, "heads": 3, "feed_forward": 16, "positions": 32}
    body = settings(**shape, initial_offsets=(-1, 1)).build(20).eval()
    tokens = collate([Sample(key=(0,), ids=torch.randint(20, (12,)).numpy())]).tokens
    for scores in body(tokens, Keep(scores=frozenset({1, 2}))).scores.values():
        chosen = scores[0][0].argmax(-1)  # (heads, queries)
        assert chosen[0, 1:].tolist() == list(range(11))
        assert chosen[1, :-1].tolist() == list(range(1, 12))
        assert scores[0][0, 2].softmax(-1).max() < 0.2
    assert not settings(**shape).build(20).blocks[0].attention.qkv.bias.any()


def test_more_initial_offsets_than_heads_are_refused():
    with pytest.raises(ValueError, match="initial_offsets has 3 offsets, but a layer has only 2 heads"):
        RoFormerSettings(**SHAPE, initial_offsets=(-1, 1, 2))


def test_narrower_layers_over_the_same_embeddings_start_alike():
    """Those of ELECTRA's generator."""
    body = RoFormerSettings(**SHAPE | {"width": 32}, initial_offsets=(-1,)).build(20)
    part = OBJECTIVES["replaced_token"](generator_size=0.5).build(BuildContext(body))
    assert all(block.attention.qkv.bias.any() for block in (*body.blocks, *part.generator.blocks))
