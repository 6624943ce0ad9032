"""Several processes train as one does: the same samples, losses and weights; missing processes are reported."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import safetensors.torch

from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides, write
from unmask.training.checkpoint import newest_checkpoint

from .. import forking

pytestmark = pytest.mark.timeout(900)  # up to five processes, each of which imports torch
STEPS = 30
"""So many that a run goes on for a while after the steps for which the tests wait, also on a busy machine."""
SETTINGS = [
    "encoder.layers=1",
    "encoder.width=32",
    "encoder.heads=2",
    "encoder.feed_forward=64",
    "encoder.positions=64",
    "encoder.dropout=0.0",
    "layout.length=48",
    "batch.tokens=512",
    "optimizer.learning_rate=1e-3",
    "initial_embeddings=cooccurrence",  # computed by the first process, and received by the others
    f"budget.steps={STEPS}",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def command(corpus, tmp_path_factory):
    """Starts a run in several processes, as torchrun does, with `fork=False` each with an interpreter of its own."""
    folder = tmp_path_factory.mktemp("recipe")

    def start(out, size, *options, settings=(), program=("-m", "unmask"), fork=True, **environment):
        path = folder / f"{len(list(folder.iterdir()))}.toml"
        path.write_text(write(read_recipe("bert-tiny", parse_overrides([*SETTINGS, *settings]))))
        words = ["pretrain", str(path), "--corpus", str(corpus.directory), "--precision", "float32"]
        rendezvous = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        given = [*program, *words, "--out", str(out), *options]
        environments = [os.environ | rendezvous | {"RANK": str(rank)} | environment for rank in range(size)]
        if fork:
            return [forking.start(given, env=each) for each in environments]
        return [subprocess.Popen([sys.executable, *given], env=each, stderr=subprocess.PIPE) for each in environments]

    return start


def end(processes, seconds=600):
    """Wait for all processes; return their exit statuses and stderr."""
    said = [process.communicate(timeout=seconds)[1].decode() for process in processes]
    return [process.returncode for process in processes], said


def metrics(run):
    lines = [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    return [line for line in lines if line["kind"] == "train"], [line for line in lines if line["kind"] == "heldout"]


def wait_for_step(run, step, processes):
    limit = time.monotonic() + 600
    while time.monotonic() < limit and all(process.poll() is None for process in processes):
        if (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_bytes().count(b'"train"') >= step:
            return
        time.sleep(0.002)


def assert_same(run, other):
    for ours, theirs in zip(metrics(run), metrics(other), strict=True):
        assert [line["step"] for line in ours] == [line["step"] for line in theirs]
        for mine, its in zip(ours, theirs, strict=True):
            assert mine["tokens"] == its["tokens"]
            for name in ("loss", "masked_lm_loss", "next_sentence_loss"):
                assert mine[name] == pytest.approx(its[name], abs=1e-5), (name, mine["step"])


@pytest.fixture(scope="module")
def alone(command, tmp_path_factory):
    """The run of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert end(command(out, 1, "--quiet"))[0] == [0]
    assert len(metrics(out)[0]) == STEPS
    return out


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_any_number_of_processes_gives_the_same_losses(command, alone, tmp_path, size):
    out = tmp_path / "run"
    statuses, said = end(command(out, size, fork=size == 2))
    assert statuses == [0] * size, said
    assert all(text == "" for text in said[1:]), "only the main process prints"
    assert_same(out, alone)
    ours, theirs = (safetensors.torch.load_file(run / "model" / "model.safetensors") for run in (out, alone))
    for name, value in theirs.items():
        assert (ours[name] - value).abs().max() < 1e-4, name


ALONE = """
import sys
from unmask.cli.main import main
from unmask.training.processes import Processes
Processes.all_reduce_tensors = lambda self, tensors: None
sys.exit(main(sys.argv[1:]))
"""


def test_the_comparison_sees_gradients_that_are_not_summed(command, alone, tmp_path):
    out = tmp_path / "run"
    assert end(command(out, 2, program=["-c", ALONE]))[0] == [0, 0]
    with pytest.raises(AssertionError):
        assert_same(out, alone)


