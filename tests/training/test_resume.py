"""Fault drills of resuming: a run that is killed and resumed equals an uninterrupted one, to the bit."""

import os
import random
import signal
import subprocess

import pytest

from unmask.data.batches import sources
from unmask.support.errors import UnmaskError
from unmask.support.settings import write
from unmask.training import loop, restoring
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from .. import forking
from .conftest import CPU, STEPS, assert_same_run, changed, run_command, stop

pytestmark = pytest.mark.usefixtures("_frequent_checkpoints")


def test_T24_kill_at_a_random_moment_and_resume_gives_the_same_run(command, unbroken, tmp_path):
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    step = random.Random(seed).randrange(1, STEPS)
    out = tmp_path / "run"
    returned, _ = stop(command, out, signal.SIGKILL, step)
    assert returned in (-signal.SIGKILL, 0)
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"train","step":')  # a line truncated by the kill
    run_command(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)


KILLS = """
import os, random, signal, sys, time
from itertools import count
from pathlib import Path

import torch

from unmask.data.corpus.corpus import open_corpus
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.recipes.recipe import read_recipe
from unmask.training import checkpoint, loop
from unmask.training.machine import Machine

recipe, corpus, out, unbroken, seed, fifths = sys.argv[1:]
rng = random.Random(int(seed))


def often():
    loop.SAVE_SECONDS = 0  # a checkpoint after each step


def train(folder, before):
    before()
    resume = any(Path(folder, "checkpoints").glob("step-*"))
    machine = Machine(torch.device("cpu"), "float32")
    pretrain_corpus(read_recipe(recipe), open_corpus(corpus), folder, machine=machine, quiet=True, resume=resume)
    os._exit(0)


def killing(limit):
    often()
    moments = count(1)

    def wrap(call):
        def killed(*args, **settings):
            if next(moments) == limit:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **settings)

        return killed

    places = [(checkpoint.shutil, "rmtree"), (os, "fsync"), (checkpoint, "_write"), (Path, "mkdir"), (Path, "rename")]
    for owner, name in places:
        setattr(owner, name, wrap(getattr(owner, name)))


def lines():
    path = Path(out, "metrics.jsonl")
    return path.read_bytes().count(b'"train"') if path.exists() else 0


def start(folder, before):
    if (child := os.fork()) == 0:
        train(folder, before)
    return child


def end(child):
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def at_a_moment(steps, seconds):
    # `seconds` after the start, or after some steps
    child, limit = start(out, often), time.monotonic() + 60
    written = lines()  # of the log, which is first cut to the newest checkpoint
    while steps and lines() < written + steps and time.monotonic() < limit:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return end(child)


child = start(out, often)  # without a first checkpoint there is nothing to resume
while not any(Path(out, "checkpoints").glob("step-*")):
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
end(child)
plans = [("moment", rng.randrange(6), rng.uniform(0, 0.05)) for _ in range(3 * int(fifths))]
plans += [("save", rng.randrange(1, 45)) for _ in range(2 * int(fifths))]
rng.shuffle(plans)
for kind, *when in plans:
    killed = at_a_moment(*when) if kind == "moment" else end(start(out, lambda: killing(*when)))
    print(kind, *when, killed, flush=True)
print(*(end(start(folder, lambda: None)) for folder in (out, unbroken)))
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_T1_T7_T24_killed_again_and_again_and_still_the_same_run(corpus, tmp_path, kills):
    """Three fifths of the kills are at random moments, the others during saving, with a checkpoint after every step."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(write(changed(f"budget.steps={40 + 5 * kills}")))
    words = [recipe, corpus.directory, tmp_path / "run", tmp_path / "unbroken", seed, kills // 5]
    done = forking.run(["-c", KILLS, *words])
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    *attempts, last = done.stdout.splitlines()
    assert [line.split()[-1] for line in attempts] == ["True"] * kills, "each kill hit a running process"
    assert last == "False False"
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")


STAGES = "stages=[{ share = 0.5, layout = { length = 16 } }, { share = 0.5 }]"

PAIRS_LATER = """stages=[{ share = 0.5, layout = { kind = "document_sentences", length = 16 }, \
masking = { kind = "span", rate = 0.3, final_rate = 0.15 }, \
objective = { next_sentence = false, span_boundary = {}, masked_lm = { weight = 2.0 } } }, { share = 0.5 }]"""


def stay_in_the_first_stage(state):
    state.progress.cursor = (*state.progress.cursor[:3], 0)
    return state


def forget_the_total(state):
    state.progress.total += 2
    return state


SENTENCES = (STAGES, "layout.kind=document_sentences", "objective.next_sentence=false")


@pytest.mark.parametrize(
    ("stages", "fault"),
    [
        ((PAIRS_LATER,), None),
        pytest.param((STAGES,), None, marks=pytest.mark.exhaustive),
        pytest.param(SENTENCES, None, marks=pytest.mark.exhaustive),
        ((STAGES,), stay_in_the_first_stage),
        pytest.param((PAIRS_LATER,), forget_the_total, marks=pytest.mark.exhaustive),
        pytest.param((STAGES,), forget_the_total, marks=pytest.mark.exhaustive),
        pytest.param((PAIRS_LATER,), stay_in_the_first_stage, marks=pytest.mark.exhaustive),
        pytest.param(SENTENCES, stay_in_the_first_stage, marks=pytest.mark.exhaustive),
        pytest.param(SENTENCES, forget_the_total, marks=pytest.mark.exhaustive),
    ],
)
def test_T1_a_stop_after_each_step_of_each_stage(corpus, tmp_path, monkeypatch, stages, fault):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)  # several blocks
    recipe, out, step = changed("budget.steps=4", *stages), tmp_path / "run", loop.Trainer.step
    pretrain_corpus(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)

    def signalling(self):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    if fault:
        load = restoring.load_checkpoint
        monkeypatch.setattr(restoring, "load_checkpoint", lambda path: fault(load(path)))
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "step", signalling)
        for number in range(1, 5):
            with pytest.raises(UnmaskError, match=f"stopped and saved at step {number}"):
                pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True, resume=number > 1)
    pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    if fault is None:
        assert_same_run(out, tmp_path / "whole")
        return
    with pytest.raises(AssertionError):
        assert_same_run(out, tmp_path / "whole")


