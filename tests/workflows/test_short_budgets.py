"""Budgets that are shorter than a step, or longer than any run: they end with a model, or are refused."""

import pytest
import torch

import unmask
from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model
from unmask.support.errors import UserError
from unmask.training.runs.directory import RunDirectory

HERE = {"device": "cpu", "precision": "float32", "quiet": True}
SHAPE = {"encoder.layers": 1, "encoder.width": 32, "encoder.heads": 2, "encoder.feed_forward": 64}
SMALL = {**SHAPE, "layout.length": 48, "batch.tokens": 512}
SHORT = (1e-3, *(pytest.param(minutes, marks=pytest.mark.exhaustive) for minutes in (1e-9, 1e-300)), 5e-324)


def pretrain(minutes, corpus, out):
    return unmask.pretrain("bert-tiny", corpus=corpus, out=out, settings={**SMALL, "budget.minutes": minutes}, **HERE)


def finetune(minutes, tokenizer, folder):
    path = folder / "rows.tsv"
    path.write_text(
        "\n".join(["text\tlabel", *(f"the {noun} {n}\t{n % 2}" for n in range(20) for noun in ("dog", "cat"))])
    )
    encoder = BertSettings(layers=1, width=32, heads=2, feed_forward=64, positions=64).build(tokenizer.size)
    save_model(folder / "encoder", Model(encoder, tokenizer), "")
    settings = {"task.length": 16, "budget.minutes": minutes}
    return unmask.finetune("classification", folder / "encoder", path, folder / "run", settings=settings, **HERE)


@pytest.mark.parametrize("minutes", SHORT)
def test_pretraining_for_less_than_a_step_takes_one(minutes, corpus, tmp_path):
    model = pretrain(minutes, corpus, tmp_path / "run")
    assert len(RunDirectory(tmp_path / "run").read_metrics("train")) >= 1
    assert torch.isfinite(unmask.load(model).features(["the dog"]).values).all()


@pytest.mark.parametrize("minutes", SHORT)
def test_fine_tuning_for_less_than_a_step_takes_one(minutes, tokenizer, tmp_path):
    model = finetune(minutes, tokenizer, tmp_path)
    assert len(RunDirectory(tmp_path / "run").read_metrics("train")) >= 1
    assert len(unmask.load(model).predict(["the dog"])) == 1


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), 1e16, 1e300])
def test_what_is_no_budget_is_refused_before_anything_is_written(minutes, corpus, tokenizer, tmp_path):
    with pytest.raises(UserError, match="a budget must be positive, and at most"):
        pretrain(minutes, corpus, tmp_path / "run")
    with pytest.raises(UserError, match="a budget must be positive, and at most"):
        finetune(minutes, tokenizer, tmp_path)
    assert not (tmp_path / "run").exists()
