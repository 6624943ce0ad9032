"""The benchmark of exports runs at toy size: they are compared with the model that they were made of."""

import pytest

from unmask.data.labelled.columns import SIMILARITY
from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model
from unmask.tasks.classification import Classification


@pytest.fixture
def run(tokenizer, tmp_path):
    """A classifier of texts with random weights, large enough to tell them apart."""
    task = Classification(length=32, pairs=False)
    body = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, init_std=0.5).build(tokenizer.size)
    head = task.build(body.settings.head, ("bad", "good"))
    model = Model(body, tokenizer, {task.part: head.published()}, ("bad", "good"), task)
    save_model(tmp_path / "run", model, "")
    return tmp_path / "run"


@pytest.mark.parametrize(
    "engine", ["torch float32", pytest.param("onnx float32", marks=pytest.mark.exhaustive), "onnx int8"]
)
def test_an_engine_is_compared_with_the_original(benchmark_module, run, documents, tmp_path, engine):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    rows = tmp_path / "rows.tsv"
    texts = [text.split(".")[0] for text in documents]
    rows.write_text("text\tlabel\n" + "".join(f"{text}\t{('bad', 'good')[len(text) % 2]}\n" for text in texts))
    found = benchmark_module("exports").compared(engine, run, rows, rows, tmp_path)
    assert found["examples"] == len(texts) and found["texts_per_second"] > 0
    low, high = found["interval"]
    assert low <= found["difference"] <= high
    if engine != "onnx int8":
        assert found["difference"] == 0 and low == -high  # equal on these examples, which are not all
    else:
        assert 0 <= found["score"] <= 100


def test_it_scores_a_model_and_its_static_encoder(
    benchmark_module, run_main, records, monkeypatch, tmp_path, tokenizer
):
    static = benchmark_module("exports")
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64)
    save_model(tmp_path / "m", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    lines = [f"{number % 5}.0\tthe dog {'sees ' * number}\tthe cat {'sees ' * (number % 3)}" for number in range(12)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    assert SIMILARITY.fits(lines[0].split("\t"))
    monkeypatch.setattr(static, "SHARED", tmp_path)
    monkeypatch.setattr(static, "PAIRS", {"toy": ["pairs.tsv"], "SICK": ["pairs.tsv"]})
    monkeypatch.setattr(static, "minilm", lambda: str(tmp_path / "m"))
    run_main(static, "static")
    runs = records("static_encoder")
    assert [(run["encoder"], run["data"]) for run in runs] == [
        (kind, name) for kind in ("model", "static") for name in ("toy", "SICK")
    ]
    assert all(run["examples"] == 12 and run["texts_per_cpu_second"] > 0 for run in runs)
