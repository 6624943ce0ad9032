"""An encoder that carries state, and streams whose answers are only in the previous window; also a program.

    python remembering.py OUT '{"micro_tokens": 30, "resume": true}'

Each window starts with a cue and asks for the cue of the previous window, which the encoder keeps in its state; a
running mean over all windows makes every step depend on all previous ones. With `xlnet`, the body is XLNet's, whose
memory has the first tokens of the last windows, and what is asked for is the last token of a window.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import TARGETS, Sample, collate
from unmask.data.batches.rng import derive_rng
from unmask.data.batches.samples import Samples
from unmask.data.batches.sources import Stage
from unmask.data.batches.tokens import Reading
from unmask.families.xlnet import XlnetSettings
from unmask.nn.encoders.encoder import CARRY, NOTHING, Encoded, HeadSpec
from unmask.nn.encoders.two_streams import TwoStreams
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective, Part
from unmask.objectives.permutation_lm import PermutationLMSettings
from unmask.support.settings import write
from unmask.training import loop
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.processes import Processes
from unmask.training.replicas import OverlappedReplicas
from unmask.training.restoring import open_run
from unmask.training.runs.display import Display
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    ScheduleSettings,
    TrainingSettings,
)

CUES = 4
VOCABULARY = 20
STREAMS = 6
WINDOWS = 25


class Windows:
    """Windows of streams, of different lengths; with `apart`, the same windows as independent samples."""

    start = (0, 0)
    stages = (Stage(share=1.0, length=16),)
    epoch = None

    def __init__(self, *, seed=0, apart=False, xlnet=False):
        self.seed = seed
        self.apart = apart
        self.xlnet = xlnet
        self.streams = 0 if apart else STREAMS

    def cue(self, *key):
        return int(derive_rng(self.seed, "cue", *key).integers(CUES))

    def window(self, epoch, window, stream):
        rng = derive_rng(self.seed, "noise", epoch, window, stream)
        noise = rng.integers(CUES, VOCABULARY, 2 + (window + stream) % 5)
        ids = np.array([self.cue(epoch, window, stream), *noise])
        asked = [self.cue(epoch, window - 1, stream)] if window else []
        sample = Sample(
            key=(epoch, window, stream),
            ids=ids,
            segments=np.full(len(ids), int(self.xlnet)),
            positions={"query": np.full(len(asked), len(ids) - 1)},
            labels={"cue": np.array(asked, np.int64)},
            **({} if self.apart else {"stream": stream, "fresh": window == 0}),
        )
        return self._for_xlnet(sample) if self.xlnet else sample

    def _for_xlnet(self, sample):
        """Return a window whose last token is asked for, last in the order; only the cue is remembered."""
        at, asked = sample.positions["query"], sample.labels["cue"]
        ids, order = sample.ids.copy(), np.zeros(len(sample), np.int64)
        ids[at], order[at] = asked, 1
        return replace(
            sample, ids=ids, reading=Reading(order=order, remember=1), positions={TARGETS: at}, labels={TARGETS: asked}
        )

    def take(self, cursor, *, tokens=None, sequences=None):
        epoch, window = cursor
        if window == WINDOWS:
            epoch, window = epoch + 1, 0
        return Samples.of([self.window(epoch, window, stream) for stream in range(STREAMS)]), (epoch, window + 1)

    def epochs(self, cursor):
        return cursor[0] + cursor[1] / WINDOWS

    def enter(self, cursor, stage):
        return cursor


class Remembering(nn.Module):
    """Adds a projection of the stream's state to each token."""

    width, num_layers, vocabulary, longest, recompute = 16, 1, VOCABULARY, 16, False
    head = HeadSpec(16)
    provides = frozenset({CARRY})
    settings = None

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, self.width)
        self.recall = nn.Linear(2 * self.width, self.width)
        self.layer_groups = [self.table, self.recall]

    def start(self, streams):
        weight = self.table.weight
        mean = torch.zeros(streams, self.width, dtype=torch.promote_types(weight.dtype, torch.float32))
        return {"cue": weight.new_zeros(streams, self.width), "mean": mean}

    def plan(self, tokens):
        return tokens

    def forward(self, tokens, keep=NOTHING, carry=None):
        rows = self.table(tokens.ids)  # (tokens, width)
        if not carry:
            return Encoded(rows, {})
        memory = torch.cat([carry["cue"], carry["mean"].to(rows.dtype)], 1)  # (sequences, 2 * width)
        last = rows + self.recall(memory).repeat_interleave(tokens.offsets.diff(), 0)  # (tokens, width)
        cue = rows[tokens.offsets[:-1].long()].detach()  # (sequences, width)
        return Encoded(last, {}, carry={"cue": cue, "mean": 0.9 * carry["mean"] + 0.1 * cue})


