"""What fine-tuning takes from a model and leaves with it: labels, their order, the length."""

import json

import msgspec
import pytest
import safetensors.torch
import torch
import transformers

from unmask.checkpoints import huggingface
from unmask.errors import InputWarning, UserError
from unmask.families.albert import AlbertSettings
from unmask.families.gpt import GptSettings
from unmask.finetuning import finetune as finetune_module
from unmask.finetuning.finetune import finetune
from unmask.finetuning.rule import defaults
from unmask.inference.predictor import load
from unmask.model import Model, build_encoder, load_model, save_model
from unmask.settings import parse_overrides
from unmask.tasks.classification import Classification, ClassificationHead
from unmask.training.loop import Trainer
from unmask.training.machine import choose_machine

CPU = choose_machine("cpu", "float32")


@pytest.fixture
def rows(tmp_path, documents):
    path = tmp_path / "rows.tsv"
    lines = [f"{text}\t{'long' if text.count('.') > 5 else 'brief'}\n" for text in documents]
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


@pytest.fixture
def start(tmp_path, recipe, tokenizer):
    """A classifier whose labels are not in alphabetical order."""
    encoder = build_encoder(recipe.encoder, tokenizer.size)
    heads = {"classification": ClassificationHead(recipe.encoder.head, 2).state_dict()}
    save_model(tmp_path / "start", Model(encoder, tokenizer, heads, ("long", "brief"), Classification(length=64)), "")
    return tmp_path / "start"


def run(start, rows, out, *settings):
    finetune(
        "classification",
        start,
        [rows],
        out,
        settings=parse_overrides(["task.length=32", *settings]),
        machine=CPU,
        quiet=True,
    )
    return load_model(out)


def test_the_model_fixes_the_order_of_its_labels_and_keeps_its_head(start, rows, tmp_path):
    tuned = run(start, rows, tmp_path / "run", "budget.steps=1", "optimizer.learning_rate=1e-9")
    assert tuned.labels == ("long", "brief")
    before, after = (model.heads["classification"]["out.weight"] for model in (load_model(start), tuned))
    assert (before - after).abs().max() < 1e-6


def test_other_labels_get_a_new_head(start, rows, tmp_path, capsys):
    rows.write_text(rows.read_text().replace("brief", "short"))
    finetune(
        "classification",
        start,
        [rows],
        tmp_path / "run",
        settings=parse_overrides(["task.length=32", "budget.steps=1"]),
        machine=CPU,
    )
    assert load_model(tmp_path / "run").labels == ("long", "short")
    assert "the classification head (its own is for long, brief)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_rates_follow_the_depth(start, rows, tmp_path, kind):
    settings = [f"optimizer.kind={kind}", "optimizer.layer_decay=1e-3", "optimizer.learning_rate=1e-2"]
    tuned, before = (
        run(start, rows, tmp_path / "run", "budget.steps=1", "schedule.warmup=0", *settings),
        load_model(start),
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


def test_texts_are_cut_in_use_where_they_were_cut_in_training(start, rows, tmp_path):
    run(start, rows, tmp_path / "run", "budget.steps=1")
    assert json.loads((tmp_path / "run/model/tokenizer_config.json").read_text())["model_max_length"] == 32
    model = load(tmp_path / "run")
    long = "the dog sees the cat near the sea . " * 6
    with pytest.warns(InputWarning, match="2 of 2 texts are longer than 32 tokens and were cut"):
        one, longer = model.predict([long, long + "the poem " * 9])
    assert one.scores == pytest.approx(longer.scores, abs=1e-6)


def test_a_tagger_is_no_classifier_of_texts(recipe, tokenizer, tmp_path):
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


@pytest.mark.parametrize(
    ("examples", "epochs", "sequences"), [(200, 20, 16), (1000, 7, 16), (8000, 3, 32), (60_000, 3, 32)]
)
def test_the_rule_depends_on_examples(recipe, examples, epochs, sequences):
    rule = defaults("classification", recipe.encoder, examples, pretrained=True)
    assert (rule["budget"], rule["batch"]) == ({"epochs": epochs}, {"sequences": sequences})


def test_the_rule_depends_on_width(recipe):
    def rate(width, pretrained):
        shape = msgspec.structs.replace(recipe.encoder, width=width)
        return defaults("classification", shape, 1000, pretrained=pretrained)["optimizer"]["learning_rate"]

    assert rate(768, True) == pytest.approx(5e-5)
    assert rate(192, True) == pytest.approx(1e-4)
    assert rate(768, False) == pytest.approx(2 * rate(768, True))


@pytest.mark.parametrize("layers", [0, 1])
def test_the_top_is_drawn_anew(start, rows, tmp_path, layers):
    still = ["budget.steps=1", "optimizer.learning_rate=1e-9", f"reset={layers}"]
    tuned, before = run(start, rows, tmp_path / "run", *still), load_model(start)
    moved = {
        name
        for name, value in tuned.encoder.state_dict().items()
        if (value - before.encoder.state_dict()[name]).abs().max() > 1e-4
    }
    assert {name.split(".")[0] for name in moved} == ({"pooler", "blocks"} if layers else {"pooler"})
    assert all(name.startswith(("pooler.", "blocks.1.")) for name in moved)
    with pytest.raises(UserError, match=r"reset = 3, but the model has 2 layers"):
        run(start, rows, tmp_path / "other", "reset=3")


def test_a_pooler_that_is_not_there_is_not_drawn_anew(recipe, tokenizer, rows, tmp_path):
    shape = GptSettings(layers=1, width=32, heads=2, positions=recipe.encoder.positions)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match=r"reset = 0 draws the pooler anew, but the model has none"):
        run(tmp_path / "start", rows, tmp_path / "run", "reset=0")


