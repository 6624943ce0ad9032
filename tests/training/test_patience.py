"""Early stopping by the held-out loss."""

import math
from pathlib import Path

import pytest
import torch

from unmask.support.errors import UnmaskError, UserError
from unmask.training.evaluate import Patience


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
        patience.update(one.replicas)
    assert patience.is_over() == over
    assert patience.take_best(one.replicas) == best


def test_the_best_weights_are_restored_after_waiting_in_vain(small, trainer):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
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
    assert not (one.run.checkpoints / "best.safetensors").exists()


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "message"), [(flip, "altered"), (truncate, "cannot be read"), (Path.unlink, "cannot be read")]
)
def test_C9_damaged_or_missing_best_weights_are_named(small, trainer, damage, message):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
    one.run.log({"kind": "heldout", "step": 1, "loss": 3.0})
    patience.update(one.replicas)
    assert patience.take_best(one.replicas) == 1
    path = one.run.checkpoints / "best.safetensors"
    damage(path)
    with pytest.raises(UserError, match=rf"{path}: the .*{message}.*started again"):
        patience.take_best(one.replicas)


def test_T9_a_full_disk_while_the_best_weights_are_written(small, trainer, monkeypatch):
    one = trainer(small())
    patience = Patience(one.run, 2, one.processes)
    one.run.checkpoints.mkdir(exist_ok=True)
    one.run.log({"kind": "heldout", "step": 1, "loss": 3.0})
    monkeypatch.setattr(
        "unmask.support.durable.sync", lambda path: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(UnmaskError, match=r"best\.safetensors: .* \(No space left on device\); .* resume"):
        patience.update(one.replicas)
    assert [path.name for path in one.run.checkpoints.iterdir()] == []
