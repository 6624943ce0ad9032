"""A run survives kills, signals, full disks and mistakes: nothing is lost, nothing repeated, nothing silently other."""

import errno
import filecmp
import os
import random
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest
import torch

from unmask.batches import sources, steps
from unmask.corpus.build import build_corpus
from unmask.errors import UnmaskError, UserError
from unmask.objectives.learner import Learner
from unmask.pretraining.pretrain import fingerprint, pretrain
from unmask.recipe import read_recipe
from unmask.runs.directory import RunDirectory
from unmask.settings import parse_overrides, write
from unmask.training import checkpoint, loop
from unmask.training.checkpoint import (
    Progress,
    Saver,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
    set_newer_aside,
)
from unmask.training.machine import Machine

CPU = Machine(torch.device("cpu"), "float32")
STEPS = 90
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def _a_checkpoint_after_each_evaluation(monkeypatch):
    monkeypatch.setattr(loop, "SAVE_PAUSE", 0)


def tensors(step):
    return {"weight": torch.full((1000,), float(step))}


def save(folder, step):
    save_checkpoint(folder, tensors(step), tensors(-step), Progress(step=step, cursor=(0, step)))


def assert_holds(path, step):
    model, optimizer, progress = load_checkpoint(path)
    assert model["weight"].equal(tensors(step)["weight"])
    assert optimizer["weight"].equal(tensors(-step)["weight"])
    assert (progress.step, progress.cursor) == (step, (0, step))


