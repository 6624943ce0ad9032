"""The benchmark of grammar by minutes runs at toy size, with the product's default and with the Trainer."""

import json
from zipfile import ZipFile

import pytest


def test_budgets_in_minutes_and_in_tokens(benchmark_module, run_main, records, corpus, monkeypatch, tmp_path):
    benchmark, trainer = benchmark_module("grammar"), benchmark_module("trainer")
    shape = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64}
    monkeypatch.setattr(trainer, "SETTINGS", trainer.SETTINGS | {f"encoder.{key}": shape[key] for key in shape})
    monkeypatch.setattr(benchmark, "english_corpus", lambda folder, vocabulary, lowercase: corpus)
    monkeypatch.setattr(benchmark.common, "SHARED", tmp_path)
    (tmp_path / "probes").mkdir()
    pairs = [{"sentence_good": "the dog sees it", "sentence_bad": "it sees dog the", "UID": "order", "field": "syntax"}]
    with ZipFile(tmp_path / "probes/blimp.zip", "w") as archive:
        archive.writestr("data/order.jsonl", "".join(json.dumps(pair) + "\n" for pair in 3 * pairs))
    budgets = ["--minutes", "0.01", "0.02", "--millions", "0.008", "--seeds", "0", "1"]
    run_main(benchmark, "--runs", str(tmp_path / "runs"), *budgets, "--pairs", "2")
    *found, first, second = records("grammar")
    assert [(run["minutes"], run["engine"]) for run in found] == [
        (minutes, engine) for minutes in (0.01, 0.02) for engine in ("unmask", "trainer-tuned")
    ]
    for run in found:
        assert run["recipe"] == ("modernbert-tiny" if run["engine"] == "unmask" else "bert-mini")
        assert run["examples"] == 2 and 0 <= run["score"] <= 100
        assert run["tokens"] > 0 and run["seconds"] < 60 and 0 <= run["masked_lm_accuracy"] <= 1
    assert found[0]["masked_lm_loss"] != pytest.approx(found[1]["masked_lm_loss"])
    for seed, run in enumerate((first, second)):
        assert (run["engine"], run["millions"], run["seed"], run["recipe"]) == (
            "tokens",
            0.008,
            seed,
            "modernbert-mini",
        )
        assert run["tokens"] >= 8000 and run["examples"] == 2
    assert first["masked_lm_loss"] != second["masked_lm_loss"]