class Recall(Objective):
    """Classification of the cue that the previous window started with."""

    at = "query"

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(16, CUES)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample.labels["cue"])})

    def predict(self, encoder, encoded, batch):
        return self.dense(encoded.last[batch.positions["query"]])

    def score(self, encoder, encoded, batch):
        logits, gold = self.predict(encoder, encoded, batch), batch.labels["cue"]  # (targets, CUES), (targets,)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # float64 stays
        return Part(cross_entropy(logits, gold, reduction="sum"), {"accuracy": (logits.argmax(1) == gold).sum()})


def settings(steps, micro_tokens=1000, **budget):
    return TrainingSettings(
        batch=BatchSettings(sequences=STREAMS, micro_tokens=micro_tokens),
        optimizer=AdamWSettings(learning_rate=2e-2, weight_decay=0.0, clip=0.0),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(**(budget or {"steps": steps})),
    )


def learner_of(dtype=torch.float32, *, xlnet=False):
    torch.manual_seed(0)
    if not xlnet:
        return Learner(Remembering(), {"recall": Recall()}).to(dtype)
    shape = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "dropout": 0.0, "init_std": 0.1}
    body = XlnetSettings(**shape, memory=3).build(VOCABULARY)
    return Learner(body, {"recall": PermutationLMSettings().build(BuildContext(body))}).to(dtype)


def heldout_of(learner, *, apart=False, windows=12):
    """Return windows of other streams, in two groups of streams, each in order."""
    source = Windows(seed=1, apart=apart, xlnet=isinstance(learner.encoder, TwoStreams))
    groups = [range(4), range(4, STREAMS)]
    made = [[source.window(0, window, stream) for stream in group] for window in range(windows) for group in groups]
    return [collate([learner.prepare(sample) for sample in samples]) for samples in made]


def trainer_of(run, learner, chosen, *, machine=None, processes=None, apart=False, heldout=True):
    return Trainer(
        learner,
        Windows(apart=apart, xlnet=isinstance(learner.encoder, TwoStreams)),
        prepare=lambda samples: list(map(learner.prepare, samples)),
        heldout=heldout_of(learner, apart=apart) if heldout else [],
        settings=chosen,
        run=run,
        machine=machine or Machine(torch.device("cpu"), "float32"),
        display=Display(quiet=True),
        processes=processes,
    )


def thread_names():
    """Return the names of this process's threads."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it ends
            names.append(path.read_text().strip())
    return names


def gloo_threads():
    """Return the names of gloo's threads, which would abort the process if they ran while Python shuts down."""
    return [name for name in thread_names() if "gloo" in name]


def main(out, *, xlnet=False, micro_tokens=1000, double=False, overlapped=False, resume=False, kill=None):
    """Train with a checkpoint after each step.

    Args:
        out: the run directory.
        xlnet: train XLNet's body.
        micro_tokens: tokens of a micro-batch.
        double: train in float64.
        overlapped: sum gradients during the backward pass, as on GPUs.
        resume: resume the run.
        kill: step before which the processes kill themselves.
    """
    loop.SAVE_PAUSE = loop.SAVE_SECONDS = 0
    if overlapped:
        loop.replicate = OverlappedReplicas
    step = Trainer.step

    def dying(self):
        if self.progress.step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self)

    Trainer.step = dying
    chosen = settings(30, micro_tokens)
    learner = learner_of(torch.float64 if double else torch.float32, xlnet=xlnet)
    machine, processes = Machine(torch.device("cpu"), "float32"), Processes.launched()
    with processes, open_run(out, write(chosen), {}, machine, processes, resume=resume) as run:
        trainer_of(run, learner, chosen, machine=machine, processes=processes).complete(resume=resume)
    assert not gloo_threads()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