KILLER = """
import os, signal, sys, warnings
from itertools import count
from pathlib import Path

import torch

from unmask.training import checkpoint
from unmask.training.checkpoint import Progress, save_checkpoint

warnings.simplefilter("ignore")  # forking is meant


def save(folder, step):
    weight = {"weight": torch.full((1000,), float(step))}
    save_checkpoint(folder, weight, {"weight": -weight["weight"]}, Progress(step=step, cursor=(0, step)))


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

    places = [(checkpoint.shutil, "rmtree"), (os, "fsync"), (checkpoint, "_write"), (Path, "mkdir"), (Path, "rename")]
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


def test_T7_T8_kill_before_and_after_each_call_of_saving(tmp_path):
    """The newest whole checkpoint loads: the one before, or the new one as soon as it is renamed."""
    subprocess.run([sys.executable, "-c", KILLER, str(tmp_path)], env=ENVIRONMENT, check=True)
    loaded = []
    for folder in sorted(tmp_path.iterdir()):
        path, damaged = newest_checkpoint(folder)
        assert damaged == []
        loaded.append(int(path.name.removeprefix("step-")))
        assert_holds(path, loaded[-1])
        assert (folder / (folder / "latest").read_text()).is_dir(), "whatever `latest` names is there"
        save(folder, 4)  # and what the kill left behind is in nobody's way
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


def test_T17_damaged_checkpoints_push_no_valid_ones_out(tmp_path):
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


def test_T16_what_is_saved_are_the_values_of_the_call(tmp_path, monkeypatch):
    """The optimiser goes on while the disk is slow."""
    go, writing = threading.Event(), checkpoint._write
    monkeypatch.setattr(checkpoint, "_write", lambda path, content: go.wait(60) and writing(path, content))
    weight, moment, progress = torch.ones(1000), torch.zeros(1000), Progress(step=1, cursor=(0, 1))
    with Saver(tmp_path) as saver:
        saver.save({"weight": weight}, {"weight": moment}, progress)
        weight.add_(1)
        moment.sub_(1)
        progress.step, progress.cursor = 2, (0, 2)
        assert not any(tmp_path.glob("step-*"))
        go.set()
    model, optimizer, saved = load_checkpoint(newest_checkpoint(tmp_path)[0])
    assert model["weight"].equal(torch.ones(1000))
    assert optimizer["weight"].equal(torch.zeros(1000))
    assert (saved.step, saved.cursor) == (1, (0, 1))


def test_T9_a_failure_in_the_background_is_told_at_the_next_save_or_at_the_end(tmp_path, monkeypatch):
    saver, full = Saver(tmp_path), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(path, content):
        raise full

    save(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "_write", fail)
    saver.save(tensors(2), {}, Progress(step=2, cursor=(0, 2)))
    with pytest.raises(UnmaskError, match="No space left on device"):
        saver.save(tensors(3), {}, Progress(step=3, cursor=(0, 3)))
    with pytest.raises(UnmaskError, match="No space left on device"), saver:
        saver.save(tensors(4), {}, Progress(step=4, cursor=(0, 4)))
    assert_holds(newest_checkpoint(tmp_path)[0], 1)


def test_T13_a_second_sigterm_while_saving_changes_nothing(corpus, tmp_path, monkeypatch):
    recipe, out, writing = changed(), tmp_path / "run", checkpoint._write

    def signalling(path, content):
        os.kill(os.getpid(), signal.SIGTERM)
        writing(path, content)

    def step(self, step=loop.Trainer.step):
        os.kill(os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(checkpoint, "_write", signalling)
        return step(self)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match="stopped and saved at step 1") as error:
        patch.setattr(loop.Trainer, "step", step)
        pretrain(recipe, corpus, out, machine=CPU, quiet=True)
    assert error.value.status == 143
    monkeypatch.undo()
    path, damaged = newest_checkpoint(out / "checkpoints")
    assert (path.name, damaged) == ("step-00000001", [])
    pretrain(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    pretrain(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)
    assert_same_run(out, tmp_path / "whole")


@pytest.mark.parametrize(
    "shortage",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:116] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"
        ),
        MemoryError(),
    ],
    ids=["GPU", "CPU", "python"],
)
def test_T23_out_of_memory_keeps_the_checkpoint_and_names_the_setting(corpus, tmp_path, monkeypatch, shortage):
    recipe, out, forward = changed("batch.micro_tokens=300"), tmp_path / "run", Learner.forward

    def short(self, batch):
        if self.training:
            raise shortage
        return forward(self, batch)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match=r"out of memory with 300 tokens") as error:
        patch.setattr(Learner, "forward", short)
        pretrain(recipe, corpus, out, machine=CPU, quiet=True)
    assert "--set batch.micro_tokens=150, or --set batch.recompute=true" in str(error.value)
    assert newest_checkpoint(out / "checkpoints")[0].name == "step-00000000"
    remedied = changed("batch.micro_tokens=150", "batch.recompute=true")
    pretrain(remedied, corpus, out, machine=CPU, quiet=True, resume=True)
    assert len([line for line in metrics(out) if line["kind"] == "train"]) == 3


def test_another_error_is_not_taken_for_a_lack_of_memory(corpus, tmp_path, monkeypatch):
    def broken(self, batch):
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Learner, "forward", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        pretrain(changed("batch.micro_tokens=300"), corpus, tmp_path / "run", machine=CPU, quiet=True)


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
    with pytest.raises(UnmaskError, match=r"No space left on device.*the previous one is intact.*--resume") as error:
        save(tmp_path, 2)
    assert error.value.status == 1
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000001"]
    assert_holds(newest_checkpoint(tmp_path)[0], 1)
    save(tmp_path, 2)
    assert_holds(newest_checkpoint(tmp_path)[0], 2)


def test_T9_a_run_with_a_full_disk_goes_on_afterwards(tmp_path, corpus, recipe, monkeypatch):
    out, saving = tmp_path / "run", checkpoint.save_checkpoint

    def full(folder, model, optimizer, progress, carry):
        if progress.step == 5:
            monkeypatch.setattr(checkpoint, "_write", lambda path, content: os.write(os.open("/dev/full", 1), content))
        return saving(folder, model, optimizer, progress, carry)

    monkeypatch.setattr(checkpoint, "save_checkpoint", full)
    with pytest.raises(UnmaskError, match="No space left"):
        pretrain(recipe, corpus, out, machine=CPU, quiet=True)
    monkeypatch.undo()
    pretrain(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    pretrain(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)
    assert_same_run(out, tmp_path / "whole")


def test_T18_two_jobs_in_one_directory(tmp_path, corpus, recipe):
    first = RunDirectory.create(tmp_path / "run", write(recipe), {}, {})
    with pytest.raises(UserError, match="not empty"):
        RunDirectory.create(tmp_path / "run", write(recipe), {}, {})
    with pytest.raises(UserError, match="another program is writing to this run"):
        RunDirectory.resume(tmp_path / "run", write(recipe), {}, loop.MAY_CHANGE)
    first.close()
    RunDirectory.resume(tmp_path / "run", write(recipe), {}, loop.MAY_CHANGE).close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus):
    """A run of three steps."""
    out = tmp_path_factory.mktemp("finished") / "run"
    pretrain(changed(), corpus, out, machine=CPU, quiet=True)
    return out


def changed(*settings, name="bert-tiny"):
    inner = [] if name.startswith("gpt") else ["encoder.feed_forward=64"]  # GPT's is four times its width
    small = ["encoder.layers=1", "encoder.width=32", *inner, "encoder.positions=64"]
    small += ["layout.length=48", "batch.tokens=512", "optimizer.learning_rate=1e-3", "budget.steps=3"]
    return read_recipe(name, parse_overrides([*small, *settings]))


def metrics(run):
    return [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]


def listing(run):
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and "events" not in path.parts}


def test_T19_whatever_differs_is_listed_and_refused(finished, corpus, documents, tokenizer, tmp_path):
    before = listing(finished)
    with pytest.raises(UserError, match="settings or inputs differ from those of the run") as error:
        pretrain(changed("seed=5", "optimizer.learning_rate=0.1"), corpus, finished, machine=CPU, resume=True)
    assert "optimizer.learning_rate was 0.001, now 0.1; seed was 0, now 5;" in str(error.value)
    assert str(finished) in str(error.value)
    shorter = tmp_path / "shorter.txt"
    shorter.write_text("\n\n".join(documents[:-1]))
    other = build_corpus([shorter], tokenizer, tmp_path / "corpus")
    with pytest.raises(UserError, match=r"inputs\.corpus was \w+, now \w+"):
        pretrain(changed(), other, finished, machine=CPU, resume=True)
    with pytest.raises(UserError, match=r"inputs\.init was none, now \w+"):
        pretrain(changed(), corpus, finished, init=finished, machine=CPU, resume=True)
    assert listing(finished) == before


def test_T19_a_larger_budget_is_accepted(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    pretrain(changed(), corpus, out, machine=CPU, quiet=True)
    capsys.readouterr()
    pretrain(changed("budget.tokens=3000"), corpus, out, machine=CPU, resume=True)
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
        with pytest.raises(UserError, match=r"there is no run to resume; check --out"):
            pretrain(changed(), corpus, tmp_path / name, machine=CPU, resume=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_T21_resume_without_a_checkpoint(tmp_path, corpus):
    inputs = {"corpus": fingerprint(corpus), "init": "none", "precision": "float32"}
    RunDirectory.create(tmp_path / "run", write(changed()), inputs, {}).close()
    with pytest.raises(UserError, match="there is no valid checkpoint to resume from; start the run again"):
        pretrain(changed(), corpus, tmp_path / "run", machine=CPU, resume=True, quiet=True)


@pytest.mark.parametrize("place", ["file/run", "file", "/proc/run", "/dev/null/run"])
def test_T22_a_directory_that_cannot_be_written_fails_before_the_first_step(tmp_path, corpus, place, monkeypatch):
    (tmp_path / "file").write_text("here")
    monkeypatch.setattr(loop.Trainer, "step", lambda self: pytest.fail("a step was taken"))
    with pytest.raises(UserError, match=r"cannot be written|not empty") as error:
        pretrain(changed(), corpus, tmp_path / place, machine=CPU, quiet=True)
    assert place in str(error.value)


def test_T22_checkpoints_that_cannot_be_written_fail_before_the_first_step(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(loop.Trainer, "step", lambda self: pytest.fail("a step was taken"))
    monkeypatch.setattr(checkpoint, "_write", lambda path, content: os.write(os.open("/dev/full", 1), content))
    with pytest.raises(UnmaskError, match="No space left"):
        pretrain(changed(), corpus, tmp_path / "run", machine=CPU, quiet=True)


# The program itself, stopped from outside.


@pytest.fixture(scope="module")
def command(corpus, tmp_path_factory):
    """The command line of a run, without --out."""
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(write(changed(f"budget.steps={STEPS}", "optimizer.bias_correction=false")))
    options = ["--corpus", str(corpus.directory), "--precision", "float32", "--quiet"]
    return [sys.executable, "-m", "unmask", "pretrain", str(path), *options]


def run(command, *options):
    done = subprocess.run([*command, *options], env=ENVIRONMENT, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def unbroken(command, tmp_path_factory):
    """The run that was never stopped."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    run(command, "--out", str(out))
    return out


