"""The benchmark of inference runs at toy size, and its engines compute the same classifier."""

import shutil

import numpy as np
import pytest

pytestmark = pytest.mark.minilm


@pytest.mark.parametrize("name", ["unmask float32", "transformers float32"])
def test_an_engine_is_measured(benchmark_module, name):
    found = benchmark_module("inference").measure(name, "tiny", 6, 2)
    assert found["sentences_per_second"] > 0 and 0 < found["p50_ms"] <= found["p99_ms"]


def test_others_are_busy_meanwhile(benchmark_module, monkeypatch):
    module = benchmark_module("inference")
    started, start = [], module.subprocess.Popen

    def spy(*arguments):
        started.append(start(*arguments))
        return started[-1]

    monkeypatch.setattr(module.subprocess, "Popen", spy)
    with module.busy(2):
        assert [other.poll() for other in started] == [None, None]
    assert all(other.poll() for other in started)
    assert module.measure("unmask float32", "tiny", 3, 2, beside=1)["sentences_per_second"] > 0
    assert len(started) == 3 and started[-1].poll()


@pytest.mark.parametrize("peer", ["transformers", pytest.param("inductor", marks=pytest.mark.exhaustive)])
def test_the_engines_agree(benchmark_module, peer, tmp_path):
    if peer == "inductor" and not shutil.which("g++"):
        pytest.skip("it compiles")
    module = benchmark_module("inference")
    model = module.build("tiny", tmp_path)
    some = sorted(module.texts(6), key=len, reverse=True)
    ours, (theirs,) = (module.engine(f"{name} float32", model, tmp_path)(some) for name in ("unmask", peer))
    for one, logits in zip(ours, theirs, strict=True):
        odds = np.exp(logits) / np.exp(logits).sum()
        assert one.label == ("no", "yes")[int(logits.argmax())]
        assert abs(max(one.scores.values()) - odds.max()) < 1e-4