def skip_a_sample(state):
    *rest, item, stage = state.progress.cursor
    state.progress.cursor = (*rest, item + 1, stage)
    return state


def forget_the_moments(state):
    return state._replace(optimizer={})


def forget_a_step(state):
    state.progress.step -= 1
    return state


@pytest.mark.parametrize("fault", [None, skip_a_sample, forget_the_moments, forget_a_step])
def test_T1_planted_faults_of_a_resume_are_found(finished, corpus, tmp_path, monkeypatch, fault):
    recipe, out, step = changed(), tmp_path / "run", loop.Trainer.step

    def signalling(self):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match="stopped and saved at step 1"):
        patch.setattr(loop.Trainer, "step", signalling)
        pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)
    if fault:
        load = restoring.load_checkpoint
        monkeypatch.setattr(restoring, "load_checkpoint", lambda path: fault(load(path)))
    pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    if fault is None:
        assert_same_run(out, finished)
        return
    with pytest.raises(AssertionError):
        assert_same_run(out, finished)


def test_T24_planted_faults_are_found(command, unbroken, tmp_path):
    """The comparison detects a missing line, a repeated line and another loss."""
    for fault in (
        lambda lines: lines[:5] + lines[6:],
        lambda lines: lines[:5] + lines[4:],
        lambda lines: [*lines[:5], lines[5].replace(b'"loss":5', b'"loss":4'), *lines[6:]],
    ):
        out = tmp_path / "run"
        subprocess.run(["cp", "-r", unbroken, out], check=True)
        lines = (out / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        assert_same_run(out, unbroken)
        (out / "metrics.jsonl").write_bytes(b"".join(fault(lines)))
        with pytest.raises(AssertionError):
            assert_same_run(out, unbroken)
        subprocess.run(["rm", "-r", out], check=True)
