"""Is the program right and fast on a GPU? One command of about five minutes, which a new machine runs first of all.

Each check is independent: one that fails is reported, and the next begins.

- `families`: every recipe of the smallest size takes some steps by `unmask.pretrain` on the CPU in float32 and on the
  device in float32 and bf16; the losses are compared.
- `tensors`: outputs, losses and gradients of a small BERT with ragged sequences, and what it learns.
- `speed`: masked-LM pretraining in tokens per second, as a share of the measured peak of matrix products, with the
  memory, and the Hugging Face Trainer at the same work (engines.py).
- `step`: kernels, copies and synchronizations of one step of the largest of these.
- `finetuning`: of MiniLM on SST-2 and `inference`: of its shape and BERT-base's, beside transformers.

`--toy` does all of it on a CPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import finetune_speed
import inference
import torch
from common import add, logged
from engines import WARM_STEPS, Work, run_trainer, run_unmask
from files import sst2_files
from torch import Tensor
from torch._C._autograd import DeviceType

import unmask
from unmask.data.batches.batch import Batch, Sample, collate
from unmask.data.batches.masking import TokenMasking, TokenMaskingSettings
from unmask.data.batches.rng import derive_rng
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.objective import BuildContext
from unmask.support.choices import Device, Precision
from unmask.training.loop import Trainer
from unmask.training.machine import Machine

Record = dict[str, Any]
DOCS = Path(__file__).parent.parent / "docs"
RECIPES = ("bert", "roberta", "spanbert", "albert", "electra", "gpt", "modernbert", "xlnet", "elmo")
STREAMED = ("xlnet", "elmo")
"""Recipes whose batches are streams of their own number."""
FAMILY_STEPS, TOKENS = 6, 4096
CASES = [
    Work("base", "full128", "bf16", 0.1, sequences=256, device="cuda"),
    Work("modernbert", "full1024", "bf16", 0.0, sequences=64, device="cuda"),
    Work("large", "full512", "bf16", 0.1, sequences=64, device="cuda"),
]
TOY = [Work("tiny", "full128", "bf16", 0.1, sequences=2, steps=2)]
VOCABULARY, FIRST_WORD = 30522, 1000  # as in bert-base-uncased
BOUNDS = {"float32": 1e-4, "bf16": 0.05}
"""How far from the CPU's float32 a tensor may be, as a share of its norm."""
LOSS_BOUNDS = {"float32": 1e-3, "bf16": 0.02}
"""How far from the CPU's float32 the loss of any step may be, as a share of it."""
LENGTHS = (1, 2, 17, 64, 65, 128, 300, 511, 512)
STEPS = 20


class Wrong(Exception):
    """The device does not compute what the CPU does."""


def families(device: Device) -> Iterator[Record]:
    """Compare the losses of every recipe on the device with those on the CPU."""
    wrong = []
    ways: list[tuple[Device, Precision]] = [("cpu", "float32"), (device, "float32"), (device, "bf16")]
    with tempfile.TemporaryDirectory() as name:
        for recipe in RECIPES[-2:] if device == "cpu" else RECIPES:
            losses = dict[str, list[float]]()
            for where, precision in ways:
                run = Path(name) / f"{recipe}-{where}-{precision}-{len(losses)}"
                try:
                    losses[f"{where} {precision}"] = _losses(recipe, run, where, precision)
                except Exception as error:
                    wrong.append(f"{recipe}, {where} {precision}: {_place(error)}")
            if len(losses) < 2:
                continue
            expected, *others = losses.items()
            apart = {
                other: max(abs(a - b) / abs(a) for a, b in zip(expected[1], values, strict=True))
                for other, values in others
            }
            yield {"check": "families", "recipe": recipe, "apart": apart, "first_losses": expected[1]}
            for other, value in apart.items():
                if not value <= LOSS_BOUNDS[other.split()[1]]:
                    wrong.append(f"{recipe}: losses in {other} are {value:.1e} from the CPU's")
    if wrong:
        raise Wrong("\n".join(wrong))


def _losses(recipe: str, run: Path, device: Device, precision: Precision) -> list[float]:
    """Pretrain for some steps without dropout; return the losses of all steps and of the evaluations."""
    settings = {"budget.steps": FAMILY_STEPS, "encoder.dropout": 0.0}
    if recipe not in STREAMED:
        settings |= {"batch.tokens": TOKENS}
    source: dict[str, Any] = {"text": sorted(DOCS.glob("*.md"))}
    if corpora := sorted(run.parent.glob(f"{recipe}-*/corpus")):
        source = {"corpus": corpora[0]}
    unmask.pretrain(
        f"{recipe}-mini", out=run, **source, settings=settings, device=device, precision=precision, quiet=True
    )
    return [line["loss"] for kind in ("train", "heldout") for line in logged(run, kind)]


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


def tensors(device: Device) -> Iterator[Record]:
    """Compare a device with the CPU in float32: the largest differences, as shares of the norm."""
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
        if found.keys() != expected.keys():
            raise Wrong(f"{precision}: other parameters have gradients: {found.keys() ^ expected.keys()}")
        worst[precision] = max(
            (float((value - expected[name]).norm() / expected[name].norm().clamp(min=1e-6)), name)
            for name, value in found.items()
        )
    losses = curve(learner, batch, here), curve(learner, batch, Machine(torch.device(device), "float32"))
    apart = max(abs(one - other) / one for one, other in zip(*losses, strict=True))
    yield {"check": "tensors", "largest_difference": worst, "loss_apart": apart}
    for precision, (difference, name) in worst.items():
        if not difference <= BOUNDS[precision]:
            raise Wrong(f"{precision}: {name} is {difference:.1e} away from the CPU's")
    if not apart <= LOSS_BOUNDS["bf16"]:
        raise Wrong(f"learns otherwise than the CPU: {losses}")


