"""Precomputed layers replace the encoder that computed them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.families.bert import BertSettings
from unmask.nn.encoders.downstream import Downstream, DownstreamSettings
from unmask.nn.encoders.encoder import Keep
from unmask.nn.encoders.stored import Stored

SETTINGS = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)
RNN = DownstreamSettings(kind="rnn", layers=(-2, -1), width=8)


def stored_of(table, numbers=(1, 2)):
    return Stored(table, numbers, SETTINGS.head, SETTINGS.layers, SETTINGS.positions)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_layers_replace_the_encoder(samples, dtype):
    torch.manual_seed(1)
    body, batch = Downstream(RNN, SETTINGS.build(100)).eval(), collate(samples)
    layers = body.encoder(batch.tokens, Keep(frozenset({1, 2}))).layers
    table = torch.stack([layers[1], layers[2]], 1).detach().numpy()
    expected = body(batch.tokens).last
    order = np.random.default_rng(0).permutation(len(table))  # row r of the batch is stored at order[r]
    body.encoder = stored_of(table[np.argsort(order)])
    assert body.encoder.layer_groups == () and not list(body.encoder.state_dict())
    copied = copy.deepcopy(body).to(dtype)
    assert copied.encoder.table is body.encoder.table  # a memory map is not read into memory
    found = copied(replace(batch.tokens, ids=torch.from_numpy(order))).last
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 0.03)


def test_rows_are_looked_up_by_id(samples):
    tokens = collate(samples[:2]).tokens  # 48 tokens, ids below 100
    table = np.random.default_rng(0).random((100, 2, 32), np.float32)
    stored = stored_of(table, (0, 2))
    encoded = stored(tokens, Keep(frozenset({0})))
    assert encoded.last.tolist() == table[tokens.ids.numpy(), 1].tolist()
    assert encoded.layers.keys() == {0}
    assert encoded.layers[0].tolist() == table[tokens.ids.numpy(), 0].tolist()


def test_it_has_the_attributes_of_its_encoder_and_nothing_to_train():
    stored = stored_of(np.zeros((7, 2, 32), np.float32))
    assert (stored.width, stored.num_layers, stored.longest, stored.vocabulary) == (32, 2, 64, 7)
    assert stored.head == SETTINGS.head
    assert not list(stored.parameters())
