"""Averaging of the weights over the last steps of a budget."""

import pytest
import torch

from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.errors import UserError
from unmask.support.settings import convert

from .conftest import BF16, CPU, assert_equal, started, weights


def averaged(small, share=0.4, steps=5):
    return small(budget={"steps": steps}, optimizer={"average": share, "learning_rate": 1e-2})


@pytest.mark.parametrize("machine", [CPU, BF16])
def test_the_weights_are_the_mean_over_the_last_steps(small, trainer, machine):
    one, after = started(trainer, averaged(small), machine=machine, heldout=True), []
    step = one.step

    def watched():
        metrics = step()
        after.append(weights(one))
        return metrics

    one.step = watched
    one.train()
    last = weights(one)
    assert_equal(last, after[-1])  # the checkpoints have the weights of the steps themselves
    logged = one.run.read_metrics("heldout")
    resumed = trainer(averaged(small), machine=machine, heldout=True, resume=True)
    resumed.complete(resume=True)
    for name, value in weights(resumed).items():
        expected = torch.stack([one[name] for one in after[3:]]).mean(0)
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            dict(resumed.replicas.copy.state_dict())[name].float(), expected, rtol=1e-2, atol=1e-3
        )
    more = resumed.run.read_metrics("heldout")
    assert (len(more), more[-1]["step"]) == (len(logged) + 1, 5)
    assert more[-1]["loss"] != logged[-1]["loss"], "what is evaluated last is the mean"
    again = trainer(averaged(small), machine=machine, heldout=True, resume=True)
    again.complete(resume=True)
    assert again.run.read_metrics("heldout") == more, "and it is logged once"


def test_an_interrupted_run_has_the_same_mean(small, trainer):
    whole = trainer(averaged(small, 0.8), out="whole")
    whole.complete(resume=False)
    stopped = started(trainer, averaged(small, 0.8))
    for _ in range(3):
        stopped.step()
    stopped.save()
    stopped.saver.wait()
    resumed = trainer(averaged(small, 0.8), resume=True)
    resumed.complete(resume=True)
    assert_equal(weights(resumed), weights(whole))


def test_a_larger_budget_begins_the_mean_again(small, trainer):
    one = trainer(averaged(small, 0.4))
    one.complete(resume=False)
    more = trainer(averaged(small, 0.4, steps=10), resume=True)
    more.resume()
    assert more.optimizer.averaged == 2
    more.train()
    assert more.optimizer.averaged == 4, "of ten steps"


def test_without_it_the_last_weights_are_taken(small, trainer):
    one = trainer(averaged(small, 0.0))
    one.complete(resume=False)
    assert one.optimizer.take_means() == 0


def test_it_does_not_go_with_early_stopping():
    table = {
        "task": {"kind": "classification", "length": 16},
        "batch": {"sequences": 4},
        "optimizer": {"kind": "adamw", "average": 0.5},
        "schedule": {},
        "budget": {"epochs": 1.0, "patience": 2},
    }
    with pytest.raises(UserError, match=r"no effect with budget\.patience"):
        convert(table, FinetuningRecipe, "test")
