"""Early stopping by the held-out loss."""

import math

import pytest
import torch

from unmask.support.errors import UserError
from unmask.training.evaluate import Patience


@pytest.mark.parametrize(
    ("found", "over", "best"),
    [([3.0, 2.0, None], False, 1), ([None, None, None], True, None), ([3.0, None, 4.0], True, 0)],
)
def test_T14_a_heldout_loss_that_is_not_finite_is_the_worst(small, trainer, found, over, best):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    for step, loss in enumerate(found):
        one.run.log({"kind": "heldout", "step": step, "loss": math.nan if loss is None else loss})
        patience.update(one.replicas)
    assert patience.is_over() == over
    assert patience.take_best(one.replicas) == best


def test_the_best_weights_are_restored_after_waiting_in_vain(small, trainer):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    weight = next(one.learner.parameters())
    for step, (loss, over) in enumerate([(3.0, False), (2.0, False), (2.5, False), (2.0, True)]):  # equal: no better
        torch.nn.init.constant_(weight, float(step))
        one.run.log({"kind": "heldout", "step": step, "loss": loss})
        patience.update(one.replicas)
        assert patience.is_over() == over
    assert patience.take_best(one.replicas) == 1
    assert weight.eq(1.0).all()


def test_without_early_stopping_nothing_is_stored(small, trainer):
    one = trainer(small())
    patience = Patience(one.run, None, one.processes)
    one.run.log({"kind": "heldout", "step": 0, "loss": 3.0})
    patience.update(one.replicas)
    assert not patience.is_over()
    assert patience.take_best(one.replicas) is None
    assert not patience.best


def evaluated(run):
    """Return the patience of a run that has evaluated three steps, of which step 1 has the lowest loss."""
    patience = Patience(run.run, 2, run.processes)
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        for weight in run.learner.parameters():
            torch.nn.init.constant_(weight, float(step))
        run.run.log({"kind": "heldout", "step": step, "loss": loss})
        patience.update(run.replicas)
    return patience


def test_T24_a_run_resumed_before_its_lowest_loss_takes_the_weights_of_the_steps_it_has(small, trainer):
    one = trainer(small())
    early, late = Patience(one.run, 2, one.processes), evaluated(one)
    one.run.cut_metrics(0)
    torch.nn.init.constant_(next(one.learner.parameters()), 5.0)
    early.resume(one.replicas, 0)
    assert all(torch.equal(early.best[name], value) for name, value in one.replicas.state_dict().items())
    assert not torch.equal(early.best.popitem()[1], late.best.popitem()[1])


def test_without_the_weights_of_the_lowest_loss_early_stopping_is_refused(small, trainer):
    one = trainer(small())
    patience = evaluated(one)
    patience.best = {}
    with pytest.raises(UserError, match=r"weights of step 1, .* were not saved; .*budget\.patience"):
        patience.resume(one.replicas, 2)
    without = Patience(one.run, None, one.processes)
    without.best = one.replicas.state_dict()
    without.resume(one.replicas, 2)
    assert not without.best, "later evaluations may have lower losses"
