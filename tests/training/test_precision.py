"""In bf16 a working copy computes, and the learner keeps float32 weights and gradients."""

import numpy as np
import torch

from unmask.data.batches.batch import collate
from unmask.training.precision import Working

from .conftest import BF16, CPU
from .remembering import Windows, learner_of


def batch_of(learner):
    return collate([learner.prepare(sample) for sample in Windows(apart=True).take((0, 1))[0]])


def backward(working, batch):
    sum(part.sum for part in working.copy(batch).values()).backward()


def test_in_float32_the_learner_is_its_own_working_copy():
    learner = learner_of()
    working = Working(learner, CPU)
    assert working.copy is learner
    backward(working, batch_of(learner))
    before = {name: value.grad for name, value in learner.named_parameters()}
    working.gather()
    working.refresh()
    assert all(value.grad is before[name] for name, value in learner.named_parameters())


def test_in_bf16_the_weights_are_rounded_into_the_copy():
    learner = learner_of()
    working = Working(learner, BF16)
    with torch.no_grad():
        for value in learner.parameters():
            value.add_(0.1234567)
    working.refresh()
    copies = dict(working.copy.named_parameters())
    for name, value in learner.named_parameters():
        assert value.dtype == torch.float32
        assert copies[name].dtype == torch.bfloat16
        assert copies[name].equal(value.bfloat16()), name


def test_in_bf16_gradients_are_added_in_float32_and_cleared_in_the_copy():
    learner = learner_of()
    working, batch = Working(learner, BF16), batch_of(learner)
    backward(working, batch)
    once = {name: value.grad.clone() for name, value in working.copy.named_parameters() if value.grad is not None}
    working.gather()
    assert all(value.grad is None for value in working.copy.parameters())
    backward(working, batch)
    working.gather()
    assert once, "some parameters have gradients"
    for name, value in learner.named_parameters():
        if name not in once:
            assert value.grad is None, name
            continue
        assert value.grad.dtype == torch.float32
        np.testing.assert_array_equal(value.grad.numpy(), 2 * once[name].to_dense().float().numpy(), err_msg=name)


def test_the_memory_of_gradients_is_reused_by_the_next_step():
    learner = learner_of()
    working, batch = Working(learner, BF16), batch_of(learner)
    backward(working, batch)
    working.gather()
    first = {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}
    copies = {name: value.clone() for name, value in first.items()}
    for value in learner.parameters():
        value.grad = None
    backward(working, batch)
    working.gather()
    for name, value in learner.named_parameters():
        if name in first:
            assert value.grad is first[name], name
            assert value.grad.equal(copies[name]), f"{name}: the previous step's gradient is not added"
