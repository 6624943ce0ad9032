"""The benchmark of grammar by minutes runs at toy size, with the product's default, other shapes and the Trainer."""

import json
import lzma
from zipfile import ZipFile

import pytest


def test_budgets_in_minutes_and_in_tokens(benchmark_module, run_main, records, corpus, monkeypatch, tmp_path):
    benchmark, trainer = benchmark_module("grammar"), benchmark_module("trainer")
    shape = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64}
    monkeypatch.setattr(trainer, "SETTINGS", trainer.SETTINGS | {f"encoder.{key}": shape[key] for key in shape})
    sizes = []
    monkeypatch.setattr(benchmark, "english_corpus", lambda folder, size, lowercase: sizes.append(size) or corpus)
    changes = benchmark.BY_TOKENS["deep"][1]
    monkeypatch.setitem(changes, "encoder.layers", 2)
    monkeypatch.setattr(benchmark.common, "SHARED", tmp_path)
    (tmp_path / "probes").mkdir()
    (tmp_path / "text/wikipedia").mkdir(parents=True)
    with lzma.open(tmp_path / "text/wikipedia/heldout.jsonl.xz", "wt") as file:
        file.write(json.dumps({"text": "the dog sees it"}) + "\n")
    with ZipFile(tmp_path / "probes/blimp.zip", "w") as archive:
        for name, end in (("order", "."), ("asked", "?")):
            pair = {"sentence_good": f"the dog sees it{end}", "sentence_bad": f"it sees dog the{end}", "UID": name}
            archive.writestr(f"data/{name}.jsonl", 3 * (json.dumps(pair) + "\n"))
    budgets = ["--minutes", "0.01", "0.02", "--millions", "0.008", "--seeds", "1"]
    run_main(benchmark, "--runs", str(tmp_path / "runs"), *budgets, "--pairs", "2")
    found, by_tokens = records("grammar")[:4], records("grammar")[4:]
    assert [(run["minutes"], run["engine"]) for run in found] == [
        (minutes, engine) for minutes in (0.01, 0.02) for engine in ("unmask", "trainer-tuned")
    ]
    for run in found:
        assert run["recipe"] == ("modernbert-tiny" if run["engine"] == "unmask" else "bert-mini")
        assert run["examples"] == 4 and 0 <= run["score"] <= 100
        assert run["score"] == pytest.approx((run["score_questions"] + run["score_others"]) / 2)
        assert run["paradigms_questions"] == run["paradigms_others"] == 1
        assert run["tokens"] > 0 and run["seconds"] < 60 and 0 <= run["masked_lm_accuracy"] <= 1
    assert found[0]["masked_lm_loss"] != pytest.approx(found[1]["masked_lm_loss"])
    arms = ["tokens", "deep", "large-vocabulary"]
    assert [(run["seed"], run["engine"]) for run in by_tokens] == [(1, arm) for arm in arms]
    for run in by_tokens:
        assert (run["millions"], run["recipe"], run["examples"]) == (0.008, "modernbert-mini", 4)
        assert run["tokens"] >= 8000 and run["bits"] > 0 and 0 <= run["questions_in_text"] < 1
    assert set(sizes) == {8000, 16000}
    as_it_is, deep, large = by_tokens
    assert deep["masked_lm_loss"] != as_it_is["masked_lm_loss"]
    assert large["masked_lm_loss"] == as_it_is["masked_lm_loss"], "the corpus is the same here"
    recipe = (tmp_path / "runs/grammar/deep-0.008-1/recipe.toml").read_text()
    assert "seed = 1" in recipe and "layers = 2" in recipe and "width = 192" in recipe
