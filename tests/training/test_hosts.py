"""Processes on two hosts that share no directory: two network namespaces, each with a run directory of its own."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import safetensors.torch

from .. import forking
from .test_processes import SETTINGS, assert_same, end, metrics, wait_for_step

PROGRAM = Path(__file__).with_name("connection_program.py")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
pytestmark = pytest.mark.timeout(600)


def ip(*words):
    """Run the command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def hosts():
    """Two network namespaces that are joined by a pair of virtual devices, by name."""
    names = [f"unmask-{os.getpid()}-{number}" for number in range(2)]
    devices = [f"um{os.getpid() % 10**8}-{number}" for number in range(2)]
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", devices[0], "netns", names[0], "type", "veth", "peer", "name", devices[1], "netns", names[1])
        for name, device, address in zip(names, devices, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", device, "up")
        yield list(zip(names, devices, strict=True))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.fixture
def start(hosts, text_file, tmp_path):
    """Starts a run on both hosts; only the first one has the text."""
    port = iter(range(29_600, 29_700))

    def started(out, *options, timeout=60, of_second=()):
        number = str(next(port))
        settings = [word for setting in [*SETTINGS, "tokenizer.vocabulary=150"] for word in ("--set", setting)]
        processes = []
        for rank, (namespace, _) in enumerate(hosts):
            text = text_file if rank == 0 else tmp_path / "not-here.txt"
            words = ["pretrain", "bert-tiny", "--text", text, "--out", out / str(rank), "--precision", "float32"]
            meeting = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": number}
            environment = os.environ | meeting | {"UNMASK_NAMESPACE": namespace, "UNMASK_TIMEOUT": str(timeout)}
            more = of_second if rank else ()
            processes.append(forking.start([PROGRAM, *words, *settings, *options, *more], env=environment))
        return processes

    return started


def test_T10_hosts_without_a_shared_directory_lose_a_step_at_most(start, tmp_path):
    """The main process is killed; the other host saves; both continue, and the numbers are those of a whole run."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    statuses, said = end(start(whole))
    assert statuses == [0, 0], said
    assert sorted(path.name for path in (whole / "1").iterdir() if not path.name.startswith(".")) == ["text"]
    processes = start(out)
    wait_for_step(out / "0", 8, processes)
    processes[0].send_signal(signal.SIGKILL)
    statuses, said = end(processes)
    assert statuses == [-signal.SIGKILL, 1], said
    assert "process 1 of 2 stops because another process has exited or does not respond (missing: 0)" in said[1]
    reached = metrics(out / "0")[0][-1]["step"]
    (rescued,) = (out / "1" / "checkpoints" / "rescued").glob("step-*")
    assert int(rescued.name.removeprefix("step-")) >= reached - 1
    assert f"step {int(rescued.name.removeprefix('step-'))} is saved; continue with the same command" in said[1]
    statuses, said = end(start(out, "--resume"))
    assert statuses == [0, 0], said
    assert "process 1 has saved step" in said[0]
    assert_same(out / "0", whole / "0")
    ours, theirs = (safetensors.torch.load_file(run / "0" / "model" / "model.safetensors") for run in (out, whole))
    assert all(value.equal(theirs[name]) for name, value in ours.items())


def test_T11_hosts_whose_connection_breaks_both_save_and_stop(start, hosts, tmp_path):
    out = tmp_path / "run"
    processes = start(out, "--set", "budget.steps=1000", timeout=4)  # it is not over when the connection breaks
    wait_for_step(out / "0", 6, processes)
    namespace, device = hosts[1]
    ip("-n", namespace, "link", "set", device, "down")
    try:
        statuses, said = end(processes, seconds=120)
    finally:
        ip("-n", namespace, "link", "set", device, "up")
    assert statuses == [1, 1], said
    for rank, text in enumerate(said):
        assert f"process {rank} of 2 stops because another process" in text
        assert f"(missing: {1 - rank})" in text
        assert "is saved; continue with the same command" in text


def test_T25_hosts_that_would_not_train_the_same_are_refused(start, tmp_path):
    different = ["--set", "seed=3", "--set", "optimizer.learning_rate=2e-3"]
    statuses, said = end(start(tmp_path / "run", of_second=different))
    assert statuses == [2, 2], said
    for text in said:
        assert "optimizer.learning_rate is 0.002, in process 0 it is 0.001; seed is 3, in process 0 it is 0" in text
    assert not (tmp_path / "run").exists()
