"""The benchmark of long texts runs at toy size, and both engines compute the same model."""

import numpy as np
import pytest

pytestmark = pytest.mark.minilm


@pytest.fixture
def module(benchmark_module, monkeypatch):
    module = benchmark_module("long_texts")
    for name, value in (("STEPS", 1), ("STEP", 256), ("READ", 256)):
        monkeypatch.setattr(module, name, value)
    return module


def test_a_step_has_as_many_tokens_at_each_length(module, work):
    found = module.train("unmask", 128)
    assert set(work.micro_batches) == {(2,)}
    assert ("fused", "float32") in work.kernels
    assert found["tokens_per_second"] > 0 and found["peak_bytes"] > 1e8
    assert [module.work(length).sequences for length in (64, 128, 256)] == [4, 2, 1]
    assert module.work(64).recipe().encoder.positions == max(module.LENGTHS)


@pytest.mark.parametrize("engine", ["unmask", "transformers"])
def test_a_classifier_reads_texts_of_the_length(engine, module):
    pytest.importorskip("transformers")
    found = module.infer(engine, 128)
    assert found["tokens_per_second"] > 0 and found["peak_bytes"] > 1e8


def test_engines_compute_the_same_classifier(module, minilm, tmp_path):
    pytest.importorskip("transformers")
    text = module.random_texts(module.unmask.load_tokenizer(minilm), np.array([198]), np.random.default_rng(0))
    (ours,), ((logits,),) = (module.classifier(name, 200, tmp_path / name)(text) for name in ("unmask", "transformers"))
    shares = np.exp(logits) / np.exp(logits).sum()
    assert ours.scores == pytest.approx(dict(zip(("no", "yes"), shares.tolist(), strict=True)), abs=1e-5)
