import pytest

from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model

pytest.importorskip("starlette", reason="the extra serve is not installed")


def test_clients_measure_the_real_server(benchmark_module, records, run_main, tokenizer, tmp_path, monkeypatch):
    module = benchmark_module("serving")
    monkeypatch.setattr(module, "WARM_SECONDS", 0.0)
    monkeypatch.setattr(module, "TEXTS", 100)
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=512)
    save_model(tmp_path / "tiny", Model(shape.build(tokenizer.size), tokenizer), "card")
    monkeypatch.setattr(module, "minilm", lambda: str(tmp_path / "tiny"))
    for name, value in (("CLIENTS", 8), ("SIZES", (2,)), ("SECONDS", 0.3), ("ROUNDS", 1)):
        monkeypatch.setattr(module, name, value)
    run_main(module)
    (found,) = records("serving")
    assert found["share_of_engine"] > 0 and found["engine_texts_per_second"] > 0
    for load in ("full", "half"):
        assert set(found[load]["statuses"]) == {"200"}
        assert 0 < found[load]["p50_ms"] <= found[load]["p99_ms"]
    assert found["after"]["descriptors"] <= found["before"]["descriptors"] + 1