@pytest.mark.parametrize("shared", ["all", "attention", "feed_forward"])
def test_layers_that_share_their_weights_are_not_drawn_anew(recipe, tokenizer, rows, tmp_path, shared):
    shape = AlbertSettings(**msgspec.structs.asdict(recipe.encoder), shared=shared)
    save_model(tmp_path / "start", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    with pytest.raises(UserError, match=r"reset = 1 would draw lower layers anew too.*pass --set reset=0"):
        run(tmp_path / "start", rows, tmp_path / "run", "reset=1")
    run(tmp_path / "start", rows, tmp_path / "run", "reset=0", "budget.steps=1")


def test_early_stopping_takes_the_best_and_scores_on_other_data(start, rows, tmp_path):
    settings = ["budget.steps=40", "budget.patience=2", "optimizer.learning_rate=0.3", "schedule.kind=constant"]
    finetune(
        "classification",
        start,
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
    assert all(torch.equal(value, kept[f"encoder.{name}"]) for name, value in tuned.items())
    newest = max((tmp_path / "run/checkpoints").glob("step-*"))
    last = safetensors.torch.load_file(newest / "model.safetensors")
    assert not torch.equal(last["encoder.pooler.weight"], kept["encoder.pooler.weight"])
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 12


def test_few_held_out_samples_are_watched_and_all_are_scored(start, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(finetune_module, "WATCHED", 7)
    seen = []
    monkeypatch.setattr(Trainer, "_evaluate", lambda self: seen.append(sum(len(b.keys) for b in self.heldout)))
    options = {"dev": [rows], "machine": CPU, "quiet": True}
    settings = ["task.length=32", "budget.steps=1"]
    finetune("classification", start, [rows], tmp_path / "run", settings=parse_overrides(settings), **options)
    assert set(seen) == {7}
    assert json.loads((tmp_path / "run/dev.json").read_text())["examples"] == 120


def test_settings_as_text_are_refused_before_anything_is_read(tmp_path):
    with pytest.raises(UserError, match=r"settings must be a mapping .* write \{'budget.steps': 1\}$"):
        finetune("classification", "nowhere", "nothing.tsv", tmp_path / "run", settings=["budget.steps=1"])
    assert not (tmp_path / "run").exists()


def test_the_call_of_the_guide(start, rows, tmp_path):
    settings = {"seed": 1, "task.length": 32, "budget.steps": 1}
    out = finetune(
        "classification", model=start, train=rows, out=tmp_path / "run", dev=rows, settings=settings, quiet=True
    )
    assert out == tmp_path / "run/model"
    assert "seed = 1" in (tmp_path / "run/recipe.toml").read_text()
