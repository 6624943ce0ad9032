"""The benchmark of GPUs runs at toy size on a CPU, where it also compares bf16 with float32."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
@pytest.mark.minilm
def test_the_benchmark_of_gpus_checks_and_measures():
    command = [sys.executable, "benchmarks/gpu.py", "--toy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "'gradient of " in done.stdout
    ours, theirs = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"'))
    assert (ours["engine"], theirs["engine"]) == ("unmask", "trainer")
    assert ours["case"] == theirs["case"] == "bert-tiny, length 128, 2 sequences per step"
    assert ours["tokens"] == theirs["tokens"] == 2 * 2 * 128
    assert (ours["precision"], ours["largest_step"]) == ("bf16", 256)
    assert ours["micro_tokens"] >= 256, "a step is one micro-batch"
