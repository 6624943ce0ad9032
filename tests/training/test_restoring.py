"""Checkpoints of runs whose processes were lost: who saves, where, and what a resumed run reads."""

import pytest
import torch

from unmask.support.errors import UserError
from unmask.training.checkpoint import Progress, Saver, State, newest_checkpoint, save_checkpoint
from unmask.training.restoring import open_run, read_newest, rescue
from unmask.training.runs.directory import RESCUED
from unmask.training.runs.display import Display

from .conftest import CPU, started
from .together import together

RECIPE = 'name = "x"\nseed = 1\n'


def state(step):
    weights = {"w": torch.full((2, 3), float(step)), "scalar": torch.tensor(step), "empty": torch.zeros(0, 4)}
    moments, best = {"m": torch.full((5,), -float(step)).bfloat16()}, {"w": weights["w"] + 1}
    return State(weights, moments, Progress(step=step, cursor=(0, step)), best=best)


def lost(root, missing, step=7, *, shared=False, carries=False, size=3, recipe=RECIPE):
    """Start a run in several processes and lose some; return what the others say."""

    def work(processes):
        out = root / ("shared" if shared else f"host-{processes.rank}")
        with open_run(out, recipe, {}, CPU, processes, resume=False) as run:
            if processes.is_main:
                save_checkpoint(run.checkpoints, state(0))
            if processes.rank in missing:
                return None
            return rescue(run, Saver(run.checkpoints), state(step), CPU, processes, missing, carries=carries)

    return together(size, work)


def resumed(root, *, shared=False, size=3, recipe=RECIPE):
    """Resume it; return the state in each process."""

    def work(processes):
        out = root / ("shared" if shared else f"host-{processes.rank}")
        with open_run(out, recipe, {}, CPU, processes, resume=True) as run:
            return read_newest(run, processes, Display(quiet=True))[1]

    return together(size, work)


def assert_state(found, step):
    for one in found:
        assert one.progress == state(step).progress
        expected = state(step)
        for ours, theirs in zip(
            (one.model, one.optimizer, one.best), (expected.model, expected.optimizer, expected.best), strict=True
        ):
            assert ours.keys() == theirs.keys()
            assert all(ours[name].equal(value) and ours[name].dtype == value.dtype for name, value in theirs.items())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("missing", "saver"), [([1], 0), ([2, 1], 0), ([0], 1), ([0, 1], 2), ([], 0)])
def test_T10_the_first_survivor_saves_and_all_continue_from_it(tmp_path, missing, saver, shared):
    said = lost(tmp_path, missing, shared=shared)
    assert [bool(text and text.startswith("step 7 is saved; continue with")) for text in said] == [
        rank == saver for rank in range(3)
    ]
    assert_state(resumed(tmp_path, shared=shared), 7)
    assert not shared or not (tmp_path / "shared" / "checkpoints" / RESCUED).exists()


def test_T11_a_main_process_that_wakes_up_has_its_directory_for_itself(tmp_path):
    lost(tmp_path, [0], shared=True)
    folder = tmp_path / "shared" / "checkpoints"
    assert [path.name for path in folder.glob("step-*")] == ["step-00000000"]
    save_checkpoint(folder, state(7))  # by the main process
    assert_state(resumed(tmp_path, shared=True), 7)


def test_state_that_a_lost_process_carried_is_not_made_up(tmp_path):
    assert not any("is saved" in text for text in lost(tmp_path, [2], carries=True) if text)
    assert_state(resumed(tmp_path), 0)


def test_what_another_run_has_left_on_a_host_is_ignored(tmp_path):
    lost(tmp_path / "old", [0], step=50, recipe=RECIPE.replace("1", "2"))
    lost(tmp_path / "new", [1], step=3)
    (tmp_path / "old" / "host-1").rename(tmp_path / "new" / "host-1")
    assert_state(resumed(tmp_path / "new"), 3)


def test_C9_a_damaged_checkpoint_of_a_survivor_is_ignored(tmp_path):
    lost(tmp_path, [0])
    path = tmp_path / "host-1" / "checkpoints" / RESCUED / "step-00000007" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert_state(resumed(tmp_path), 0)


def test_a_survivor_whose_host_is_lost_too_leaves_the_run_as_it_was(tmp_path):
    lost(tmp_path, [0])
    (tmp_path / "host-1").rename(tmp_path / "gone")
    assert_state(resumed(tmp_path), 0)


def test_the_host_of_a_survivor_can_become_the_main_one(tmp_path):
    lost(tmp_path, [0])
    (tmp_path / "host-0").rename(tmp_path / "gone")
    (tmp_path / "host-1").rename(tmp_path / "host-0")
    assert_state(resumed(tmp_path), 7)


def test_T9_a_survivor_that_cannot_save_says_so(tmp_path, monkeypatch):
    (tmp_path / "host-1").write_text("a file")
    said = lost(tmp_path, [0])
    assert said[1].startswith("step 7 could not be saved (")


def test_no_checkpoint_at_all_is_an_error_of_the_main_process(tmp_path):
    lost(tmp_path, [1])
    path, _ = newest_checkpoint(tmp_path / "host-0" / "checkpoints")
    for other in path.parent.glob("step-*"):
        (other / "manifest.json").unlink()
    error, *others = resumed(tmp_path)
    assert isinstance(error, UserError)
    assert "no valid checkpoint" in str(error)
    assert all(isinstance(other, Exception) for other in others)


def test_an_evaluation_in_which_a_process_was_lost_is_made_up_for(small, trainer):
    """Also if the run is resumed with another distribution or size of micro-batches."""
    one = started(trainer, small(budget={"steps": 3}), heldout=True)
    one.step()
    one.save()
    one.saver.wait()
    again = trainer(small(budget={"steps": 3}, batch={"micro_tokens": 100}), heldout=True, resume=True)
    again.complete(resume=True)
    assert [line["step"] for line in again.run.read_metrics("heldout")] == [0, 1, 2, 3]
