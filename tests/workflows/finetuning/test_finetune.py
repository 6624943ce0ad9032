"""Fine-tuning: its arguments, the guide's call, all examples, regularization, and the rule's rate."""

import json
import tomllib
from dataclasses import replace

import pytest

from unmask.inference.load import load
from unmask.model.model import load_model, save_model
from unmask.support.errors import UserError
from unmask.workflows.finetuning.finetune import finetune

from .conftest import run


def test_settings_as_text_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UserError, match=r"settings must be a mapping .* write \{'budget.steps': 1\}$"):
        finetune("classification", "nowhere", "nothing.tsv", tmp_path / "run", settings=["budget.steps=1"])
    assert not (tmp_path / "run").exists()


def test_the_call_of_the_guide(classifier, rows, tmp_path):
    settings = {"seed": 1, "task.length": 32, "budget.steps": 1}
    out = finetune(
        "classification", model=classifier, train=rows, out=tmp_path / "run", dev=rows, settings=settings, quiet=True
    )
    assert out == tmp_path / "run/model"
    assert "seed = 1" in (tmp_path / "run/recipe.toml").read_text()


def test_regularization_is_stored_with_the_model(start, task, tmp_path):
    chosen = ("task.regularization.r_drop=1", "task.regularization.label_smoothing=0.1", "dropout=0.1")
    tuned = run(start, task, tmp_path / "run", *chosen, "budget.steps=3")
    assert (tuned.task.regularization.r_drop, tuned.task.regularization.label_smoothing) == (1, 0.1)
    plain = run(start, task, tmp_path / "plain", "dropout=0.1", "budget.steps=3")
    assert tuned.fingerprint() != plain.fingerprint()


def test_all_examples_are_trained_on_without_scores(classifier, rows, tmp_path, capsys):
    settings = {"task.length": 32, "budget.epochs": 1}
    given = {"settings": settings, "device": "cpu", "precision": "float32"}
    finetune("classification", classifier, rows, tmp_path / "part", **given)
    printed = capsys.readouterr().err
    assert "108 training examples, 12 evaluation examples" in printed
    assert "held out: 12 examples; to train on all: all_examples" in printed
    out = finetune("classification", classifier, rows, tmp_path / "all", all_examples=True, **given)
    printed = capsys.readouterr().err
    assert "120 training examples, 0 evaluation examples" in printed
    assert "dev:" not in printed
    assert "to train on them too" not in printed
    assert json.loads((tmp_path / "all/dev.json").read_text()) == {"metrics": {}}
    assert "dev data" not in (tmp_path / "all/report.md").read_text()
    assert load(out, device="cpu").predict(["a cat"])
    finetune("classification", classifier, rows, tmp_path / "all", all_examples=True, resume=True, **given)
    assert "already finished" in capsys.readouterr().err
    with pytest.raises(UserError, match="no effect with dev"):
        finetune("classification", classifier, rows, tmp_path / "x", dev=rows, all_examples=True, **given)


def test_early_stopping_still_holds_out_examples_of_all(classifier, rows, tmp_path):
    settings = {"task.length": 32, "budget.steps": 4, "budget.patience": 1}
    finetune(
        "classification",
        classifier,
        rows,
        tmp_path / "run",
        all_examples=True,
        settings=settings,
        device="cpu",
        precision="float32",
    )
    assert (max((tmp_path / "run/checkpoints").glob("step-*")) / "best.safetensors").exists()


def test_the_rate_depends_on_the_text_that_the_model_has_read(start, task, tmp_path):
    model = load_model(start)
    save_model(tmp_path / "little", replace(model, tokens=1000), "")
    rates = []
    for name in ("start", "little"):
        run(tmp_path / name, task, tmp_path / f"{name}-run", "budget.steps=1")
        recipe = tomllib.loads((tmp_path / f"{name}-run/recipe.toml").read_text())
        rates.append(recipe["optimizer"]["learning_rate"])
    assert rates[1] == pytest.approx(4 * rates[0], rel=0.03)
    assert load_model(tmp_path / "little-run").tokens == 1000
