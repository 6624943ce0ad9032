"""In bf16 a working copy computes, and the learner keeps float32 weights and gradients."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.support import adamw
from unmask.training.precision import Working

from .conftest import BF16, CPU, losses, weights
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


def test_what_the_optimizer_reads_of_a_single_micro_batch_stays_in_the_copy():
    learner = learner_of()
    working, batch = Working(learner, BF16), batch_of(learner)
    backward(working, batch)
    gradients = [(value, copy, copy.grad) for value, copy in working.pairs if copy.grad is not None]
    dense = [copy for _, copy, grad in gradients if not grad.is_sparse]
    working.written = frozenset(dense[1:] + [copy for _, copy, grad in gradients if grad.is_sparse])
    working.gather(last=True)
    for value, copy, grad in gradients:
        stays = any(copy is one for one in dense[1:])
        assert copy.grad is (grad if stays else None)
        assert (value.grad is None) == stays
    for value, copy in working.pairs:
        value.grad = copy.grad = None
    for last in (False, True):  # of two micro-batches
        backward(working, batch)
        working.gather(last=last)
    for value, copy, grad in gradients:
        assert copy.grad is None
        assert value.grad.equal(2 * grad.to_dense().float())


def test_after_a_step_what_the_optimizer_wrote_is_not_copied_again():
    learner = learner_of()
    working = Working(learner, BF16)
    (_, own), *others = working.pairs
    working.written = frozenset([own])
    with torch.no_grad():
        for value in learner.parameters():
            value.add_(0.1234567)
    before = own.clone()
    working.refresh(stepped=True)
    assert own.equal(before)
    assert all(copy.equal(value.bfloat16()) for value, copy in others)
    working.refresh()
    assert all(copy.equal(value.bfloat16()) for value, copy in working.pairs)


@pytest.mark.skipif(adamw._adamw is None, reason="there was no compiler")
@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize("micro_tokens", [10_000, 200])
def test_a_run_is_the_same_where_the_optimizer_writes_no_copies(small, trainer, monkeypatch, kind, micro_tokens):
    recipe = small(optimizer={"kind": kind}, batch={"micro_tokens": micro_tokens}, budget={"steps": 4})
    found, fits = [], adamw.fits
    for written in (True, False):
        monkeypatch.setattr(adamw, "fits", fits if written else lambda weights, copies: False)
        one = trainer(recipe, out=str(written), machine=BF16)
        assert bool(one.optimizer.copies) is written
        one.start()
        one.train()
        assert all(copy.equal(value.bfloat16()) for value, copy in one.replicas.working.pairs)
        found.append((losses(one.run), weights(one)))
    (lines, first), (other_lines, second) = found
    for line, other in zip(lines, other_lines, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=2e-3)
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-3, atol=3e-4)
