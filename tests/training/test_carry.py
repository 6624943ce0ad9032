"""Carried state is trained on, committed with the weights, saved, and distributed over processes."""

import json
import math
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.training import precision
from unmask.training.carry import CarryTable
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.training.evaluate import evaluate
from unmask.training.machine import Machine
from unmask.training.processes import Processes

from .. import forking
from . import remembering
from .remembering import STREAMS, Windows, learner_of, settings, trainer_of

CPU, BF16 = Machine(torch.device("cpu"), "float32"), Machine(torch.device("cpu"), "bf16")
PROGRAM = Path(remembering.__file__)


def rows(trainer):
    return {name: value.clone() for name, value in trainer.carry.rows.items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name


@pytest.mark.parametrize("machine", [CPU, BF16], ids=["float32", "bf16"])
def test_with_carried_state_the_model_learns_what_only_the_previous_window_shows(make_run, machine):
    one = trainer_of(make_run(), learner_of(), settings(150), machine=machine)
    one.start()
    one.train()
    assert one.run.read_metrics("heldout")[-1]["recall_accuracy"] > 0.97
    dtypes = {name: value.dtype for name, value in one.carry.rows.items()}
    assert dtypes == {"cue": machine.dtype, "mean": torch.float32}, "as the encoder returns them"
    assert_equal(load_checkpoint(newest_checkpoint(one.run.checkpoints)[0]).carry, one.carry.rows)


def test_without_carried_state_it_cannot(make_run):
    one = trainer_of(make_run(), learner_of(), settings(150), apart=True)
    one.start()
    one.train()
    assert one.run.read_metrics("heldout")[-1]["recall_accuracy"] < 0.45
    assert one.carry.rows == {}
    assert not (newest_checkpoint(one.run.checkpoints)[0] / "carry.safetensors").exists()


def test_evaluation_starts_its_own_state_and_leaves_that_of_training(make_run):
    one = trainer_of(make_run(), learner_of(), settings(150))
    one.start()
    for _ in range(40):
        one.step()
    before = rows(one)
    first = evaluate(one.learner, one.heldout, CPU)
    assert evaluate(one.learner, one.heldout, CPU) == first
    assert_equal(rows(one), before)
    backwards = evaluate(one.learner, one.heldout[::-1], CPU)
    assert backwards["recall_loss"] > first["recall_loss"] + 0.1, "the order matters"


def test_a_skipped_step_commits_neither_weights_nor_state(make_run):
    one = trainer_of(make_run(), learner_of(), settings(20))
    one.start()
    for _ in range(3):
        one.step()
    before, weights = rows(one), {name: value.clone() for name, value in one.learner.state_dict().items()}
    forward = one.learner.forward

    def poisoned(batch):
        loss = forward(batch)
        loss.update({name: part._replace(sum=part.sum * math.nan) for name, part in loss.items()})
        return loss

    one.learner.forward = poisoned
    one.step()
    one.learner.forward = forward
    assert one.progress.skipped == 1
    assert_equal(rows(one), before)
    assert_equal(one.learner.state_dict(), weights)
    one.step()
    assert not one.carry.rows["mean"].equal(before["mean"])


def test_measuring_leaves_no_trace_in_the_state(make_run, monkeypatch):
    monkeypatch.setattr(precision, "SMALL", 8)
    monkeypatch.setattr(precision, "PROBE", 16)
    monkeypatch.setattr(Machine, "matmul_peak", lambda self: 1e12)
    one = trainer_of(make_run(), learner_of(), settings(0, "auto", minutes=0.01))
    one.start()
    assert one.carry.rows == {}
    for _ in range(3):
        one.step()
    one.save()
    one.saver.wait()
    before = rows(one)
    one._fit()
    assert_equal(rows(one), before)
    one._seconds_per_step()
    assert_equal(rows(one), before)
    assert one.progress.step == 3


def test_a_stream_that_starts_again_has_the_initial_state(make_run):
    one = trainer_of(make_run(), learner_of(), settings(remembering.WINDOWS + 1), heldout=False)
    one.start()
    one.train()
    assert one.progress.cursor == (1, 1)
    first = collate(one.prepare(Windows().take((1, 0))[0]))
    rows = CarryTable(STREAMS).attach(first, one.learner).carry
    assert not rows["mean"].any()
    largest = one.carry.rows["mean"].abs().amax()
    assert largest <= 0.11 * one.learner.encoder.table.weight.abs().max(), "the mean over one window"


def launch(out, size=1, statuses=None, **options):
    """Run the program in `size` processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rendezvous = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    started = [
        forking.start(
            [PROGRAM, out, json.dumps(options)],
            env=os.environ | {"UNMASK_TIMEOUT": "60"} | rendezvous | {"RANK": str(rank)},
        )
        for rank in range(size)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in started]
    assert [process.returncode for process in started] == (statuses or [0] * size), errors


def losses(out):
    """Return the loss, 0 of a step without a target, and the norm of the gradient of each step."""
    lines = [msgspec.json.decode(line) for line in (out / "metrics.jsonl").read_bytes().splitlines()]
    found = {(line["kind"], line["step"]): [line["loss"] or 0.0, line.get("gradient_norm", 0.0)] for line in lines}
    assert len(found) == len(lines)
    return found


def assert_close(out, other, tolerance):
    ours, theirs = losses(out), losses(other)
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        assert ours[key] == pytest.approx(values, rel=tolerance, abs=tolerance), key
    ours, theirs = (load_checkpoint(newest_checkpoint(path / "checkpoints")[0]).carry for path in (out, other))
    assert ours.keys() == theirs.keys() == {"cue", "mean"}
    for name, value in theirs.items():
        assert value.shape == (STREAMS, 16)
        assert (ours[name] - value).abs().max() < 10 * tolerance, name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Uninterrupted runs of one process, in float32 and float64."""
    folder = tmp_path_factory.mktemp("whole")
    for double in (False, True):
        launch(folder / str(double), double=double)
    return {double: folder / str(double) for double in (False, True)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "double", [pytest.param(False, marks=pytest.mark.exhaustive), True], ids=["float32", "float64"]
)
@pytest.mark.parametrize(
    ("size", "micro_tokens"), [(1, 8), pytest.param(2, 1000, marks=pytest.mark.exhaustive), (2, 1)]
)
def test_processes_and_micro_batches_change_nothing(whole, tmp_path, size, micro_tokens, double):
    launch(tmp_path / "run", size, micro_tokens=micro_tokens, double=double)
    assert_close(tmp_path / "run", whole[double], 1e-11 if double else 1e-5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("micro_tokens", [8, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_sums_that_overlap_with_the_backward_pass_change_nothing(whole, tmp_path, micro_tokens):
    launch(tmp_path / "run", 2, micro_tokens=micro_tokens, double=True, overlapped=True)
    assert_close(tmp_path / "run", whole[True], 1e-11)


def files(out):
    path, damaged = newest_checkpoint(out / "checkpoints")
    assert damaged == []
    return path.name, {file.name: file.read_bytes() for file in path.glob("*.safetensors")}


@pytest.mark.timeout(300)
def test_T3_killed_runs_resume_bit_for_bit(whole, tmp_path):
    out = tmp_path / "run"
    launch(out, statuses=[-signal.SIGKILL], kill=7)
    launch(out, statuses=[-signal.SIGKILL], kill=28, resume=True)  # in the second epoch
    launch(out, resume=True)
    assert files(out) == files(whole[False])
    assert {"model.safetensors", "optimizer.safetensors", "carry.safetensors"} == files(out)[1].keys()
    assert losses(out) == losses(whole[False])


@pytest.mark.timeout(300)
def test_T4_another_number_of_processes_resumes(whole, tmp_path):
    out = tmp_path / "run"
    launch(out, 2, statuses=[-signal.SIGKILL] * 2, kill=8, double=True)
    launch(out, 3, statuses=[-signal.SIGKILL] * 3, kill=15, double=True, resume=True)
    launch(out, double=True, resume=True)
    assert_close(out, whole[True], 1e-11)


@pytest.mark.timeout(300)
def test_the_comparison_sees_state_that_is_lost(whole, tmp_path):
    out = tmp_path / "run"
    launch(out, statuses=[-signal.SIGKILL], kill=9)
    newest, _ = newest_checkpoint(out / "checkpoints")
    manifest = json.loads((newest / "manifest.json").read_bytes())
    del manifest["files"]["carry.safetensors"]
    (newest / "manifest.json").write_text(json.dumps(manifest))
    (newest / "carry.safetensors").unlink()
    launch(out, resume=True)
    with pytest.raises(AssertionError):
        assert_close(out, whole[False], 1e-5)


def test_the_table_of_several_processes(monkeypatch):
    """Stream s is row s // size of process s % size."""
    table = {"state": torch.arange(5.0).view(5, 1)}
    held = []
    for rank in range(2):
        one = CarryTable(5, Processes(rank, 2))
        one.load(table, torch.device("cpu"))
        held.append(one)
    assert [one.rows["state"].view(-1).tolist() for one in held] == [[0, 2, 4], [1, 3]]
    padded = [torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[1.0], [3.0], [9.0]])]
    monkeypatch.setattr(Processes, "collect", lambda self, tensor: padded)
    assert held[0].gather()["state"].equal(table["state"])
