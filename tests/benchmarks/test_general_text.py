"""The benchmark of general text runs at toy size."""

import json
import lzma

import pytest

import unmask


def test_a_model_is_adapted_in_both_ways(
    benchmark_module, run_main, records, monkeypatch, tmp_path, documents, text_file
):
    shape = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64, "positions": 128}
    settings = {f"encoder.{key}": value for key, value in shape.items()}
    settings |= {"tokenizer.vocabulary": 300, "layout.length": 64, "objective.next_sentence": False}
    settings |= {"layout.kind": "document_sentences", "budget.steps": 2, "batch.tokens": 256}
    unmask.pretrain("bert-tiny", text=text_file, out=tmp_path / "start", settings=settings, quiet=True)
    benchmark = benchmark_module("general_text")
    monkeypatch.setattr(benchmark.common, "SHARED", tmp_path)
    monkeypatch.setattr(benchmark, "CHARACTERS", 2000)
    monkeypatch.setitem(benchmark.TEXTS, "captions", lambda _: documents)
    (held := tmp_path / benchmark.HELDOUT).parent.mkdir(parents=True)
    with lzma.open(held, "wt") as file:
        file.write("".join(json.dumps({"text": text}) + "\n" for text in documents))
    run_main(
        benchmark, "captions", "--runs", str(tmp_path / "runs"), "--start", str(tmp_path / "start"), "--passes", "2"
    )
    runs = records("general_text")
    assert [(run["general_text"], run["start"]) for run in runs] == [("not scored", "start"), ("scored", "start")]
    assert runs[0]["share"] >= 0.7 and 0 <= runs[1]["share"] <= 1 and runs[0]["before"] == runs[1]["before"]
    for run in runs:
        assert run["text"] == "captions" and run["after"]["text"] > 0
        assert run["general_change"] == pytest.approx(run["after"]["general"] - run["before"]["general"])