def stop(command, out, number, step):
    """Start a run, send it a signal once it has logged a step, and return how it ended."""
    process = subprocess.Popen([*command, "--out", str(out)], env=ENVIRONMENT, stderr=subprocess.PIPE)
    log, limit = out / "metrics.jsonl", time.monotonic() + 120
    while process.poll() is None and time.monotonic() < limit:
        if log.exists() and log.read_bytes().count(b'"train"') >= step:
            process.send_signal(number)
            break
        time.sleep(0.002)
    said = process.communicate(timeout=120)[1].decode()
    return process.returncode, said


def assert_same_run(run, unbroken):
    """Weights and losses to the bit; each step and each evaluation exactly once."""
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        same = filecmp.cmp(run / "model" / name, unbroken / "model" / name, shallow=False)
        assert same, name  # not compared in the assertion: pytest would work out a difference of megabytes
    timing = ("seconds", "tokens_per_second", "flops_per_second")
    lines, expected = (
        [{key: value for key, value in line.items() if key not in timing} for line in metrics(path)]
        for path in (run, unbroken)
    )
    assert lines == expected


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_T1_T12_a_signal_saves_and_resume_gives_the_same_run(command, unbroken, tmp_path, number, status):
    out = tmp_path / "run"
    returned, said = stop(command, out, number, 7)
    assert returned == status, said
    assert said.splitlines()[-1].startswith("unmask: stopped and saved at step ")
    assert "Traceback" not in said
    assert "--resume" in said
    stopped = metrics(out)[-1]["step"]
    assert 7 <= stopped < STEPS
    assert newest_checkpoint(out / "checkpoints")[0].name == f"step-{stopped:08d}"
    run(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)


