"""Gradients of several processes are those of one, whether they are summed after the backward pass or during it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch

PROGRAM = Path(__file__).with_name("replicas_program.py")


def launch(out, size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(out)],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | meeting | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0] * size, said


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The gradients by "strategy-precision-rank"."""
    out = tmp_path_factory.mktemp("gradients")
    launch(out, 2)
    launch(out, 1)
    return {path.stem: safetensors.torch.load_file(path) for path in out.iterdir()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("strategy", ["after", "overlapped"])
def test_two_processes_have_the_gradients_of_one(found, strategy, precision):
    first, second = (found[f"{strategy}-{precision}-{rank}"] for rank in range(2))
    alone = found[f"alone-{precision}-0"]
    assert {"0.objectives.second.dense.weight", "2.objectives.second.dense.weight"} <= alone.keys()
    assert "3.objectives.second.dense.weight" not in alone, "nobody had a target"
    assert not any("idle" in name or "frozen" in name for name in alone)
    assert first.keys() == second.keys() == alone.keys()
    for name, value in alone.items():
        assert first[name].equal(second[name]), name
        # also in bf16, as what is summed is float32
        assert (first[name] - value).abs().max() <= 1e-5 * value.abs().max(), name
