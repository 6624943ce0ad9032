"""The benchmark of labels by their names runs at toy size."""

import json
import lzma

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model


def test_labels_by_their_names(benchmark_module, records, tokenizer, tmp_path, monkeypatch):
    module = benchmark_module("no_labels")
    torch.manual_seed(0)
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=48, init_std=0.3)
    save_model(tmp_path / "body", Model(shape.build(tokenizer.size), tokenizer), "card")
    monkeypatch.setattr(module, "minilm", lambda: str(tmp_path / "body"))
    monkeypatch.setattr(module, "SHARED", tmp_path)
    (tmp_path / "pairs" / "snli").mkdir(parents=True)
    pairs = [
        {"sentence1": f"the {noun} sees the cat", "sentence2": f"a {noun}", "gold_label": label}
        for noun in ("dog", "river", "poem", "house")
        for label in ("entailment", "neutral", "contradiction")
    ]
    for name in (module.TRAIN, module.TEST):
        with lzma.open(tmp_path / name, "wt") as file:
            file.write("\n".join(map(json.dumps, pairs)))
    module.entailment(model := tmp_path / "nli")
    examples = [module.Labelled(*one) for one in (("the dog", "0"), ("the cat", "1"), ("a river", "0"))]
    module.measure("toy", model, examples, {"dog": "0", "cat": "1"})
    first, second = records("no_labels")
    assert (first["data"], first["chance"]) == ("snli", pytest.approx(100 / 3))
    assert second["accuracy"] in (0, pytest.approx(100 / 3), pytest.approx(200 / 3), 100)
    assert second["interval"][0] <= second["accuracy"] <= second["interval"][1]
    assert (second["labels"], second["chance"]) == ("dog, cat", pytest.approx(200 / 3))
