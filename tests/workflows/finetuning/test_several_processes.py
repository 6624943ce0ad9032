"""Fine-tuning by two processes without a shared run directory: the scores of one, or an error with what differs."""

import json
import os
import socket

import pytest
import safetensors.torch

from ... import forking

pytestmark = pytest.mark.timeout(600)
SETTINGS = ["task.length=24", "batch.sequences=16", "budget.steps=4", "dropout=0.0"]


@pytest.fixture
def finetuned(start, task, tmp_path):
    """Fine-tunes in several processes, each with a run directory of its own; returns statuses and stderr."""

    def run(name, size, *options, of_last=(), train=None):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        meeting = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "UNMASK_TIMEOUT": "60"}
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        started = []
        for rank in range(size):
            last = rank == size - 1
            data = (train if last else None) or task
            words = ["-m", "unmask", "finetune", "classification", "--model", start, "--train", data, "--precision"]
            words += ["float32", "--out", tmp_path / f"{name}-{rank}", *settings, *options, *(of_last if last else ())]
            started.append(forking.start(words, env=os.environ | meeting | {"RANK": str(rank)}))
        said = [process.communicate(timeout=300)[1].decode() for process in started]
        return [process.returncode for process in started], said

    return run


def weights(path):
    return safetensors.torch.load_file(path / "model" / "model.safetensors")


@pytest.mark.parametrize(
    "options",
    [["--set", "budget.patience=2"], ["--frozen"], ["--columns", "text=text,label=label,weight=importance"]],
    ids=["patience", "frozen", "weights"],
)
def test_two_processes_have_the_scores_of_one(finetuned, tmp_path, options):
    """With early stopping the others receive the best weights, with a frozen encoder its features; weights of examples
    are relative to the mean of all of them, not of a process's share."""
    for name, size in (("one", 1), ("two", 2)):
        statuses, said = finetuned(name, size, *options)
        assert statuses == [0] * size, said
    one, two = (json.loads((tmp_path / f"{name}-0" / "dev.json").read_text())["metrics"] for name in ("one", "two"))
    assert one == pytest.approx(two, abs=1e-3)
    ours, theirs = weights(tmp_path / "two-0"), weights(tmp_path / "one-0")
    assert max((value - theirs[name]).abs().max() for name, value in ours.items()) < 1e-4
    left = {path.name for path in (tmp_path / "two-1").glob("[!.]*")} if (tmp_path / "two-1").exists() else set()
    assert left <= {"features"}


@pytest.mark.parametrize("of_last", [["--set", "seed=7"], "data"], ids=["seed", "data"])
def test_T25_processes_that_would_not_train_the_same_are_refused(finetuned, task, tmp_path, of_last):
    other = tmp_path / "other.tsv"
    other.write_text(task.read_text().replace("dog", "cow"))
    options = {"train": other} if of_last == "data" else {"of_last": of_last}
    statuses, said = finetuned("run", 2, "--set", "optimizer.learning_rate=1e-3", **options)
    assert statuses == [2, 2], said
    named = "inputs." if of_last == "data" else "seed is 7, in process 0 it is 0"
    assert all("the processes would not train the same: in process 1" in text and named in text for text in said)
    assert not list(tmp_path.glob("run-*"))
