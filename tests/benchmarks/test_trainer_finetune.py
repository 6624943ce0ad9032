"""The peers' loops at toy size; the Trainer's loss of answers, over the passage alone, and batches with its mask."""

import pytest
import torch
from torch.nn.functional import cross_entropy

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
    settings = {**trainer.SETTINGS, **trainer.DEFAULT, **SMALL, "budget.steps": 2}
    trainer.pretrain(read_recipe("bert-mini", settings), corpus, tmp_path / "run", {"per_device_train_batch_size": 4})
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


def test_the_loss_is_over_the_passage_alone(peer):
    starts, ends = (torch.randn(2, 6, requires_grad=True) for _ in range(2))
    candidates = torch.tensor([[True, False, False, True, True, True], [True, False, True, True, False, False]])
    gold = torch.tensor([4, 2]), torch.tensor([5, 3])
    loss = peer._passage_loss((starts, ends), candidates, gold)
    expected = []
    for logits, answers in ((starts, gold[0]), (ends, gold[1])):
        for row, inside, answer in zip(logits, candidates, answers, strict=True):
            expected.append(cross_entropy(row[inside], inside[:answer].sum()))
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    for gradient in torch.autograd.grad(loss, (starts, ends)):
        assert gradient[~candidates].eq(0).all()
        assert gradient[candidates].ne(0).all()


def test_masks_are_padded_like_their_texts(peer):
    def collate(examples):
        assert all("candidates" not in one for one in examples)
        return {"texts": len(examples)}

    masks = [torch.tensor([True, False]), torch.tensor([True, True, True])]
    examples = [{"input_ids": [1] * len(mask), "candidates": mask} for mask in masks]
    batch = peer._with_candidates(collate)(examples)
    assert batch["texts"] == 2
    assert batch["candidates"].tolist() == [[True, False, False], [True, True, True]]
    assert peer._with_candidates(collate)([{"input_ids": [1]}]) == {"texts": 1}