def test_T24_kill_at_a_random_moment_and_resume_gives_the_same_run(command, unbroken, tmp_path):
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    step = random.Random(seed).randrange(1, STEPS)
    out = tmp_path / "run"
    returned, _ = stop(command, out, signal.SIGKILL, step)
    assert returned in (-signal.SIGKILL, 0)
    with (out / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"train","step":')  # a line that the kill cut short
    run(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)


KILLS = """
import os, random, signal, sys, time
from itertools import count
from pathlib import Path

import torch

torch.set_num_threads(1)
import torch.utils.tensorboard  # what is imported late otherwise: in each child
torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True).step()

from unmask.corpus.corpus import open_corpus
from unmask.pretraining.pretrain import pretrain
from unmask.recipe import read_recipe
from unmask.training import checkpoint, loop
from unmask.training.machine import Machine

recipe, corpus, out, unbroken, seed = sys.argv[1:]
rng = random.Random(int(seed))


def often():
    loop.SAVE_SECONDS = 0  # a checkpoint after each step


def train(folder, before):
    before()
    resume = any(Path(folder, "checkpoints").glob("step-*"))
    machine = Machine(torch.device("cpu"), "float32")
    pretrain(read_recipe(recipe), open_corpus(corpus), folder, machine=machine, quiet=True, resume=resume)
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
    # so long after the start, or after some steps
    child, limit = start(out, often), time.monotonic() + 60
    written = lines()  # cut down to the newest checkpoint first: at least so many steps are ahead
    while steps and lines() < written + steps and time.monotonic() < limit:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return end(child)


child = start(out, often)  # until the first save is done there is nothing to go on with
while not any(Path(out, "checkpoints").glob("step-*")):
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
end(child)
plans = [("moment", rng.randrange(12), rng.uniform(0, 0.1)) for _ in range(12)]
plans += [("save", rng.randrange(1, 90)) for _ in range(8)]
rng.shuffle(plans)
for kind, *when in plans:
    killed = at_a_moment(*when) if kind == "moment" else end(start(out, lambda: killing(*when)))
    print(kind, *when, killed, flush=True)
print(*(end(start(folder, lambda: None)) for folder in (out, unbroken)))
"""


LOST_WORKER = """
import os, signal, sys
from unmask.batches import steps
from unmask.cli.main import main
make = steps.Steps.make
def dying(self, samples, cursor):
    if cursor[2] > 20:
        os.kill(os.getpid(), signal.SIGKILL)
    return make(self, samples, cursor)
steps.Steps.make = dying
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_worker_is_told_and_the_run_goes_on_without(command, unbroken, tmp_path):
    out = tmp_path / "run"
    words = [*command[3:], "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", LOST_WORKER, *words, "--workers", "1"], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "a process that makes batches is gone" in last
    assert "go on with --resume, with fewer --workers" in last
    run(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)


@pytest.mark.timeout(900)
def test_T1_T7_T24_killed_twenty_times_and_still_the_same_run(corpus, tmp_path):
    """Twelve times at random moments, eight times between the calls of saving; a checkpoint after every step."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(write(changed("budget.steps=200")))
    words = [recipe, corpus.directory, tmp_path / "run", tmp_path / "unbroken", seed]
    done = subprocess.run(
        [sys.executable, "-c", KILLS, *map(str, words)], env=ENVIRONMENT, capture_output=True, text=True
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    *attempts, last = done.stdout.splitlines()
    assert [line.split()[-1] for line in attempts] == ["True"] * 20, "each kill met a run that was on its way"
    assert last == "False False"
    assert_same_run(tmp_path / "run", tmp_path / "unbroken")


@pytest.mark.parametrize("machine", [CPU, Machine(torch.device("cpu"), "bf16")], ids=["float32", "bf16"])
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("batch.micro_tokens=100",),
        ("layout.kind=document_sentences", "objective.next_sentence=false"),
        ("batch.sequences=7", "optimizer.bias_correction=false", "schedule.kind=constant"),
    ],
    ids=["pairs", "T6 pieces", "masked_lm alone", "sequences"],
)
def test_T1_T6_a_signal_in_the_middle_of_a_step(corpus, tmp_path, monkeypatch, settings, machine):
    check_a_signal_in_a_step(changed("budget.steps=5", *settings), corpus, tmp_path, monkeypatch, machine)


