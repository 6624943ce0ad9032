"""Early stopping by the held-out loss."""

import math

import pytest
import torch

from unmask.training.patience import Patience


@pytest.mark.parametrize(
    ("found", "over", "best"),
    [([3.0, 2.0, None], False, 1), ([None, None, None], True, None), ([3.0, None, 4.0], True, 0)],
)
def test_T14_a_heldout_loss_that_is_not_finite_is_the_worst(small, trainer, found, over, best):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
    for step, loss in enumerate(found):
        one.run.log({"kind": "heldout", "step": step, "loss": math.nan if loss is None else loss})
        patience.update(one.learner)
    assert patience.is_over() == over
    assert patience.take_best(one.learner) == best


def test_the_best_weights_are_restored_after_waiting_in_vain(small, trainer):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
    weight = next(one.learner.parameters())
    for step, (loss, over) in enumerate([(3.0, False), (2.0, False), (2.5, False), (2.0001, True)]):
        torch.nn.init.constant_(weight, float(step))
        one.run.log({"kind": "heldout", "step": step, "loss": loss})
        patience.update(one.learner)
        assert patience.is_over() == over
    assert patience.take_best(one.learner) == 1
    assert weight.eq(1.0).all()


def test_without_early_stopping_nothing_is_stored(small, trainer):
    one = trainer(small())
    patience = Patience(one.run, None, one.processes)
    one.run.log({"kind": "heldout", "step": 0, "loss": 3.0})
    patience.update(one.learner)
    assert not patience.is_over()
    assert patience.take_best(one.learner) is None
    assert not (one.run.checkpoints / "best.safetensors").exists()
