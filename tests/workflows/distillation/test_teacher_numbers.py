"""A teacher whose outputs are not numbers teaches nothing, and the error names it, not the settings of the student."""

import numpy as np
import pytest
import torch

from unmask.model.model import load_model, save_model
from unmask.nn.layers.vocabulary import soft_vocabulary_loss
from unmask.objectives.objective import Decoding
from unmask.support.errors import UserError
from unmask.training.evaluate import NotFiniteError
from unmask.training.loop import Trainer
from unmask.workflows.distillation import comparison, general
from unmask.workflows.distillation.distill import distill
from unmask.workflows.distillation.targets import Top, _top

from .conftest import CPU, recipe_of

QUIET = {"device": "cpu", "precision": "float32", "quiet": True}


def spoiled(source, path):
    """Save a model whose weights are finite, but so large that its hidden states are not."""
    model = load_model(source)
    with torch.no_grad():
        for weight in model.encoder.parameters():
            weight.mul_(1e30)
    save_model(path, model, "")
    return path


@pytest.mark.parametrize(
    ("objective", "store"),
    [("soft_targets", False), ("soft_targets", True), ("hidden_cosine", False), ("layer_matching", False)],
)
def test_text(objective, store, teacher, corpus, tmp_path):
    name = "tinybert-mini" if objective == "layer_matching" else "distilbert-mini"
    recipe = recipe_of(name, **({"objective__hidden_cosine": False} if objective == "soft_targets" else {}))
    options = {"corpus": corpus, "layers": 2, **({"targets": tmp_path / "targets"} if store else {}), **QUIET}
    with pytest.raises(UserError, match=r"the teacher's outputs are not numbers.*use another teacher"):
        distill(recipe, spoiled(teacher, tmp_path / "large"), tmp_path / "run", **options)
    assert not (tmp_path / "run/model").exists()


@pytest.mark.parametrize("settings", [{"objective.layer_matching": False}, {}])
def test_a_task(settings, tuned, examples, tmp_path):
    large = spoiled(tuned("classification"), tmp_path / "large")
    options = {"train": examples / "classification.tsv", "layers": 1, "settings": {"budget.steps": 2, **settings}}
    with pytest.raises(UserError, match=r"outputs are not numbers.*use another"):
        distill("tinybert-mini", large, tmp_path / "run", **options, **QUIET)
    assert not (tmp_path / "run/model").exists()


def test_a_student_that_diverges_in_its_last_step_is_no_model(teacher, corpus, tmp_path, monkeypatch):
    """The loss of each step was a number, and what the last update made of the weights is not."""
    real = Trainer.step

    def step(trainer):
        metrics = real(trainer)
        if trainer.progress.step == trainer.progress.total:
            with torch.no_grad():
                for weight in trainer.learner.encoder.parameters():
                    weight.mul_(1e30)
        return metrics

    monkeypatch.setattr(Trainer, "step", step)
    recipe = recipe_of("distilbert-mini", objective__hidden_cosine=False)
    with pytest.raises(NotFiniteError, match="not finite at the end"):
        distill(recipe, teacher, tmp_path / "run", corpus=corpus, layers=2, **QUIET)
    assert not (tmp_path / "run/model").exists()


def test_what_is_not_a_number_has_no_score(teacher, corpus, tmp_path):
    model = load_model(spoiled(teacher, tmp_path / "large"))
    _, batches = general._heldout(recipe_of("distilbert-mini"), corpus)
    with pytest.raises(UserError, match="outputs are not numbers"):
        comparison.of_text("student", tmp_path / "large", model, batches, CPU)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e5, 1e6])
def test_stored_predictions_of_a_certain_teacher_are_numbers(scale):
    """A log-probability below the least number of float16 is stored as that number: its probability is 0 either way."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(50, 40)).astype(np.float32) * scale)
    values, ids = _top(Decoding(rows, torch.eye(40), torch.zeros(40)), 1.0)
    assert np.isfinite(values).all()
    targets = Top(torch.from_numpy(ids).long(), torch.from_numpy(values)).log_probabilities(1.0)
    student = torch.zeros(50, 40)
    loss, agreed = soft_vocabulary_loss(student, torch.eye(40), torch.zeros(40), targets, 1.0)
    expected = -(rows.softmax(1) * (-rows.log_softmax(1)).clamp(max=1e30)).sum() + 50 * np.log(40)
    assert float(loss) == pytest.approx(float(expected), rel=0.01)
    assert 0 <= int(agreed) <= 50


def test_a_vocabulary_smaller_than_what_is_kept_is_kept_as_a_whole():
    """Such as that of characters of DNA."""
    torch.manual_seed(0)
    rows = torch.randn(5, 9)
    values, ids = _top(Decoding(rows, torch.eye(9), torch.zeros(9)), 1.0)
    assert values.shape == ids.shape == (5, 9)
    targets = Top(torch.from_numpy(ids).long(), torch.from_numpy(values)).log_probabilities(1.0)
    found = targets(slice(0, 5), torch.randn(5, 9).log_softmax(1))
    torch.testing.assert_close(found, rows.log_softmax(1), atol=5e-3, rtol=0)
