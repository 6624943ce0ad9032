"""Gradients of several processes equal those of one, summed after or during the backward pass."""

import json
import os
import socket
from pathlib import Path

import pytest
import safetensors.torch

from .. import forking

PROGRAM = Path(__file__).with_name("replicas_program.py")


def launch(out, size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rendezvous = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    started = [forking.start([PROGRAM, out], env=os.environ | rendezvous | {"RANK": str(rank)}) for rank in range(size)]
    errors = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0] * size, errors


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """What two processes and one have written."""
    out = tmp_path_factory.mktemp("gradients")
    launch(out, 2)
    launch(out, 1)
    return out


@pytest.fixture(scope="module")
def found(out):
    """The gradients by "strategy-precision-rank"."""
    return {path.stem: safetensors.torch.load_file(path) for path in out.glob("*.safetensors")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("strategy", ["after", "overlapped"])
def test_two_processes_have_the_gradients_of_one(found, strategy, precision):
    first, second = (found[f"{strategy}-{precision}-{rank}"] for rank in range(2))
    alone = found[f"alone-{precision}-0"]
    second_head = {name for name in alone if "objectives.second.dense.weight" in name}
    assert {name[0] for name in second_head} == {"1", "2", "3"}, "not in a step without a target, nor in other stages"
    assert not any("idle" in name or "frozen" in name for name in alone)
    assert first.keys() == second.keys() == alone.keys()
    for name, value in alone.items():
        assert first[name].equal(second[name]), name
        # also in bf16, because the sums are float32
        assert (first[name] - value).abs().max() <= 1e-5 * value.abs().max(), name


@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the threads are listed on Linux only")
def test_no_thread_of_gloo_outlives_the_connection(out):
    """A thread that releases its tensors while Python shuts down would abort the process."""
    for rank in range(2):
        connected, after = json.loads((out / f"2-{rank}.json").read_text())
        assert any("gloo" in name for name in connected)
        assert not any("gloo" in name or "store" in name for name in after)
