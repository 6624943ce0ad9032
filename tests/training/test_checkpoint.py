"""A checkpoint is written completely or not at all: kills, full disks and damaged files lose no valid one."""

import errno
import os
import threading

import pytest
import torch

from unmask.support.errors import UnmaskError, UserError
from unmask.training import checkpoint
from unmask.training.checkpoint import (
    Progress,
    Saver,
    State,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
    set_newer_aside,
)

from .. import forking

pytestmark = pytest.mark.usefixtures("_frequent_checkpoints")


def tensors(step):
    return {"weight": torch.full((1000,), float(step))}


def save(folder, step):
    save_checkpoint(folder, State(tensors(step), tensors(-step), Progress(step=step, cursor=(0, step))))


def assert_holds(path, step):
    model, optimizer, progress, *_ = load_checkpoint(path)
    assert model["weight"].equal(tensors(step)["weight"])
    assert optimizer["weight"].equal(tensors(-step)["weight"])
    assert (progress.step, progress.cursor) == (step, (0, step))


KILLER = """
import os, signal, sys, warnings
from itertools import count
from pathlib import Path

import torch

from unmask.training import checkpoint
from unmask.training.checkpoint import Progress, State, finish_gathered, save_checkpoint, write_gathered
from unmask.training.processes import Processes

warnings.simplefilter("ignore")  # forking is intended


class Whole:  # stands for shards of which the main process has all
    processes = Processes()

    def shape(self, name, part):
        return part.shape

    def gather(self, name, part):
        return part


def save(folder, step):
    weight = torch.full((1000,), float(step))
    state = State({"weight": weight}, {"weight": -weight}, Progress(step=step, cursor=(0, step)))
    if sys.argv[2] == "whole":
        save_checkpoint(folder, state)
    else:
        write_gathered(folder, state, Whole())
        finish_gathered(folder, state.progress)


def save_killed(folder, limit):
    moments = count(1)

    def killing(call):
        def killed(*args, **settings):
            if next(moments) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **settings)
            if next(moments) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return killed

    places = [(checkpoint.shutil, "rmtree"), (os, "fsync"), (Path, "mkdir"), (Path, "rename")]
    places += [(checkpoint, "_write"), (checkpoint, "write_tensors"), (Whole, "gather")]
    for owner, name in places:
        setattr(owner, name, killing(getattr(owner, name)))
    save(folder, 4)


for limit in count(1):
    folder = Path(sys.argv[1]) / f"{limit:03d}"
    for step in (1, 2, 3):
        save(folder, step)
    if (child := os.fork()) == 0:
        save_killed(folder, limit)
        os._exit(0)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        break
"""


@pytest.mark.parametrize("weights", ["whole", "gathered"])
def test_T7_T8_kill_before_and_after_each_call_of_saving(tmp_path, weights):
    """The newest complete checkpoint loads: the previous one, or the new one once it is renamed."""
    assert forking.run(["-c", KILLER, tmp_path, weights]).returncode == 0
    loaded = []
    for folder in sorted(tmp_path.iterdir()):
        path, damaged = newest_checkpoint(folder)
        assert damaged == []
        loaded.append(int(path.name.removeprefix("step-")))
        assert_holds(path, loaded[-1])
        assert (folder / (folder / "latest").read_text()).is_dir(), "`latest` names an existing checkpoint"
        save(folder, 4)  # the remains of the kill do not interfere
        assert_holds(newest_checkpoint(folder)[0], 4)
        assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-00000003", "step-00000004"]
    assert len(loaded) > 25
    assert loaded == sorted(loaded)
    assert set(loaded) == {3, 4}
    assert loaded.count(4) > 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / "model.safetensors").write_bytes(b"x" + (path / "model.safetensors").read_bytes()[1:]),
        lambda path: os.truncate(path / "optimizer.safetensors", 100),
        lambda path: (path / "progress.json").unlink(),
        lambda path: (path / "manifest.json").write_text("{"),
        lambda path: (path / "manifest.json").unlink(),
    ],
    ids=["flipped", "cut", "missing", "manifest broken", "manifest missing"],
)
def test_T8_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "step-00000002")
    path, damaged = newest_checkpoint(tmp_path)
    assert_holds(path, 1)
    assert len(damaged) == 1
    assert "step-00000002" in damaged[0]
    damage(tmp_path / "step-00000001")
    with pytest.raises(UserError, match=r"no valid checkpoint.*step-00000002.*step-00000001"):
        newest_checkpoint(tmp_path)


