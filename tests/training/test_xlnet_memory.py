"""XLNet's memory: what only the previous window shows is learned with it, and not without; resumed and distributed."""

import signal

import pytest
import torch

from unmask.nn.encoders.two_streams import REMEMBERED
from unmask.training.checkpoint import load_checkpoint, newest_checkpoint
from unmask.training.machine import Machine

from .remembering import STREAMS, learner_of, settings, trainer_of
from .test_carry import files, launch, losses


def trained(make_run, steps, machine=None, **others):
    one = trainer_of(make_run(), learner_of(xlnet=True), settings(steps), machine=machine, **others)
    one.start()
    one.train()
    return one


@pytest.mark.parametrize("precision", ["float32", pytest.param("bf16", marks=pytest.mark.exhaustive)])
def test_with_memory_the_next_token_is_known(make_run, precision):
    one = trained(make_run, 150, Machine(torch.device("cpu"), precision))
    assert one.run.read_metrics("heldout")[-1]["recall_accuracy"] > 0.97
    saved = load_checkpoint(newest_checkpoint(one.run.checkpoints)[0]).carry
    assert saved.keys() == {"memory.0", "memory.1", REMEMBERED}
    assert saved["memory.1"].shape == (STREAMS, 3, 16)


def test_without_memory_it_is_a_guess(make_run):
    one = trained(make_run, 50, apart=True)
    assert one.run.read_metrics("heldout")[-1]["recall_accuracy"] < 0.45
    assert one.carry.rows == {}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of one process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    launch(folder, xlnet=True)
    return folder


@pytest.mark.timeout(300)
def test_T3_killed_runs_resume_bit_for_bit(whole, tmp_path):
    out = tmp_path / "run"
    launch(out, xlnet=True, statuses=[-signal.SIGKILL], kill=9)
    launch(out, xlnet=True, statuses=[-signal.SIGKILL], kill=27, resume=True)  # in the second epoch
    launch(out, xlnet=True, resume=True)
    assert files(out) == files(whole)
    assert losses(out) == losses(whole)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("size", "micro_tokens"), [pytest.param(1, 8, marks=pytest.mark.exhaustive), (2, 1000)])
def test_processes_and_micro_batches_change_nothing(whole, tmp_path, size, micro_tokens):
    out = tmp_path / "run"
    launch(out, size, xlnet=True, micro_tokens=micro_tokens)
    ours, theirs = losses(out), losses(whole)
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        assert ours[key] == pytest.approx(values, rel=1e-4, abs=1e-4), key
    found, expected = (load_checkpoint(newest_checkpoint(path / "checkpoints")[0]).carry for path in (out, whole))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-3)
