"""The benchmark of GPUs runs; here at toy size on a CPU, where it also checks bf16 against float32."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.minilm
def test_the_benchmark_of_gpus_checks_and_measures():
    command = [sys.executable, "benchmarks/gpu.py", "--toy"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "'gradient of " in done.stdout
    assert "'case': 'bert-tiny, 128 tokens, 2 sequences a step'" in done.stdout
