"""A signal finishes the step, saves, and sets the exit status; the resumed run equals an uninterrupted one."""

import os
import signal
import threading

import pytest
import torch

from unmask.data.batches import steps
from unmask.support.errors import UnmaskError
from unmask.training import checkpoint, loop
from unmask.training.checkpoint import newest_checkpoint
from unmask.training.interrupt import Interrupt, Interrupted
from unmask.training.machine import Machine
from unmask.workflows.pretraining.pretrain import pretrain_corpus

from .conftest import CPU, STEPS, assert_same_run, changed, metrics, run_command, stop

pytestmark = pytest.mark.usefixtures("_frequent_checkpoints")


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
        pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True)
    assert error.value.status == 143
    monkeypatch.undo()
    path, damaged = newest_checkpoint(out / "checkpoints")
    assert (path.name, damaged) == ("step-00000001", [])
    pretrain_corpus(recipe, corpus, out, machine=CPU, quiet=True, resume=True)
    pretrain_corpus(recipe, corpus, tmp_path / "whole", machine=CPU, quiet=True)
    assert_same_run(out, tmp_path / "whole")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_T1_T12_a_signal_saves_and_resume_gives_the_same_run(command, unbroken, tmp_path, number, status):
    out = tmp_path / "run"
    returned, stderr = stop(command, out, number, 7)
    assert returned == status, stderr
    assert stderr.splitlines()[-1].startswith("unmask: stopped and saved at step ")
    assert "Traceback" not in stderr
    assert "--resume" in stderr
    stopped = metrics(out)[-1]["step"]
    assert 7 <= stopped < STEPS
    assert newest_checkpoint(out / "checkpoints")[0].name == f"step-{stopped:08d}"
    run_command(command, "--out", str(out), "--resume")
    assert_same_run(out, unbroken)


BF16 = Machine(torch.device("cpu"), "bf16")
SETTINGS = {
    "pairs": (),
    "T6 micro-batches": ("batch.micro_tokens=100",),
    "masked_lm alone": ("layout.kind=document_sentences", "objective.next_sentence=false"),
    "sequences": ("batch.sequences=7", "optimizer.bias_correction=false", "schedule.kind=constant"),
}


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        *((CPU, "pairs"), (BF16, "T6 micro-batches"), (CPU, "masked_lm alone"), (CPU, "sequences")),
        pytest.param(BF16, "pairs", marks=pytest.mark.exhaustive),
        pytest.param(CPU, "T6 micro-batches", marks=pytest.mark.exhaustive),
        pytest.param(BF16, "masked_lm alone", marks=pytest.mark.exhaustive),
        pytest.param(BF16, "sequences", marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: value if isinstance(value, str) else value.precision,
)
def test_T1_T6_a_signal_in_the_middle_of_a_step(corpus, tmp_path, monkeypatch, name, machine):
    check_a_signal_in_a_step(changed("budget.steps=5", *SETTINGS[name]), corpus, tmp_path, monkeypatch, machine)


def check_a_signal_in_a_step(recipe, corpus, tmp_path, monkeypatch, machine):
    pretrain_corpus(recipe, corpus, tmp_path / "whole", machine=machine, quiet=True)
    collate, calls = steps.collate, []

    def signalling(samples):
        calls.append(samples)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return collate(samples)

    monkeypatch.setattr(steps, "collate", signalling)
    with pytest.raises(
        UnmaskError, match=r"stopped and saved at step \d; continue with the same command and resume=True"
    ) as error:
        pretrain_corpus(recipe, corpus, tmp_path / "run", machine=machine, quiet=True)
    assert error.value.status == 143
    pretrain_corpus(recipe, corpus, tmp_path / "run", machine=machine, quiet=True, resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


NARROW = ["encoder.heads=2", "encoder.feed_forward=128", "encoder.embedding=16"]


FAMILY = {
    "electra-mini": [*NARROW, "objective.replaced_token.generator_size=0.5"],
    "spanbert-mini": NARROW[:2],
    "gpt-mini": NARROW[:1],
    "albert-mini": [*NARROW, "encoder.layers=2", "optimizer.kind=lamb"],
    "roberta-mini": [*NARROW[:2], "encoder.offset=1"],  # its padding has the id 1, that of this vocabulary 0
}


@pytest.mark.parametrize(
    "name",
    [
        *("electra-mini", "albert-mini"),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("spanbert-mini", "gpt-mini", "roberta-mini")),
    ],
)
def test_T1_a_signal_in_a_step_of_each_of_the_family(corpus, tmp_path, monkeypatch, name):
    """With dropout; ALBERT with the optimizer of its paper; the masking rates of all but ELECTRA and GPT change."""
    recipe = changed("budget.steps=4", *FAMILY[name], name=name)
    check_a_signal_in_a_step(recipe, corpus, tmp_path, monkeypatch, CPU)


def test_the_first_signal_is_recorded_and_the_second_ctrl_c_stops():
    before = [signal.getsignal(number) for number in Interrupt.signals]
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        assert interrupt.signal == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # a second SIGTERM only replaces the first
        assert interrupt.signal == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in Interrupt.signals] == before


def test_in_another_thread_handlers_are_left_as_they_are():
    found = []

    def enter():
        before = signal.getsignal(signal.SIGTERM)
        with Interrupt() as interrupt:
            found.append((interrupt.signal, signal.getsignal(signal.SIGTERM) is before))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [(0, True)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_status_is_that_of_the_signal(number, status):
    error = Interrupted(7, number)
    assert error.status == status
    assert str(error) == "stopped and saved at step 7; continue with the same command and resume=True"
