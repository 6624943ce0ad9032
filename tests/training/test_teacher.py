"""A teacher is only read: it is not trained, saved or copied."""

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.functional import mse_loss

from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective, Part
from unmask.objectives.teacher import Teacher
from unmask.support.settings import write
from unmask.training.checkpoint import newest_checkpoint
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display

from .remembering import Remembering, Windows, settings


class Imitation(Objective):
    """Regression to the teacher's states at every token."""

    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher
        self.dense = nn.Linear(16, 16)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample)})

    def score(self, encoder, encoded, batch):
        target = self.teacher.read(batch).last.to(encoded.last.dtype)
        return Part(mse_loss(self.dense(encoded.last).float(), target.float(), reduction="sum"), {})


class Dropping(Remembering):
    """A body that must be in evaluation mode."""

    def forward(self, tokens, keep=None, carry=None):
        found = super().forward(tokens)
        assert not self.training
        return found


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_training_leaves_the_teacher_alone(tmp_path, precision):
    torch.manual_seed(1)
    machine = Machine(torch.device("cpu"), precision)
    teacher = Teacher(Learner(Dropping(), {})).to(machine.device, machine.dtype)
    before = teacher.fingerprint()
    learner, chosen = Learner(Remembering(), {"imitation": Imitation(teacher)}), settings(30)
    names = {name for name, _ in learner.named_parameters()}
    assert names == {
        *(f"encoder.{name}" for name in ("table.weight", "recall.weight", "recall.bias")),
        *(f"objectives.imitation.dense.{name}" for name in ("weight", "bias")),
    }
    with RunDirectory.create(tmp_path / "run", write(chosen), {}, {}) as run:
        trainer = Trainer(
            learner,
            Windows(apart=True),
            prepare=lambda samples: list(map(learner.prepare, samples)),
            heldout=[],
            settings=chosen,
            run=run,
            machine=machine,
            display=Display(quiet=True),
        )
        assert trainer.replicas.copy.parts["imitation"].teacher is teacher
        assert (trainer.replicas.copy is learner) == (precision == "float32")
        trainer.start()
        trainer.train()
        losses = [line["loss"] for line in run.read_metrics("train")]
        assert losses[-1] < 0.7 * losses[0], "the learner approaches the teacher"
        assert teacher.fingerprint() == before
        assert all(value.grad is None for value in teacher.learner.parameters())
        assert trainer.optimizer.names.keys() == names
        path, _ = newest_checkpoint(run.checkpoints)
        assert safetensors.torch.load_file(path / "model.safetensors").keys() == names
        saved = safetensors.torch.load_file(path / "optimizer.safetensors").keys()
        assert {name.rpartition(".")[0] for name in saved} <= names