def test_T2_two_processes_stopped_and_resumed_give_the_very_numbers_of_an_unbroken_run(command, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "run"
    with_dropout = {"settings": ["encoder.dropout=0.1"]}
    assert end(command(whole, 2, **with_dropout))[0] == [0, 0]
    for number, status in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
        processes = command(out, 2, *(["--resume"] if out.exists() else []), **with_dropout)
        wait_for_step(out, 7 if number == signal.SIGTERM else 12, processes)
        for process in processes:
            process.send_signal(number)
        assert end(processes)[0] == [status] * 2
    assert 12 <= metrics(out)[0][-1]["step"] < STEPS
    assert end(command(out, 2, "--resume", **with_dropout))[0] == [0, 0]
    for ours, theirs in zip(metrics(out), metrics(whole), strict=True):
        assert [timeless(line) for line in ours] == [timeless(line) for line in theirs]
    ours, theirs = (safetensors.torch.load_file(run / "model" / "model.safetensors") for run in (out, whole))
    assert all(value.equal(theirs[name]) for name, value in ours.items())


FIRST = "layout={kind='document_sentences'},objective={next_sentence=false,span_boundary={}}"
PAIRS_LATER = f"stages=[{{share=0.5,{FIRST}}},{{share=0.5}}]"


@pytest.mark.exhaustive
def test_two_processes_with_stages_have_the_losses_of_one(command, tmp_path):
    """Heads begin and end in the middle of the run; it is stopped and resumed in its last stage."""
    staged = {"settings": [PAIRS_LATER, "optimizer.bias_correction=false"]}
    for name, size in (("one", 1), ("two", 2), ("stopped", 2)):
        processes = command(tmp_path / name, size, **staged)
        if name == "stopped":
            wait_for_step(tmp_path / name, 12, processes)
            for process in processes:
                process.terminate()
            assert end(processes)[0] == [143] * 2
            processes = command(tmp_path / name, size, "--resume", **staged)
        statuses, texts = end(processes)
        assert statuses == [0] * size, texts
    one, two, stopped = (metrics(tmp_path / name)[0] for name in ("one", "two", "stopped"))
    assert [timeless(line) for line in stopped] == [timeless(line) for line in two]
    for number, (mine, its) in enumerate(zip(two, one, strict=True)):
        assert mine.keys() == its.keys()
        assert ("span_boundary_loss" in mine, "next_sentence_loss" in mine) == (
            number < STEPS // 2,
            number >= STEPS // 2,
        )
        assert [mine[name] for name in mine if "_loss" in name] == pytest.approx(
            [its[name] for name in its if "_loss" in name], abs=1e-5
        )


def timeless(line):
    """Return a line without its times."""
    return {name: value for name, value in line.items() if "second" not in name}


def test_T4_T12_two_processes_then_one_then_two(command, alone, tmp_path):
    """Stopped by SIGTERM twice and resumed with another number of processes."""
    out = tmp_path / "run"
    for size, step in ((2, 5), (1, 10)):
        processes = command(out, size, *(["--resume"] if size == 1 else []))
        wait_for_step(out, step, processes)
        for process in processes:
            process.terminate()
        statuses, said = end(processes)
        assert statuses == [143] * size, said
        assert "stopped and saved at step" in said[0]
        assert newest_checkpoint(out / "checkpoints")[0].name == f"step-{metrics(out)[0][-1]['step']:08d}"
    assert 10 <= metrics(out)[0][-1]["step"] < STEPS
    assert end(command(out, 2, "--resume"))[0] == [0, 0]
    assert_same(out, alone)


def test_T10_a_killed_process_stops_the_others_and_the_run_goes_on(command, alone, tmp_path):
    out = tmp_path / "run"
    processes = command(out, 3, UNMASK_TIMEOUT="10")
    wait_for_step(out, 4, processes)
    processes[1].kill()
    statuses, said = end(processes, seconds=60)
    assert statuses == [1, -signal.SIGKILL, 1], said
    for rank in (0, 2):
        assert (
            f"process {rank} of 3 stops because another process has exited or does not respond (missing: 1)"
            in said[rank]
        )
    assert "Traceback" not in said[0] + said[2]
    assert end(command(out, 2, "--resume"))[0] == [0, 0]
    assert_same(out, alone)


@pytest.mark.parametrize("hangs", [pytest.param(1, marks=pytest.mark.exhaustive), 0])  # rank 0 hosts the store
def test_T11_a_process_that_hangs_is_named_within_the_time_limit(command, tmp_path, hangs):
    out = tmp_path / "run"
    processes = command(out, 2, UNMASK_TIMEOUT="7")
    wait_for_step(out, 3, processes)
    processes[hangs].send_signal(signal.SIGSTOP)
    status, said = end([processes[1 - hangs]], seconds=60)
    processes[hangs].kill()
    processes[hangs].communicate()
    assert status == [1]
    assert (
        f"process {1 - hangs} of 2 stops because another process has exited or does not respond (missing: {hangs})"
        in said[0]
    )


def test_T11_a_process_that_never_connects_is_reported_and_no_run_is_started(command, tmp_path):
    out = tmp_path / "run"
    processes = command(out, 2, UNMASK_TIMEOUT="4")
    processes[1].kill()
    statuses, said = end(processes, seconds=60)
    assert statuses == [1, -signal.SIGKILL]
    assert "process 0 of 2 could not connect to all others within 4 s" in said[0]
    assert "Traceback" not in said[0]
    assert not out.exists(), "so that torchrun can restart it"


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def test_T10_restarts_go_on_after_a_kill(command, alone, tmp_path):
    out = tmp_path / "run"
    (supervisor,) = processes = command(out, 1, "--restarts", "1")
    wait_for_step(out, 6, processes)
    (trains,) = children(supervisor)
    os.kill(trains, signal.SIGKILL)
    statuses, said = end(processes)
    assert statuses == [0], said
    assert "the process ended with status -9; restarts left: 1" in said[0]
    assert_same(out, alone)


@pytest.mark.parametrize("early", [True, False])
def test_T13_sigterm_ends_a_supervised_run_for_good(command, tmp_path, early):
    """Before and after the training has started."""
    out = tmp_path / "run"
    (supervisor,) = processes = command(out, 1, "--restarts", "3", settings=["budget.steps=100000"])
    if early:
        limit = time.monotonic() + 60
        while not children(supervisor) and time.monotonic() < limit:
            time.sleep(0.01)
    else:
        wait_for_step(out, 3, processes)
    supervisor.terminate()
    statuses, said = end(processes)
    assert statuses == [143], said
    assert "restarts left" not in said[0]


POISON = """
import os, sys
from unmask.cli.main import main
from unmask.objectives.learner import Learner
forward, calls = Learner.forward, []
def poisoned(self, batch):
    parts = forward(self, batch)
    calls.append(self.training)
    if os.environ["RANK"] == "1" and sum(calls) == 3:
        parts.update({name: part._replace(sum=part.sum * float("nan")) for name, part in parts.items()})
    return parts
Learner.forward = poisoned
sys.exit(main(sys.argv[1:]))
"""


def test_T15_a_loss_that_is_not_finite_in_one_process_is_skipped_by_all(command, tmp_path):
    """A process that took the step alone would have other weights than the rest."""
    out = tmp_path / "run"
    statuses, said = end(command(out, 2, program=["-c", POISON]))
    assert statuses == [0, 0], said
    assert said[0].count("the loss or gradient is not finite; the step is skipped") == 1
    train, _ = metrics(out)
    assert [line["step"] for line in train if line["learning_rate"] == 0] == [3]
    assert [line["loss"] is None for line in train] == [number == 3 for number in range(1, STEPS + 1)]
    first, last = (safetensors.torch.load_file(path / "model.safetensors") for path in checkpoints(out))
    assert all(value.isfinite().all() for value in last.values())
    assert any((value != first[name]).any() for name, value in last.items())


def checkpoints(run):
    return sorted((run / "checkpoints").glob("step-*"))


def test_T20_fewer_sequences_than_processes(command, tmp_path):
    statuses, said = end(command(tmp_path / "run", 2, settings=["batch.sequences=1"]))
    assert 2 in statuses
    assert any("a step of 1 sequences cannot be shared by 2 processes; start fewer processes" in text for text in said)


@pytest.mark.exhaustive
def test_torchrun_starts_again_after_a_crash(corpus, alone, tmp_path):
    """One of two processes kills itself once; torchrun restarts both, and they resume from the checkpoint."""
    out, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    recipe.write_text(write(read_recipe("bert-tiny", parse_overrides(SETTINGS))))
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "from unmask.cli.main import main\n"
        "from unmask.training import loop\n"
        "step = loop.Trainer.step\n"
        "def dying(self):\n"
        "    if self.progress.step == 8 and os.environ['RANK'] + os.environ['TORCHELASTIC_RESTART_COUNT'] == '10':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return step(self)\n"
        "loop.Trainer.step = dying\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["pretrain", str(recipe), "--corpus", str(corpus.directory), "--precision", "float32", "--out", str(out)]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", f"--master-port={free_port()}"]
    done = subprocess.run(
        [sys.executable, *torchrun, str(program), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1", "UNMASK_TIMEOUT": "20"},
        capture_output=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"resumed at step" in done.stderr
    assert_same(out, alone)
