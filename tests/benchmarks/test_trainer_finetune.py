"""The Trainer's loss of answers, over the passage alone, and batches with its mask."""

import importlib

import pytest
import torch
from torch.nn.functional import cross_entropy


@pytest.fixture(scope="module")
def peer(toy):
    return importlib.import_module("trainer_finetune")


def test_the_loss_is_over_the_passage_alone(peer):
    starts, ends = (torch.randn(2, 6, requires_grad=True) for _ in range(2))
    candidates = torch.tensor([[True, False, False, True, True, True], [True, False, True, True, False, False]])
    gold = torch.tensor([4, 2]), torch.tensor([5, 3])
    loss = peer._passage_loss((starts, ends), candidates, gold)
    expected = []
    for logits, answers in ((starts, gold[0]), (ends, gold[1])):
        for row, inside, answer in zip(logits, candidates, answers, strict=True):
            expected.append(cross_entropy(row[inside], inside[:answer].sum()))
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    for gradient in torch.autograd.grad(loss, (starts, ends)):
        assert gradient[~candidates].eq(0).all()
        assert gradient[candidates].ne(0).all()


def test_masks_are_padded_like_their_texts(peer):
    def collate(examples):
        assert all("candidates" not in one for one in examples)
        return {"texts": len(examples)}

    masks = [torch.tensor([True, False]), torch.tensor([True, True, True])]
    examples = [{"input_ids": [1] * len(mask), "candidates": mask} for mask in masks]
    batch = peer._with_candidates(collate)(examples)
    assert batch["texts"] == 2
    assert batch["candidates"].tolist() == [[True, False, False], [True, True, True]]
    assert peer._with_candidates(collate)([{"input_ids": [1]}]) == {"texts": 1}
