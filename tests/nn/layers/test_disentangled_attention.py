"""Buckets equal those of transformers, scores the three products of the paper, and padding changes nothing."""

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from unmask.nn.layers.disentangled import DisentangledAttention, Distances, log_buckets

from .conftest import HEADS, tokens_of

WIDTH = HEADS * 8


def build(longest=20, bucketed=8):
    torch.manual_seed(0)
    distances = Distances(WIDTH, longest, bucketed, 1e-7)
    return DisentangledAttention(WIDTH, HEADS, 0.0, distances).double(), distances.double()


@pytest.mark.parametrize(("size", "longest"), [(256, 512), (8, 20), (32, 128)])
def test_buckets_are_those_of_transformers(size, longest):
    distances = torch.arange(-600, 601)
    assert log_buckets(distances, size, longest).equal(make_log_bucket_position(distances, size, longest).long())


def test_a_score_is_the_sum_of_three_products():
    layer, distances = build()
    tokens, scores = tokens_of((30,)), []
    x = torch.randn(30, WIDTH, dtype=torch.float64)
    layer(x, tokens, scores)
    query, key, _ = layer.qkv(x).view(30, 3, HEADS, 8).unbind(1)
    far_query, far_key, _ = layer.qkv(distances.vectors()).view(-1, 3, HEADS, 8).unbind(1)
    for i, j in ((0, 0), (3, 4), (4, 3), (29, 0), (0, 29), (12, 5)):
        at = int(distances.rows(torch.tensor(i - j)))
        products = query[i] * key[j] + query[i] * far_key[at] + key[j] * far_query[at]  # (heads, head width)
        torch.testing.assert_close(scores[0][0, :, i, j], products.sum(1) / 24**0.5)


def test_each_distance_has_its_own_embedding_without_buckets():
    distances = Distances(WIDTH, 5, None, None)
    assert distances.vectors().shape == (10, WIDTH)
    assert distances.rows(torch.arange(-7, 8)).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]


@pytest.mark.parametrize("lengths", [(1,), (3, 4), (5, 6), (12, 30)], ids=str)
@pytest.mark.parametrize(("longest", "bucketed"), [(20, 8), (6, 8), (20, None), (5, None)])
def test_embeddings_of_distances_beyond_a_sequence_are_left_out(longest, bucketed, lengths, monkeypatch):
    def run():
        layer, distances = build(longest, bucketed)
        x = torch.randn(sum(lengths), WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        out = layer(x, tokens_of(lengths))
        return out, *torch.autograd.grad(out.square().sum(), [distances.table.weight, layer.qkv.weight])

    ours = run()
    monkeypatch.setattr(DisentangledAttention, "near", lambda self, longest: slice(0, self.num_distances))
    torch.testing.assert_close(ours, run(), rtol=0, atol=1e-12)


def test_sequences_are_independent_of_those_beside_them():
    layer, _ = build()
    together = tokens_of((3, 5, 30))
    x = torch.randn(38, WIDTH, dtype=torch.float64)
    whole = layer(x, together)
    for start, stop in ((0, 3), (3, 8), (8, 38)):
        torch.testing.assert_close(layer(x[start:stop], tokens_of((stop - start,))), whole[start:stop])
