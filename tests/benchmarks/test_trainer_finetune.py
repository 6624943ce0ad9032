"""The peers' loops at toy size."""

import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, load_model, save_model
from unmask.recipes.recipe import read_recipe

SMALL = {f"encoder.{name}": value for name, value in {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64}.items()}


@pytest.fixture
def peer(benchmark_module):
    return benchmark_module("trainer_finetune")


def test_the_trainer_pretrains_and_is_scored_as_our_runs_are(benchmark_module, corpus, tmp_path):
    pytest.importorskip("transformers")
    trainer = benchmark_module("trainer")
    recipe = read_recipe("bert-mini", {**trainer.SETTINGS, **trainer.DEFAULT, **SMALL})
    examples = trainer.concatenated(corpus)
    trainer.pretrain(recipe, corpus, tmp_path / "run", examples, {"per_device_train_batch_size": 4}, steps=2)
    loss = trainer.run(corpus, tmp_path / "run", 30, {}, {})
    last = trainer.logged(tmp_path / "run", "heldout")[-1]
    assert loss == last["loss"] and (last["step"], last["tokens"]) == (2, 2 * 4 * trainer.LENGTH)
    scores = trainer.score(load_model(tmp_path / "run"), corpus)
    assert scores["masked_lm_loss"] == pytest.approx(last["masked_lm_loss"], rel=1e-4)


def test_all_loops_learn_the_same_examples(peer, run_main, records, tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    body = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64).build(tokenizer.size)
    save_model(tmp_path / "start", Model(body, tokenizer), "card")
    rows = "text\tlabel\n" + "".join(f"the {('dog', 'cat')[n % 2]} {n}\t{('a', 'b')[n % 2]}\n" for n in range(40))
    (tmp_path / "rows.tsv").write_text(rows)
    monkeypatch.setattr(peer, "minilm", lambda: str(tmp_path / "start"))
    monkeypatch.setattr(peer, "SHARED", tmp_path)
    settings = {"budget.steps": 2, "task.length": 16}
    monkeypatch.setitem(peer.DATA, "sst2", ("classification", "accuracy", "rows.tsv", "rows.tsv", settings))
    run_main(peer, "sst2", "--seeds", "3", "--runs", str(tmp_path / "runs"))
    runs = records("parity")
    assert [(run["task"], run["method"], run["seed"], run["step"]) for run in runs] == [
        ("sst2", method, 3, 2) for method in ("unmask", "trainer")
    ]
    assert runs[0]["learning_rate"] == runs[1]["learning_rate"]
    assert all(0 <= run["score"] <= 100 and run["step_seconds"] > 0 for run in runs)
