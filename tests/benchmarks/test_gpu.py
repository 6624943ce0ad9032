"""The benchmark of GPUs runs at toy size on a CPU, where it also compares bf16 with float32."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ("families", "tensors", "speed", "finetuning", "inference")


@pytest.mark.bf16
@pytest.mark.exhaustive
@pytest.mark.minilm
@pytest.mark.shared
@pytest.mark.timeout(900)
def test_the_benchmark_of_gpus_checks_and_measures(tmp_path):
    command = [sys.executable, "benchmarks/gpu.py", "--toy", "--runs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check"')]
    by_check = {name: [it for it in records if it["check"] == name] for name in CHECKS}
    assert [it["recipe"] for it in by_check["families"]] == ["xlnet", "elmo"]
    assert all(0 < it["apart"]["bf16"] < 0.02 for it in by_check["families"])
    assert "gradient of " in by_check["tensors"][0]["largest_difference"]["bf16"][1]
    ours, theirs = by_check["speed"]
    assert (ours["engine"], theirs["engine"]) == ("unmask", "trainer")
    assert ours["case"] == theirs["case"] == "bert-tiny, length 128, 2 sequences per step"
    assert ours["tokens"] == theirs["tokens"] == 2 * 2 * 128
    assert (ours["precision"], ours["largest_step"]) == ("bf16", 256)
    assert ours["micro_tokens"] >= 256, "a step is one micro-batch"
    assert [it["engine"] for it in by_check["finetuning"]] == ["unmask float32", "trainer float32"]
    assert [it["engine"] for it in by_check["inference"]] == ["unmask float32", "unmask bf16", "transformers bf16"]
    assert ours.keys() >= {"synchronizations", "kernels"}
