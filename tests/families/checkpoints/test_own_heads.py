"""Heads that a family's format has no name for: with them, directories keep the pooler that they may read."""

import pytest
import torch

from unmask.families import FAMILIES
from unmask.families.checkpoints.huggingface import read, write


@pytest.mark.parametrize("head", ["multiple_choice", "relations", "sentence_order"])
@pytest.mark.parametrize("kind", sorted(FAMILIES.keys() - {"elmo", "gpt"}))
def test_the_pooler_is_stored_with_its_head(tmp_path, kind, head):
    torch.manual_seed(0)
    encoder = FAMILIES[kind].settings(layers=1, width=16, heads=2, positions=32, feed_forward=16).build(50)
    for parameter in encoder.parameters():
        parameter.data += torch.randn_like(parameter)
    rows = 2 if head == "sentence_order" else 1
    tensors = {"out.weight": torch.randn(rows, 16), "out.bias": torch.randn(rows)}
    write(tmp_path, encoder, {head: tensors})
    stored = read(tmp_path)
    torch.testing.assert_close(dict(stored.heads[head]), tensors)
    torch.testing.assert_close(dict(stored.encoder), {name: encoder.state_dict()[name] for name in stored.encoder})
    assert {name for name in encoder.state_dict() if name.startswith("pooler.")} <= stored.encoder.keys()