def speed(device: Device) -> Iterator[Record]:
    """Measure pretraining."""
    for work in TOY if device == "cpu" else CASES:
        body = work.size if work.size == "modernbert" else f"bert-{work.size}"
        case = f"{body}, length {work.data.removeprefix('full')}, {work.sequences} sequences per step"
        for engine, run in (("unmask", run_unmask), ("trainer", run_trainer)):
            if device == "cuda":
                torch.cuda.empty_cache()
            yield {"check": "speed", "case": case, "engine": engine, **run(work)}


def step(device: Device) -> Iterator[Record]:
    """Count what one step launches, and where it waits for the device."""
    work, taken = (TOY if device == "cpu" else CASES)[-1], count(1)
    own, found = Trainer.step, list[Record]()

    def observed(trainer: Trainer) -> dict[str, float]:
        number = next(taken)
        if number == WARM_STEPS:
            with _synchronizations(device) as places:
                metrics = own(trainer)
            found.append({"check": "step", "synchronizations": dict(places)})
            return metrics
        if number != WARM_STEPS + 1:
            return own(trainer)
        device_only = None if device == "cpu" else [torch.profiler.ProfilerActivity.CUDA]  # the rest takes minutes
        with torch.profiler.profile(activities=device_only) as profiler:
            own(trainer)
        kernels, seconds = Counter[str](), Counter[str]()
        for event in profiler.events():
            if event.device_type != DeviceType.CPU:
                kernels[event.name] += 1
                seconds[event.name] += event.device_time / 1e6
        found.append(
            {
                "check": "step",
                "kernels": sum(kernels.values()),
                "busy_seconds": sum(seconds.values()),
                "longest": [(name[:90], kernels[name], value) for name, value in seconds.most_common(40)],
            }
        )
        raise _Seen

    with mock.patch.object(Trainer, "step", observed), suppress(_Seen):
        run_unmask(work)
    yield from found


class _Seen(Exception):
    """Nothing more is to be seen in this run."""


@contextmanager
def _synchronizations(device: Device) -> Iterator[Counter[str]]:
    """Count the synchronizations with the device by the lines of the program that make them."""
    places = Counter[str]()

    def note(*given: Any, **others: Any) -> None:
        frames = [frame for frame in traceback.extract_stack() if "/unmask/" in frame.filename]
        places[" < ".join(f"{Path(it.filename).name}:{it.lineno}" for it in reversed(frames[-2:]))] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        yield places
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def finetuning(device: Device) -> Iterator[Record]:
    """Fine-tune MiniLM on phrases of SST-2."""
    toy = device == "cpu"
    precisions = ("float32",) if toy else ("bf16", "float32")
    with tempfile.TemporaryDirectory() as folder:
        train, dev = sst2_files(64 if toy else 2_000, Path(folder))
        for precision in precisions:
            for name, run in (("unmask", finetune_speed.run_unmask), ("trainer", finetune_speed.run_trainer)):
                found = run(train, dev, 2, 0, precision, device)
                yield {"check": "finetuning", "engine": f"{name} {precision}", **found}


def classify(device: Device) -> Iterator[Record]:
    """Classify texts of random words, all at once and one by one."""
    toy = device == "cpu"
    for shape in ("tiny",) if toy else ("minilm", "base"):
        for engine in ("unmask float32", "unmask bf16", "transformers bf16"):
            found = inference.measure(engine, shape, 16 if toy else 8_000, 10 if toy else 100, device)
            yield {"check": "inference", "case": shape, "engine": engine, **found}


CHECKS: dict[str, Callable[[Device], Iterator[Record]]] = {
    "families": families,
    "tensors": tensors,
    "speed": speed,
    "step": step,
    "finetuning": finetuning,
    "inference": classify,
}


def _place(error: BaseException) -> str:
    """Return an error in a line, with the last lines of the program that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/unmask/" in frame.filename]
    where = " < ".join(f"{Path(it.filename).name}:{it.lineno}" for it in reversed(frames[-4:]))
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]} at {where}"


def main() -> None:
    """Run the checks, and fail if one did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy size, without writing a result")
    options = parser.parse_args()
    failed = []
    for name in options.checks or CHECKS:
        start = time.perf_counter()
        try:
            for record in CHECKS[name]("cpu" if options.toy else "cuda"):
                if options.toy:
                    print(json.dumps(record), flush=True)
                else:
                    keys = [key for key in ("check", "case", "engine", "recipe") if key in record]
                    device = {"device": torch.cuda.get_device_name()}
                    add("gpu", {**record, **device}, instead=(*keys, "device"))
        except Exception as error:
            failed.append(f"{name}: {error if isinstance(error, Wrong) else _place(error)}")
            print(failed[-1], flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    if failed:
        sys.exit("\n".join(["failed:", *failed]))


if __name__ == "__main__":
    main()
