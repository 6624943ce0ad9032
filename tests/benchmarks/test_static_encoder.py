"""The benchmark of static encoders runs at toy size."""

from unmask.data.labelled.columns import SIMILARITY
from unmask.families.bert import BertSettings
from unmask.model.model import Model, build_encoder, save_model


def test_it_scores_a_model_and_its_static_encoder(
    benchmark_module, run_main, records, monkeypatch, tmp_path, tokenizer
):
    static = benchmark_module("static_encoder")
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64)
    save_model(tmp_path / "m", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    lines = [f"{number % 5}.0\tthe dog {'sees ' * number}\tthe cat {'sees ' * (number % 3)}" for number in range(12)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    assert SIMILARITY.fits(lines[0].split("\t"))
    monkeypatch.setattr(static, "SHARED", tmp_path)
    monkeypatch.setattr(static, "DATA", {"toy": ["pairs.tsv"], "SICK": ["pairs.tsv"]})
    monkeypatch.setattr(static, "minilm", lambda: str(tmp_path / "m"))
    run_main(static, "--rounds", "1")
    runs = records("static_encoder")
    assert [(run["encoder"], run["data"]) for run in runs] == [
        (kind, name) for kind in ("model", "static") for name in ("toy", "SICK")
    ]
    assert all(run["examples"] == 12 and run["texts_per_cpu_second"] > 0 for run in runs)
