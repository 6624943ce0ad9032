"""Does a GPU compute what a CPU does, and how fast?

First the checks: on the device a small BERT with ragged sequences has, in float32 and in bf16, the outputs, losses and
gradients that it has on the CPU in float32, and learns what it learns there. Then the speed: masked-LM pretraining of
bert-base at lengths 128 and 512 and bert-large at 512, in tokens per second and as a share of the measured peak of
matrix products, and the Hugging Face Trainer at the same work (see engines.py). `--toy` does all of it on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from typing import Any

import torch
from common import add
from engines import Work, run_trainer, run_unmask
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample, collate
from unmask.data.batches.masking import TokenMasking, TokenMaskingSettings
from unmask.data.batches.rng import derive_rng
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.objective import BuildContext
from unmask.training.machine import Machine

CASES = [
    Work("base", "full128", "bf16", 0.1, sequences=256, device="cuda"),
    Work("base", "full512", "bf16", 0.1, sequences=64, device="cuda"),
    Work("large", "full512", "bf16", 0.1, sequences=64, device="cuda"),
]
TOY = [Work("tiny", "full128", "bf16", 0.1, sequences=2, steps=2)]
VOCABULARY, FIRST_WORD = 30522, 1000  # as in bert-base-uncased
BOUNDS = {"float32": 1e-4, "bf16": 0.05}
"""How far from the CPU's float32 a tensor may be, as a share of its norm."""
LENGTHS = (1, 2, 17, 64, 65, 128, 300, 511, 512)
STEPS = 20
LOSS_BOUND = 0.02
"""How far from the CPU's the loss may be after `STEPS` steps, as a share of it."""


def learn(learner: Learner, batch: Batch, machine: Machine) -> dict[str, Tensor]:
    """Return outputs and gradients of one batch, on the CPU in float32."""
    there = copy.deepcopy(learner).to(machine.device, machine.dtype)
    batch = batch.to(machine.device)
    found = {"last": there.encoder(batch.tokens).last}
    (part,) = there(batch).values()
    part.sum.backward()
    found["loss"] = part.sum
    for name, value in there.named_parameters():
        if value.grad is not None:
            found[f"gradient of {name}"] = value.grad.to_dense() if value.grad.is_sparse else value.grad
    return {name: value.detach().float().cpu() for name, value in found.items()}


def curve(learner: Learner, batch: Batch, machine: Machine) -> list[float]:
    """Return the mean losses of some steps on one batch, in float32 weights."""
    there = copy.deepcopy(learner).to(machine.device)
    optimizer = torch.optim.AdamW(there.parameters(), lr=1e-3)
    batch, losses = batch.to(machine.device), []
    for _ in range(STEPS):
        (part,) = there(batch).values()
        mean = part.sum / batch.counts["masked_lm"]
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        losses.append(float(mean.detach()))
    return losses


def check(device: str) -> dict[str, Any]:
    """Compare a device with the CPU in float32; return the largest differences, as shares of the norm."""
    settings = BertSettings(layers=3, width=128, heads=4, feed_forward=512, dropout=0.0, init_std=0.05)
    torch.manual_seed(0)
    body = settings.build(VOCABULARY)
    learner = Learner(body, {"masked_lm": MaskedLMSettings().build(BuildContext(body))})
    masking = TokenMasking(
        TokenMaskingSettings(), vocabulary=VOCABULARY, mask=103, special=frozenset(range(FIRST_WORD))
    )
    samples = []
    for place, length in enumerate(LENGTHS):
        rng = derive_rng(0, "text", place)
        ids = rng.integers(FIRST_WORD, VOCABULARY, length)
        sample = Sample(key=(place,), ids=ids, segments=rng.integers(0, 2, length))
        samples.append(learner.prepare(masking(sample, rng)))
    batch = collate(samples)
    here = Machine(torch.device("cpu"), "float32")
    expected = learn(learner, batch, here)
    worst = {}
    for precision in BOUNDS:
        found = learn(learner, batch, Machine(torch.device(device), precision))
        assert found.keys() == expected.keys(), "the same parameters have gradients"
        worst[precision] = max(
            (float((value - expected[name]).norm() / expected[name].norm().clamp(min=1e-6)), name)
            for name, value in found.items()
        )
    losses = curve(learner, batch, here), curve(learner, batch, Machine(torch.device(device), "float32"))
    apart = max(abs(one - other) / one for one, other in zip(*losses, strict=True))
    return {"largest_difference": worst, "loss": losses, "loss_apart": apart}


def main() -> None:
    """Check, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy size, without writing a result")
    options = parser.parse_args()
    device = "cpu" if options.toy else "cuda"
    checks = check(device)
    print(checks["largest_difference"], f"losses apart {checks['loss_apart']:.1e}")
    for precision, (difference, name) in checks["largest_difference"].items():
        if difference > BOUNDS[precision]:
            sys.exit(f"{precision}: {name} is {difference:.1e} away from the CPU's")
    if checks["loss_apart"] > LOSS_BOUND:
        sys.exit("the device does not learn what the CPU learns")
    for work in TOY if options.toy else CASES:
        case = f"bert-{work.size}, length {work.data.removeprefix('full')}, {work.sequences} sequences per step"
        for engine, run in (("unmask", run_unmask), ("trainer", run_trainer)):
            record = {"case": case, "engine": engine, **run(work)}
            if options.toy:
                print(json.dumps(record), flush=True)
            else:
                add("gpu", {**record, "device": torch.cuda.get_device_name()}, instead=("case", "engine", "device"))


if __name__ == "__main__":
    main()