def check_a_signal_in_a_step(recipe, corpus, tmp_path, monkeypatch, machine):
    monkeypatch.setattr("unmask.pretraining.pretrain.plot_training", lambda run: None)  # takes longer than the steps
    pretrain(recipe, corpus, tmp_path / "whole", machine=machine, quiet=True)
    collate, calls = steps.collate, []

    def signalling(samples):
        calls.append(samples)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return collate(samples)

    monkeypatch.setattr(steps, "collate", signalling)
    with pytest.raises(
        UnmaskError, match=r"stopped and saved at step \d; continue with the same command and --resume"
    ) as error:
        pretrain(recipe, corpus, tmp_path / "run", machine=machine, quiet=True)
    assert error.value.status == 143
    pretrain(recipe, corpus, tmp_path / "run", machine=machine, quiet=True, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


NARROW = ["encoder.heads=2", "encoder.feed_forward=128", "encoder.embedding=16"]
FAMILY = {
    "electra-mini": [*NARROW, "objective.replaced_token.generator_size=0.5"],
    "spanbert-mini": NARROW[:2],
    "gpt-mini": NARROW[:1],
    "albert-mini": [*NARROW, "encoder.layers=2", "optimizer.kind=lamb"],
    "roberta-mini": [*NARROW[:2], "encoder.offset=1"],  # its padding has the id 1, that of this vocabulary 0
}


@pytest.mark.parametrize("name", FAMILY)
def test_T1_a_signal_in_a_step_of_each_of_the_family(corpus, tmp_path, monkeypatch, name):
    """With dropout; ALBERT with the optimiser of its paper; the masking rates of all but ELECTRA and GPT change."""
    recipe = changed("budget.steps=4", *FAMILY[name], name=name)
    check_a_signal_in_a_step(recipe, corpus, tmp_path, monkeypatch, CPU)


STAGES = "layout.stages=[{ share = 0.5, length = 16 }, { share = 0.5, length = 48 }]"


def stay_in_the_first_stage(model, optimizer, progress):
    progress.cursor = (*progress.cursor[:3], 0)
    return model, optimizer, progress


def forget_the_total(model, optimizer, progress):
    progress.total += 2
    return model, optimizer, progress


@pytest.mark.parametrize("fault", [None, stay_in_the_first_stage, forget_the_total])
@pytest.mark.parametrize("more", [(), ("layout.kind=document_sentences", "objective.next_sentence=false")])
def test_T1_a_stop_after_each_step_of_each_stage(corpus, tmp_path, monkeypatch, more, fault):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)  # several blocks
    recipe, out, step = changed("budget.steps=6", STAGES, *more), tmp_path / "run", loop.Trainer.step
    pretrain(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)

    def signalling(self):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    if fault:
        load = loop.load_checkpoint
        monkeypatch.setattr(loop, "load_checkpoint", lambda path: fault(*load(path)))
    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "step", signalling)
        for number in range(1, 7):
            with pytest.raises(UnmaskError, match=f"stopped and saved at step {number}"):
                pretrain(recipe, corpus, out, machine=CPU, quiet=True, resume=number > 1)
    pretrain(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    if fault is None:
        assert_same_run(out, tmp_path / "whole")
        return
    with pytest.raises(AssertionError):
        assert_same_run(out, tmp_path / "whole")


def skip_a_sample(model, optimizer, progress):
    *rest, item, stage = progress.cursor
    progress.cursor = (*rest, item + 1, stage)
    return model, optimizer, progress


def forget_the_moments(model, optimizer, progress):
    return model, {}, progress


def forget_a_step(model, optimizer, progress):
    progress.step -= 1
    return model, optimizer, progress


@pytest.mark.parametrize("fault", [None, skip_a_sample, forget_the_moments, forget_a_step])
def test_T1_planted_faults_of_a_resume_are_found(finished, corpus, tmp_path, monkeypatch, fault):
    recipe, out, step = changed(), tmp_path / "run", loop.Trainer.step

    def signalling(self):
        os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    with monkeypatch.context() as patch, pytest.raises(UnmaskError, match="stopped and saved at step 1"):
        patch.setattr(loop.Trainer, "step", signalling)
        pretrain(recipe, corpus, out, machine=CPU, quiet=True)
    if fault:
        load = loop.load_checkpoint
        monkeypatch.setattr(loop, "load_checkpoint", lambda path: fault(*load(path)))
    pretrain(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    if fault is None:
        assert_same_run(out, finished)
        return
    with pytest.raises(AssertionError):
        assert_same_run(out, finished)


def test_T24_planted_faults_are_found(command, unbroken, tmp_path):
    """A skipped sample, a repeated line, another weight: the comparison sees them."""
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
