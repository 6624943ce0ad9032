"""Fault drills of runs: full disks, lost workers, two programs in one directory, and resuming with other settings."""

import os

import pytest

from unmask.data.corpus.build import write_corpus
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UnmaskError, UserError
from unmask.support.settings import write
from unmask.training import checkpoint, loop
from unmask.training.restoring import MAY_CHANGE
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.pretraining.pretrain import fingerprint, pretrain_corpus

from .. import forking
from .conftest import CPU, assert_same_run, changed, metrics, run_command

pytestmark = pytest.mark.usefixtures("_frequent_checkpoints")


def test_T9_a_run_with_a_full_disk_goes_on_afterwards(tmp_path, corpus, recipe, monkeypatch):
    out, saving = tmp_path / "run", checkpoint.save_checkpoint

    def full(folder, state):
        if state.progress.step == 5:
            monkeypatch.setattr(checkpoint, "_write", lambda path, content: os.write(os.open("/dev/full", 1), content))
        return saving(folder, state)

    monkeypatch.setattr(checkpoint, "save_checkpoint", full)
    with pytest.raises(UnmaskError, match="No space left"):
        pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)
    monkeypatch.undo()
    pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    pretrain_corpus(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)
    assert_same_run(out, tmp_path / "whole")


def test_T18_two_jobs_in_one_directory(tmp_path, corpus, recipe):
    first = RunDirectory.create(tmp_path / "run", write(recipe), {}, {})
    with pytest.raises(UserError, match="another program is writing to this run"):
        RunDirectory.create(tmp_path / "run", write(recipe), {}, {})
    with pytest.raises(UserError, match="another program is writing to this run"):
        RunDirectory.resume(tmp_path / "run", write(recipe), {}, MAY_CHANGE)
    first.close()
    RunDirectory.resume(tmp_path / "run", write(recipe), {}, MAY_CHANGE).close()


def listing(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "events" not in path.parts}


def test_T19_whatever_differs_is_listed_and_refused(finished, corpus, documents, tokenizer, tmp_path):
    before = listing(finished)
    with pytest.raises(UserError, match="settings or inputs differ from those of the run") as error:
        pretrain_corpus(changed("seed=5", "optimizer.learning_rate=0.1"), corpus, finished, machine=CPU, resume=True)
    assert "optimizer.learning_rate was 0.001, now 0.1; seed was 0, now 5;" in str(error.value)
    assert str(finished) in str(error.value)
    shorter = tmp_path / "shorter.txt"
    shorter.write_text("\n\n".join(documents[:-1]))
    other = write_corpus([shorter], tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match=r"inputs\.corpus was \w+, now \w+"):
        pretrain_corpus(changed(), other, finished, machine=CPU, resume=True)
    with pytest.raises(UserError, match=r"inputs\.init was none, now \w+"):
        pretrain_corpus(changed(), corpus, finished, init=finished, machine=CPU, resume=True)
    assert listing(finished) == before


def test_T19_a_larger_budget_is_accepted(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    pretrain_corpus(changed(), corpus, out, machine=CPU, quiet=True)
    capsys.readouterr()
    pretrain_corpus(changed("budget.tokens=3000"), corpus, out, machine=CPU, resume=True)
    said = capsys.readouterr().err
    assert "the budget was 3 steps; the schedule continues to the new end" in said
    assert "resumed at step 3 of 6" in said
    lines = [line for line in metrics(out) if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["learning_rate"] for line in lines] == pytest.approx(
        [1e-3 * x for x in (1, 2 / 3, 1 / 3, 0.5, 1 / 3, 1 / 6)]
    )
    assert read_recipe(out / "recipe.toml").budget.tokens == 3000


def test_T21_resume_with_a_bad_path_is_never_a_fresh_start(tmp_path, corpus):
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(UserError, match=r"there is no run to resume; check out"):
            pretrain_corpus(changed(), corpus, tmp_path / name, machine=CPU, resume=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_T21_resume_without_a_checkpoint(tmp_path, corpus):
    inputs = {"corpus": fingerprint(corpus), "init": "none", "precision": "float32"}
    RunDirectory.create(tmp_path / "run", write(changed()), inputs, {}).close()
    with pytest.raises(UserError, match="before its first checkpoint; repeat its command without resume"):
        pretrain_corpus(changed(), corpus, tmp_path / "run", machine=CPU, resume=True, quiet=True)


@pytest.mark.parametrize("place", ["file/run", "file", "/proc/run", "/dev/null/run"])
def test_T22_a_directory_that_cannot_be_written_fails_before_the_first_step(tmp_path, corpus, place, monkeypatch):
    (tmp_path / "file").write_text("here")
    monkeypatch.setattr(loop.Trainer, "step", lambda self: pytest.fail("a step was taken"))
    with pytest.raises(UserError, match=r"cannot be written|is a file") as error:
        pretrain_corpus(changed(), corpus, tmp_path / place, machine=CPU, quiet=True)
    assert place in str(error.value)


def test_T22_checkpoints_that_cannot_be_written_fail_before_the_first_step(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(loop.Trainer, "step", lambda self: pytest.fail("a step was taken"))
    monkeypatch.setattr(checkpoint, "_write", lambda path, content: os.write(os.open("/dev/full", 1), content))
    with pytest.raises(UnmaskError, match="No space left"):
        pretrain_corpus(changed(), corpus, tmp_path / "run", machine=CPU, quiet=True)


LOST_WORKER = """
import os, signal, sys
from unmask.data.batches import steps
from unmask.cli.main import main
make = steps.Steps.make
def dying(self, samples, cursor):
    if cursor[2] > 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return make(self, samples, cursor)
steps.Steps.make = dying
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_worker_is_reported_and_the_run_can_be_resumed(command, unbroken, tmp_path):
    out = tmp_path / "run"
    done = forking.run(["-c", LOST_WORKER, *command[2:], "--out", str(out), "--workers", "1"])
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "a worker process that prepares batches died" in last
    assert "continue with --resume, with fewer --workers" in last
    run_command(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)
