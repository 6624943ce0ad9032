"""The benchmark of search runs at toy size."""

import json
import lzma

import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.tasks.sparse import Sparse


@pytest.mark.parametrize(
    ("data", "parts", "table"),
    [("squad", ("dev-v1.1", "train_sample"), "search"), ("cmrc2018", ("dev", "train"), "search_cmrc")],
)
def test_it_compares_all_systems(
    data, parts, table, benchmark_module, run_main, records, monkeypatch, tmp_path, tokenizer, documents
):
    pytest.importorskip("bm25s", reason="BM25 needs bm25s")
    search = benchmark_module("search")
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=192)
    encoder = build_encoder(shape, tokenizer.size)
    head = Sparse().build_on(encoder, ())  # the masked-LM head
    save_model(tmp_path / "m", Model(encoder, tokenizer, {"masked_lm": head.published()}), "")
    folder = tmp_path / "shared" / "qa" / data
    folder.mkdir(parents=True)
    texts = [f"{sentence} {number}." for number, text in enumerate(documents) for sentence in text.split(". ")][:80]
    for name, part in zip(parts, (texts[:20], texts[20:]), strict=True):
        paragraphs = [{"context": text, "qas": [{"question": text[:20]}, {"question": text[3:30]}]} for text in part]
        with lzma.open(folder / f"{name}.json.xz", "wt") as file:
            json.dump({"data": [{"paragraphs": paragraphs}]}, file)
    monkeypatch.setattr(search.common, "SHARED", tmp_path / "shared")
    monkeypatch.setattr(search, "TAUGHT", 1)
    monkeypatch.setitem(search.HOW["cross-encoder"], "depth", 3)
    sizes = ("--runs", tmp_path / "runs", "--questions", 10, "--examples", 12)
    arguments = [*map(str, ("--data", data, "--start", tmp_path / "m", *sizes))]
    run_main(search, *arguments)
    runs = records(table)
    assert [run["system"] for run in runs] == list(search.NAMES) and {run["start"] for run in runs} == {"m"}
    assert all(run["queries"] == 10 and run["documents"] == 20 and 0 <= run["ndcg"] <= 100 for run in runs)
    assert runs[0]["ndcg"] > 50 and runs[0]["above_bm25"] is None
    by_name = {run["system"]: run for run in runs}
    assert by_name["in-batch"]["above_in_batch"] is None
    for other, name in (("above_bm25", "bm25"), ("above_in_batch", "in-batch")):
        difference = by_name["taught"]["ndcg"] - by_name[name]["ndcg"]
        assert by_name["taught"][other]["difference"] == pytest.approx(difference, abs=1e-9)
    assert all(len(run["interval"]) == 2 and run["milliseconds_per_query"] > 0 for run in runs)
    run_main(search, *arguments)  # what is finished is not computed again
    assert records(table) == runs
