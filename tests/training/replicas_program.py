"""Program run in one or two processes that compute the same gradients: `python replicas_program.py OUT`.

Odd micro-batches have no target of the objective `second`, whose weight then gets no gradient, and no micro-batch uses
the weight `idle`. Micro-batches from `LATER` on are of a stage without `second`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from remembering import thread_names
from torch import nn

from unmask.data.batches.batch import Sample, collate
from unmask.nn.encoders.encoder import Encoded
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective, Part
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.replicas import OverlappedReplicas, Replicas

LATER = 100
STRATEGIES = {"after": Replicas, "overlapped": OverlappedReplicas}


class Body(nn.Module):
    """Embeds each token and maps it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.dense = nn.Linear(8, 8)
        self.idle = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, tokens, keep, carry):
        return Encoded(self.dense(self.table(tokens.ids)).tanh(), {})


class Ask(Objective):
    """Reads the tokens at its positions, if there are any."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.dense = nn.Linear(8, 1)

    def prepare(self, sample, name):
        return sample.add(counts={name: len(sample.positions[self.at])})

    def predict(self, encoder, encoded, batch):
        return self.dense(encoded.last[batch.positions[self.at]])

    def score(self, encoder, encoded, batch):
        if not len(batch.positions[self.at]):
            return Part(encoded.last.sum().float() * 0, {})
        return Part(self.predict(encoder, encoded, batch).float().square().sum(), {})


def micro_batch(number):
    """Two sequences; an odd number has no target of `second`."""
    rng = np.random.default_rng(number)
    objectives = ("first",) if number >= LATER else ("first", "second")
    positions = {"first": np.array([0]), "second": np.arange(0 if number % 2 else 2)}
    counts = {name: len(positions[name]) for name in objectives}
    fixed = {"key": (), "segments": np.zeros(5), "positions": positions, "counts": counts}
    return collate([Sample(ids=rng.integers(20, size=5), **fixed) for _ in "ab"])


def gradients(strategy, precision, processes):
    """Return the gradients of four steps with different distributions of the micro-batches over the processes."""
    torch.manual_seed(0)
    learner = Learner(Body(), {"first": Ask("first"), "second": Ask("second")})
    replicas = strategy(learner, Machine(torch.device("cpu"), precision), processes)
    found = {}
    # the processes' micro-batches in each step: targets of `second` in the first, in the second, in both, in none; the
    # first and the last step are of a stage without it
    steps = [[(1, 0), (3,)], [(5,), (0, 2, 7)], [(2, 4), (6,)], [(1,), (3, 5)]]
    without = [(LATER, LATER + 2), (LATER + 4,)]
    for step, shares in enumerate([without, *steps, without]):
        mine = shares[processes.rank] if processes.size > 1 else sum(shares, ())
        for number in mine:
            replicas.backward(micro_batch(number), {"first": 0.5, "second": 2.0}, last=number == mine[-1])
        replicas.reduce()
        for name, parameter in learner.named_parameters():
            if parameter.grad is not None:
                found[f"{step}.{name}"] = parameter.grad.clone()
            parameter.grad = None
        with torch.no_grad():
            learner.encoder.dense.weight.add_(0.125)
        replicas.refresh()
    replicas.close()
    return found


def main(out):
    """Compute and write the gradients of all strategies, and the threads while connected and after."""
    with Processes.launched() as processes:
        strategies = STRATEGIES if processes.size > 1 else {"alone": Replicas}
        for name, strategy in strategies.items():
            for precision in ("float32", "bf16"):
                found = gradients(strategy, precision, processes)
                safetensors.torch.save_file(found, f"{out}/{name}-{precision}-{processes.rank}.safetensors")
        connected = thread_names()
    Path(f"{out}/{processes.size}-{processes.rank}.json").write_text(json.dumps([connected, thread_names()]))


if __name__ == "__main__":
    main(sys.argv[1])