def test_T17_the_newest_checkpoints_stay(tmp_path):
    for step in range(12):
        save(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000010", "step-00000011"]
    assert (tmp_path / "latest").read_text() == "step-00000011"


def test_T17_damaged_checkpoints_do_not_displace_valid_ones(tmp_path):
    for step in (20, 30):
        save(tmp_path, step)
        os.truncate(tmp_path / f"step-{step:08d}/model.safetensors", 100)
    save(tmp_path / "other", 10)
    (tmp_path / "other/step-00000010").rename(tmp_path / "step-00000010")
    set_newer_aside(newest_checkpoint(tmp_path)[0])
    for step in (11, 12):
        save(tmp_path, step)
        assert_holds(newest_checkpoint(tmp_path)[0], step)
        assert newest_checkpoint(tmp_path)[1] == []
        assert (tmp_path / (tmp_path / "latest").read_text()).is_dir()
    kept = sorted(path.name for path in tmp_path.glob("*step-*"))
    assert kept == ["damaged-step-00000020", "damaged-step-00000030", "step-00000011", "step-00000012"]


def test_T16_the_values_at_the_time_of_the_call_are_saved(tmp_path, monkeypatch):
    """The optimizer continues while the disk is slow."""
    go, writing = threading.Event(), checkpoint._write
    monkeypatch.setattr(checkpoint, "_write", lambda path, content: go.wait(60) and writing(path, content))
    weight, moment, progress = torch.ones(1000), torch.zeros(1000), Progress(step=1, cursor=(0, 1))
    with Saver(tmp_path) as saver:
        saver.save(State({"weight": weight}, {"weight": moment}, progress))
        weight.add_(1)
        moment.sub_(1)
        progress.step, progress.cursor = 2, (0, 2)
        assert not any(tmp_path.glob("step-*"))
        go.set()
    model, optimizer, saved, *_ = load_checkpoint(newest_checkpoint(tmp_path)[0])
    assert model["weight"].equal(torch.ones(1000))
    assert optimizer["weight"].equal(torch.zeros(1000))
    assert (saved.step, saved.cursor) == (1, (0, 1))


def test_T9_a_failure_in_the_background_is_raised_at_the_next_save_or_at_the_end(tmp_path, monkeypatch):
    saver, full = Saver(tmp_path), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(path, content):
        raise full

    save(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "_write", fail)
    saver.save(State(tensors(2), {}, Progress(step=2, cursor=(0, 2))))
    with pytest.raises(UnmaskError, match="No space left on device"):
        saver.save(State(tensors(3), {}, Progress(step=3, cursor=(0, 3))))
    with pytest.raises(UnmaskError, match="No space left on device"), saver:
        saver.save(State(tensors(4), {}, Progress(step=4, cursor=(0, 4))))
    assert_holds(newest_checkpoint(tmp_path)[0], 1)


@pytest.mark.parametrize("call", range(5))
def test_T9_disk_full_leaves_the_old_checkpoint(tmp_path, monkeypatch, call):
    save(tmp_path, 1)
    fsync, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(UnmaskError, match=r"No space left on device.*the previous one is intact.*resume") as error:
        save(tmp_path, 2)
    assert error.value.status == 1
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000001"]
    assert_holds(newest_checkpoint(tmp_path)[0], 1)
    save(tmp_path, 2)
    assert_holds(newest_checkpoint(tmp_path)[0], 2)
