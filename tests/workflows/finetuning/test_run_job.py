"""Fine-tuning runs: learning rates, truncation, early stopping and evaluation."""

import json

import pytest
import safetensors.torch
import torch
import transformers

from unmask.families.checkpoints import huggingface
from unmask.inference.evaluation.scoring import score_examples
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.support.errors import InputWarning
from unmask.support.settings import parse_overrides
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning import run_job as run_module
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.prepare import prepare

from .conftest import job_of, run


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


def test_a_line_says_how_more_of_long_texts_is_read(classifier, rows, tmp_path, capsys):
    for number, (settings, advised) in enumerate([({}, True), ({"windows": 4}, False)]):
        settings = {"budget.steps": 1, "task.length": 32} | {f"task.{key}": value for key, value in settings.items()}
        finetune("classification", classifier, [rows], tmp_path / str(number), settings=settings, device="cpu")
        assert ("to read 4 windows of each text" in capsys.readouterr().err) == advised


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
        device="cpu",
        precision="float32",
    )
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "heldout"]
    best = losses.index(min(losses))
    assert len(losses) == best + 3, "two evaluations without a lower loss end the run"
    assert len(losses) < 21
    newest = max((tmp_path / "run/checkpoints").glob("step-*"))
    kept = safetensors.torch.load_file(newest / "best.safetensors")
    tuned = load_model(tmp_path / "run").encoder.state_dict()
    words = tuned.pop("embeddings.words.weight")
    assert all(torch.equal(value, kept[f"encoder.{name}"]) for name, value in tuned.items())
    used = kept["encoder.embeddings.words.weight"][:-1]  # of the tokens in the examples
    assert 20 < len(used) < len(words)
    assert all((row == words).all(1).any() for row in used)
    last = safetensors.torch.load_file(newest / "model.safetensors")
    assert not torch.equal(last["encoder.pooler.weight"], kept["encoder.pooler.weight"])
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 12


def test_a_subset_is_evaluated_during_training_and_all_samples_at_the_end(classifier, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "MAX_EVALUATED", 7)
    seen = []
    monkeypatch.setattr(Trainer, "_evaluate", lambda self: seen.append(sum(len(b.keys) for b in self.heldout)))
    options = {"dev": [rows], "device": "cpu", "precision": "float32", "quiet": True}
    settings = ["task.length=32", "budget.steps=1"]
    finetune("classification", classifier, [rows], tmp_path / "run", settings=parse_overrides(settings), **options)
    assert set(seen) == {7}
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 120


@pytest.mark.bf16
def test_scores_that_depend_on_probabilities_are_those_of_float32(start, task, tmp_path):
    """Of a run in bf16, too, so that the report says what `evaluate` says: average precision, and what is soft."""
    soft = tmp_path / "soft.jsonl"
    texts = [line.split("\t")[0] for line in task.read_text().splitlines()[1:]]
    rows = [{"text": text, "label": {"a": len(text) % 8 / 8, "b": 1 - len(text) % 8 / 8}} for text in texts]
    soft.write_text("\n".join(map(json.dumps, rows)))
    machine, display = Machine(torch.device("cpu"), "bf16"), Display(quiet=True)
    for file in (task, soft):
        ready = prepare(job_of(start, file, frozen=False), machine, display, choosing=False)
        model, result = run_module.score_trained(ready, machine, display)
        assert result == score_examples(Predictor(model, Machine(torch.device("cpu"), "float32")), ready.data.held)
