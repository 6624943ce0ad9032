"""Rotary positions compared with transformers and with the formula, and cached tables."""

import pytest
import torch
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb
from transformers.models.roformer.modeling_roformer import (
    RoFormerSelfAttention,
    RoFormerSinusoidalPositionalEmbedding,
)

from unmask.nn.layers import rotary
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.rotary import Rotation

ROTATIONS = [Rotation(), Rotation(base=160000.0), Rotation(interleaved=True), Rotation(base=50.0, interleaved=True)]


def formula(x, rotation):
    """Return each pair as a complex number, multiplied by exp(i m base^(-2i / width))."""
    length, width = x.shape[-2:]
    pairs = torch.arange(width).view(-1, 2) if rotation.interleaved else torch.arange(width).view(2, -1).t()
    speeds = rotation.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * speeds
    product = torch.complex(*x.double()[..., pairs].unbind(-1)) * torch.exp(1j * angles)
    out = torch.empty_like(x, dtype=torch.float64)
    out[..., pairs] = torch.view_as_real(product)
    return out


def rotated(x, rotation):
    return rotation.rotate(x, *rotation.tables(x.shape[-2], x.shape[-1], x))


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 7, 600])
def test_rotated_values_equal_the_formula(length, dtype, rotation):
    x = torch.randn(2, 3, length, 16, dtype=torch.float64).to(dtype)
    expected = formula(x, rotation)
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]
    ours = rotated(x, rotation)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), expected, rtol=bound, atol=bound)
    rotation.rotate_(x, *rotation.tables(length, 16, x))
    torch.testing.assert_close(x.double(), expected, rtol=bound, atol=bound)


def test_interleaved_pairs_are_rotated_as_in_roformer():
    query, key = torch.randn(2, 4, 50, 16), torch.randn(2, 4, 50, 16)
    positions = RoFormerSinusoidalPositionalEmbedding(50, 16)
    positions.weight.data.copy_(positions.create_weight())
    theirs = RoFormerSelfAttention.apply_rotary_position_embeddings(positions((2, 50))[None, None], query, key)
    for one, other in zip((query, key), theirs, strict=True):
        torch.testing.assert_close(rotated(one, Rotation(interleaved=True)), other, rtol=0, atol=1e-5)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(rotated(one, Rotation()), other, rtol=0, atol=1e-5)


def test_halves_are_rotated_as_in_modernbert():
    query, key = torch.randn(2, 4, 50, 16), torch.randn(2, 4, 50, 16)
    angles = torch.arange(50)[:, None] / 160000.0 ** (torch.arange(0, 16, 2) / 16)
    angles = torch.cat([angles, angles], -1)[None]
    theirs = apply_rotary_pos_emb(query, key, angles.cos(), angles.sin())
    for one, other in zip((query, key), theirs, strict=True):
        torch.testing.assert_close(rotated(one, Rotation(base=160000.0)), other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
def test_products_depend_only_on_distance_and_the_inverse_rotation_undoes_it(rotation):
    query, key = torch.randn(2, 1, 16, dtype=torch.float64).expand(2, 40, 16)
    products = rotated(query, rotation) @ rotated(key, rotation).t()
    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1], rtol=0, atol=1e-12)
    x = torch.randn(3, 40, 16, dtype=torch.float64)
    cos, sin = rotation.tables(40, 16, x)
    torch.testing.assert_close(rotation.rotate(rotation.rotate(x, cos, sin), cos, -sin), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=str)
@pytest.mark.parametrize("width", [8, 32, 64])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1])
def test_biases_score_highest_at_their_offset(rotation, width, offset):
    query, key = (bias.double().expand(40, width) for bias in rotation.biases(offset, width))
    scores = rotated(query, rotation) @ rotated(key, rotation).t() / width**0.5  # (queries, keys)
    row = scores[20]
    assert int(row.argmax()) == 20 + offset
    for neighbor in (-1, 1):
        assert float(row[20 + offset] - row[20 + offset + neighbor]) == pytest.approx(rotary.CONTRAST)
    wrong = Rotation(rotation.base, not rotation.interleaved).biases(offset, width)
    if offset:  # a planted fault: the pairs of the other convention
        query, key = (bias.double().expand(40, width) for bias in wrong)
        assert int((rotated(query, rotation) @ rotated(key, rotation).t())[20].argmax()) != 20 + offset


def test_tables_are_cached_and_rounded_once_for_each_dtype():
    rotary._cached_tables.cache_clear()
    wide, narrow = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.bfloat16)
    exact = Rotation().tables(600, 16, wide)
    for length in (513, 600, 1024):
        for table, of in zip(Rotation().tables(length, 16, narrow), Rotation().tables(length, 16, wide), strict=True):
            assert table.shape == (length, 8)
            assert table.equal(of.bfloat16())
    assert rotary._cached_tables.cache_info().currsize == 2
    assert Rotation().tables(5, 16, wide)[0].equal(exact[0][:5])


def test_tables_created_in_inference_mode_can_be_used_in_training():
    rotary._cached_tables.cache_clear()
    x = torch.randn(9, 16, requires_grad=True)
    with torch.inference_mode():
        rotated(x, Rotation())
    rotated(x, Rotation()).sum().backward()
    assert x.grad is not None


def test_heads_of_an_odd_width_are_refused():
    with pytest.raises(ValueError, match="even width, not 5"):
        SelfAttention(15, AttentionSpec(3, 0.0, rotation=Rotation()))
