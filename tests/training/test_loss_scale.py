"""Training in fp16: the scale of the loss beside torch's, overflows, and the resuming of both."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.training import precision
from unmask.training.checkpoint import Progress
from unmask.training.loop import MAX_SKIPPED
from unmask.training.machine import Machine
from unmask.training.precision import LossScale
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from .conftest import CPU, assert_same_run, changed, metrics

FP16 = Machine(torch.device("cpu"), "fp16")
DIVERGING = 2.0**40
"""A first scale at which gradients overflow in fp16."""


def logged(run, name):
    """Return a value of each step."""
    return [line[name] for line in metrics(run) if line["kind"] == "train"]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 7))
def test_the_scale_is_that_of_torchs_grad_scaler(overflows, patience):
    scale, tracker = torch.tensor(precision.FIRST), torch.zeros((), dtype=torch.int32)
    progress, ours = Progress(cursor=()), LossScale("fp16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "PATIENCE", patience)
        patch.setattr(precision, "LEAST", 0.0)
        patch.setattr(precision, "LARGEST", float("inf"))
        for overflowed in overflows:
            assert ours.update(progress, overflowed=overflowed) == overflowed
            torch._amp_update_scale_(scale, tracker, torch.tensor(float(overflowed)), 2.0, 0.5, patience)
            assert (ours.of(progress), progress.finite_steps) == (scale.item(), tracker.item())


def test_the_scale_stays_in_bounds():
    progress, scale = Progress(cursor=(), loss_scale=2.0), LossScale("fp16")
    assert [scale.update(progress, overflowed=True) for _ in range(3)] == [True, False, False]
    assert scale.of(progress) == precision.LEAST
    progress.loss_scale, progress.finite_steps = precision.LARGEST, precision.PATIENCE - 1
    scale.update(progress, overflowed=False)
    assert scale.of(progress) == precision.LARGEST


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_other_precisions_are_not_scaled(precision):
    progress, scale = Progress(cursor=()), LossScale(precision)
    assert not scale.update(progress, overflowed=True)
    assert (scale.of(progress), progress) == (1.0, Progress(cursor=()))


@pytest.mark.parametrize(
    "settings",
    [
        ("optimizer.kind=muon",),
        ("batch.micro_tokens=200", "batch.tokens=600"),
        pytest.param(("encoder.kind=modernbert",), marks=pytest.mark.exhaustive),
        pytest.param(("optimizer.kind=lamb",), marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_losses_in_fp16_are_those_in_float32(corpus, tmp_path, settings):
    recipe = changed("budget.steps=6", "encoder.dropout=0", *settings)
    for name, machine in (("exact", CPU), ("half", FP16)):
        pretrain_corpus(recipe, corpus, tmp_path / name, machine=machine, quiet=True)
    assert logged(tmp_path / "half", "loss") == pytest.approx(logged(tmp_path / "exact", "loss"), rel=2e-3)
    norms = (logged(tmp_path / name, "gradient_norm") for name in ("half", "exact"))
    assert next(norms) == pytest.approx(next(norms), rel=0.02)
    assert set(logged(tmp_path / "half", "loss_scale")) == {precision.FIRST}


def scales(overflowed, patience):
    """Return the scale of each step: halved after an overflow, doubled after so many finite steps."""
    scale, finite, expected = DIVERGING, 0, []
    for has_overflowed in overflowed:
        expected.append(scale)
        finite = 0 if has_overflowed else finite + 1
        if has_overflowed or finite == patience:
            scale, finite = scale / 2 if has_overflowed else 2 * scale, 0
    assert any(later > earlier for earlier, later in pairwise(expected))
    return expected


def test_an_overflow_halves_the_scale_and_is_resumed_exactly(corpus, tmp_path, monkeypatch, stopped_at):
    monkeypatch.setattr(precision, "FIRST", DIVERGING)
    monkeypatch.setattr(precision, "PATIENCE", 2)
    recipe = changed("budget.steps=40", "encoder.dropout=0")
    pretrain_corpus(recipe, corpus, tmp_path / "whole", machine=FP16, quiet=True)
    seen = logged(tmp_path / "whole", "loss_scale")
    overflowed = [rate == 0 for rate in logged(tmp_path / "whole", "learning_rate")]
    settled = overflowed.index(False)
    assert settled > MAX_SKIPPED
    assert seen == scales(overflowed, patience=2)
    with stopped_at(settled + 1):
        pretrain_corpus(recipe, corpus, tmp_path / "run", machine=FP16, quiet=True)
    pretrain_corpus(recipe, corpus, tmp_path / "run", machine=FP16, quiet=True, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
