"""The plain kernel: the formula, dropout, and the scores before the softmax."""

import pytest
import torch

from unmask.nn.layers.plain_attention import AttentionSpec, plain

from .conftest import HEADS, ROTATIONS, tokens_of


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_the_plain_kernel_is_the_formula(causal, window):
    lengths, tokens = [3, 5, 5], tokens_of((3, 5, 5))
    qkv, expected = torch.randn(13, 3 * HEADS * 8, dtype=torch.float64), []
    for rows in qkv.split(lengths):
        query, key, value = rows.view(len(rows), 3, HEADS, 8).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / 8**0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
        if window is not None:
            outside = torch.ones_like(scores).triu(window + 1) + torch.ones_like(scores).tril(-window - 1)
            scores = scores.masked_fill(outside > 0, -torch.inf)
        expected.append((scores.softmax(-1) @ value).transpose(0, 1).flatten(1))
    torch.testing.assert_close(
        plain(qkv, tokens, AttentionSpec(HEADS, causal=causal, window=window)), torch.cat(expected), rtol=0, atol=1e-12
    )


def test_dropout_has_its_rate_and_scale():
    tokens = tokens_of((400, 400))
    qkv = torch.zeros(800, 3 * HEADS * 8)
    qkv[:, -HEADS * 8 :] = 1
    out = plain(qkv, tokens, AttentionSpec(HEADS, dropout=0.3))  # (kept of 400) / 400 / 0.7
    assert float(out.mean()) == pytest.approx(1, abs=0.005)
    assert float(out.std()) == pytest.approx((0.3 / 0.7 / 400) ** 0.5, rel=0.1)


@pytest.mark.parametrize("rotation", ROTATIONS, ids=["not rotated", "halves", "interleaved"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_scores_precede_the_softmax_and_are_zero_at_unattended_positions(causal, rotation):
    lengths, tokens = [3, 5, 5, 200], tokens_of((3, 5, 5, 200))
    spec = AttentionSpec(HEADS, causal=causal, rotation=rotation)
    qkv, scores = torch.randn(213, 3 * HEADS * 8, dtype=torch.float64, requires_grad=True), []
    with_scores = plain(qkv, tokens, spec, scores)
    assert with_scores.equal(plain(qkv, tokens, spec))
    assert [tuple(one.shape) for one in scores] == [
        (group.sequences, HEADS, group.longest, group.longest) for group in tokens.groups
    ]
    sequences = [sequence for one in scores for sequence in one]
    for rows, found in zip(qkv.split(lengths), sequences, strict=True):
        length = len(rows)
        query, key, _ = rows.view(length, 3, HEADS, 8).permute(1, 2, 0, 3)
        if rotation is not None:
            query, key = (rotation.rotate(x, *rotation.tables(length, 8, x)) for x in (query, key))
        expected = query @ key.transpose(1, 2) / 8**0.5
        expected = torch.zeros_like(found).index_put_(
            tuple(torch.meshgrid(*map(torch.arange, expected.shape), indexing="ij")), expected
        )
        torch.testing.assert_close(found, expected.tril() if causal else expected, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(sum(one.square().sum() for one in scores), qkv)
    assert gradient[:, : 2 * HEADS * 8].any()
    assert not gradient[:, 2 * HEADS * 8 :].any()
