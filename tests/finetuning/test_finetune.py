"""Fine-tuning runs: learning rates, truncation, early stopping, evaluation and arguments."""

import json
import tomllib
from dataclasses import replace

import pytest
import safetensors.torch
import torch
import transformers

from unmask.checkpoints import huggingface
from unmask.errors import InputWarning, UserError
from unmask.finetuning import finetune as finetune_module
from unmask.finetuning.finetune import finetune
from unmask.inference.predictor import load
from unmask.model import load_model, save_model
from unmask.settings import parse_overrides
from unmask.training.loop import Trainer

from .conftest import CPU, run


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_rates_follow_the_depth(classifier, rows, tmp_path, kind):
    settings = [f"optimizer.kind={kind}", "optimizer.layer_decay=1e-3", "optimizer.learning_rate=1e-2"]
    tuned, before = (
        run(classifier, rows, tmp_path / "run", "budget.steps=1", "schedule.warmup=0", *settings),
        load_model(classifier),
    )
    moved = {
        name: float((value - before.encoder.state_dict()[name]).abs().max())
        for name, value in tuned.encoder.state_dict().items()
    }
    head = (tuned.heads["classification"]["out.weight"] - before.heads["classification"]["out.weight"]).abs().max()
    tops = [name for name in moved if name.startswith("blocks.1.")]
    assert min(head, moved["pooler.weight"]) > 1e-4
    assert max(moved[name] for name in moved if not name.startswith(("blocks.1.", "pooler."))) < 1e-7
    assert 0 < max(moved[name] for name in tops) < 2e-5


def test_texts_are_truncated_at_inference_as_in_training(classifier, rows, tmp_path):
    run(classifier, rows, tmp_path / "run", "budget.steps=1")
    assert json.loads((tmp_path / "run/model/tokenizer_config.json").read_text())["model_max_length"] == 32
    model = load(tmp_path / "run")
    long = "the dog sees the cat near the sea . " * 6
    with pytest.warns(InputWarning, match="2 of 2 texts are longer than 32 tokens and were cut"):
        one, longer = model.predict([long, long + "the poem " * 9])
    assert one.scores == pytest.approx(longer.scores, abs=1e-6)


def test_the_head_of_a_tagger_is_not_read_as_a_classifier(recipe, tokenizer, tmp_path):
    shape = recipe.encoder
    config = transformers.BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        num_labels=3,
    )
    transformers.BertForTokenClassification(config).save_pretrained(tmp_path)
    assert set(huggingface.read(tmp_path).heads) == {"token_classification"}


def test_early_stopping_keeps_the_best_weights_and_reports_on_other_data(classifier, rows, tmp_path):
    settings = ["budget.steps=40", "budget.patience=2", "optimizer.learning_rate=0.3", "schedule.kind=constant"]
    finetune(
        "classification",
        classifier,
        [rows],
        tmp_path / "run",
        settings=parse_overrides(["task.length=32", *settings]),
        machine=CPU,
    )
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "heldout"]
    best = losses.index(min(losses))
    assert len(losses) == best + 3, "two evaluations without a lower loss end the run"
    assert len(losses) < 21
    kept = safetensors.torch.load_file(tmp_path / "run/checkpoints/best.safetensors")
    tuned = load_model(tmp_path / "run").encoder.state_dict()
    words = tuned.pop("embeddings.words.weight")
    assert all(torch.equal(value, kept[f"encoder.{name}"]) for name, value in tuned.items())
    used = kept["encoder.embeddings.words.weight"][:-1]  # of the tokens in the examples
    assert 20 < len(used) < len(words)
    assert all((row == words).all(1).any() for row in used)
    newest = max((tmp_path / "run/checkpoints").glob("step-*"))
    last = safetensors.torch.load_file(newest / "model.safetensors")
    assert not torch.equal(last["encoder.pooler.weight"], kept["encoder.pooler.weight"])
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 12


def test_a_subset_is_evaluated_during_training_and_all_samples_at_the_end(classifier, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune_module, "MAX_EVALUATED", 7)
    seen = []
    monkeypatch.setattr(Trainer, "_evaluate", lambda self: seen.append(sum(len(b.keys) for b in self.heldout)))
    options = {"dev": [rows], "machine": CPU, "quiet": True}
    settings = ["task.length=32", "budget.steps=1"]
    finetune("classification", classifier, [rows], tmp_path / "run", settings=parse_overrides(settings), **options)
    assert set(seen) == {7}
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 120


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
    given = {"settings": settings, "machine": CPU}
    finetune("classification", classifier, rows, tmp_path / "part", **given)
    printed = capsys.readouterr().err
    assert "108 training examples, 12 evaluation examples" in printed
    assert "12 of the examples were held out; to train on them too: --all" in printed
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
    with pytest.raises(UserError, match="no effect with --dev"):
        finetune("classification", classifier, rows, tmp_path / "x", dev=rows, all_examples=True, **given)


def test_early_stopping_still_holds_out_examples_of_all(classifier, rows, tmp_path):
    settings = {"task.length": 32, "budget.steps": 4, "budget.patience": 1}
    finetune("classification", classifier, rows, tmp_path / "run", all_examples=True, settings=settings, machine=CPU)
    assert (tmp_path / "run/checkpoints/best.safetensors").exists()


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
