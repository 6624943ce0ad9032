"""Fixtures and constants shared by the tests of inference: small random models for each task."""

import functools
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.inference import bench, export
from unmask.model.model import Model
from unmask.nn.encoders.downstream import Downstream, DownstreamSettings
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.tasks.classification import Classification
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification
from unmask.training.machine import Machine, choose_machine

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, init_std=0.3, dropout=0.5)
MEANS = ModernBertSettings(
    layers=1, width=16, heads=2, feed_forward=32, positions=32, init_std=0.3, classifier_pooling="mean"
)
LSTM = DownstreamSettings(kind="rnn", layers=(-1, -2), width=8)
TASKS = {
    "classification": (Classification(length=12), ("no", "yes")),
    "regression": (Regression(length=12, mean=2.0, deviation=3.0), ()),
    "token-classification": (TokenClassification(length=12), ("O", "B-X", "I-X")),
    "question-answering": (QuestionAnswering(length=20, question=4), ()),
}
CPU = choose_machine("cpu", "float32")
BF16 = Machine(torch.device("cpu"), "bf16")
PLAIN = (int, float, str, tuple, msgspec.Struct)
"""Types of attributes that determine what a module computes, besides its tensors."""
TEXTS = ["the dog", "the cat near the sea", "a garden", "poem"]


@pytest.fixture
def make(tokenizer):
    """Build a model in training mode, as fine-tuning leaves it."""

    def build(kind="classification", downstream=None, settings=SETTINGS):
        torch.manual_seed(1)
        task, labels = TASKS[kind]
        encoder = settings.build(tokenizer.size).train()
        body = encoder if downstream is None else Downstream(downstream, encoder)
        heads = {
            task.part: task.build(body.head, labels).published(),
            "masked_lm": MaskedLM(BuildContext(encoder)).published(),
        }
        if downstream is not None:
            heads["downstream"] = body.own_state()
        return Model(encoder, tokenizer, heads, labels, task, downstream=downstream)

    return build


@pytest.fixture(scope="session")
def traces(tmp_path_factory):
    """A folder of traced programs, of all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "traces"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def _traced_once(traces, monkeypatch):
    """Traces each program once: many tests export the same model, and tracing takes most of their time."""
    trace = export.trace

    @functools.wraps(trace)
    def trace_once(program, path, outputs):
        digest = hashlib.sha256(f"{program} {getattr(program.body, 'settings', None)}".encode())
        for module in program.modules():
            plain = ((name, value) for name, value in vars(module).items() if isinstance(value, PLAIN))
            digest.update(repr(sorted(plain, key=lambda pair: pair[0])).encode())
        for name, tensor in program.state_dict().items():
            digest.update(name.encode() + tensor.numpy().tobytes())
        kept = traces / f"{digest.hexdigest()}-{path.name}"
        if not kept.exists():
            made = Path(tempfile.mkdtemp(dir=traces))
            trace(program, made / path.name, outputs)
            with suppress(OSError):  # another worker was faster
                made.rename(kept)
        for file in kept.iterdir():
            shutil.copyfile(file, path.parent / file.name)

    for module in (export, bench):
        monkeypatch.setattr(module, "trace", trace_once)
