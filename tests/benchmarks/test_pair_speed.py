"""The benchmark of training on pairs runs at toy size."""

import json
import lzma
from importlib.util import find_spec

import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model


@pytest.mark.filterwarnings("ignore")  # of the other libraries
def test_both_engines_learn_from_the_same_pairs(
    benchmark_module, run_main, records, monkeypatch, tmp_path, tokenizer, documents
):
    """That of sentence-transformers only where the package datasets is, which it needs."""
    speed = benchmark_module("pair_speed")
    engines = speed.ENGINES if find_spec("datasets") else ["unmask"]
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=256)
    save_model(tmp_path / "m", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    folder = tmp_path / "shared" / "qa" / "squad"
    folder.mkdir(parents=True)
    texts = [f"{sentence} {number}." for number, text in enumerate(documents) for sentence in text.split(". ")][:30]
    paragraphs = [{"context": text, "qas": [{"question": text[:20]}]} for text in texts]
    with lzma.open(folder / "train_sample.json.xz", "wt") as file:
        json.dump({"data": [{"paragraphs": paragraphs}]}, file)
    monkeypatch.setattr("common.SHARED", tmp_path / "shared")
    monkeypatch.setattr("common.apart", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(speed, "minilm", lambda: str(tmp_path / "m"))
    for name, value in (("AT_ONCE", 4), ("STEPS", 3), ("ROUNDS", 1)):
        monkeypatch.setattr(speed, name, value)
    run_main(speed, *engines, "--sizes", "4", "14")
    runs = records("pair_speed")
    expected = [(engine, size, steps) for size, steps in ((4, 3), (14, 2)) for engine in engines]
    assert [(run["engine"], run["size"], run["steps"]) for run in runs] == expected
    assert all(run["pairs_per_second"] > 0 and run["peak_bytes"] > 0 for run in runs)
