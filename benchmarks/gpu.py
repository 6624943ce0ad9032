"""Is the program right and fast on a GPU? `make gpu` is the first command of a new machine, of about five minutes.

Each check is independent: one that fails is reported, and the next begins.

- `families`: every recipe of the smallest size takes some steps by `unmask.pretrain` on the CPU in float32 and on the
  device in float32 and bf16; the losses are compared.
- `modes`: fp16, and `deterministic`: two runs have the same losses, to the last digit.
- `tensors`: outputs, loss and gradients of a small BERT and ModernBERT with ragged sequences, compiled and not.
- `speed`: masked-LM pretraining in tokens per second, as a share of the measured peak of matrix products, with the
  memory, and the Hugging Face Trainer at the same work (pretrain_speed.py); kernels, copies and synchronizations of one
  step of each.
- `finetuning`: of MiniLM on SST-2 and `inference`: of its shape and BERT-base's, beside transformers.

`--toy` does all of it on a CPU.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import finetune_speed
import inference
import torch
from common import HERE, RUNS, add, logged, minilm, parse
from files import sst2_files
from pretrain_speed import WARM_STEPS, Work, run_trainer, run_unmask
from torch import Tensor
from torch._C._autograd import DeviceType

import unmask
from unmask.data.batches.batch import Batch, Sample, collate
from unmask.data.batches.masking import Masking, TokenMaskingSettings
from unmask.data.batches.rng import SampleRng, derive_rng
from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.objective import BuildContext
from unmask.support.choices import Device, Precision
from unmask.training.loop import Trainer
from unmask.training.machine import Machine

Record = dict[str, Any]
RECIPES = ("bert", "roberta", "spanbert", "albert", "electra", "gpt", "modernbert", "xlnet", "elmo")
STREAMED = ("xlnet", "elmo")
"""Recipes whose batches are streams of their own number."""
STEPS, TOKENS = 6, 4096
"""Number of steps of each family, and of their tokens."""
CASES = {
    "bert-base, length 128, 256 sequences per step": Work("bert-base", "full128", "bf16", 0.1, 256, device="cuda"),
    "modernbert, length 1024, 64 sequences per step": Work(
        "modernbert-base", "full1024", "bf16", 0.0, 64, device="cuda"
    ),
    "bert-large, length 512, 64 sequences per step": Work("bert-large", "full512", "bf16", 0.1, 64, device="cuda"),
}
TOY = {"bert-tiny, length 128, 2 sequences per step": Work("bert-tiny", "full128", "bf16", 0.1, 2, steps=2)}
VOCABULARY, FIRST_WORD, MASK = 30522, 1000, 103  # as in bert-base-uncased
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")
BOUNDS = {"float32": 1e-4, "bf16": 0.05}
"""How far from the CPU's float32 a tensor may be, as a share of its norm."""
LOSS_BOUNDS = {"float32": 1e-3, "bf16": 0.02}
"""How far from the CPU's float32 the loss of any step may be, as a share of it."""
LISTED = 20
"""Number of kernels that a record lists, those that take longest."""
LENGTHS = (1, 2, 17, 64, 65, 128, 300, 511, 512)

KEYS = ("check", "case", "engine", "recipe")
"""What tells records apart."""


class Wrong(Exception):
    """The device does not compute what the CPU does."""


def families(device: Device) -> Iterator[Record]:
    """Compare the losses of every recipe on the device with those on the CPU."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for recipe in STREAMED if device == "cpu" else RECIPES:
            try:
                expected = _losses(recipe, Path(folder) / f"{recipe}-cpu", "cpu", "float32")
                apart = {}
                for precision in PRECISIONS:
                    losses = _losses(recipe, Path(folder) / f"{recipe}-{precision}", device, precision)
                    apart[precision] = _apart(expected, losses)
            except Exception:
                traceback.print_exc()
                wrong.append(f"{recipe} fails")
                continue
            yield {"check": "families", "recipe": recipe, "apart": apart, "first_losses": expected}
            for precision, value in apart.items():
                if not value <= LOSS_BOUNDS[precision]:
                    wrong.append(f"{recipe}: losses in {precision} are {value:.1e} from the CPU's")
    if wrong:
        raise Wrong("\n".join(wrong))


def modes(device: Device) -> Iterator[Record]:
    """Compare losses in fp16 with those of the CPU, and those of two deterministic runs with each other."""
    if device == "cpu":  # has neither
        return
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for recipe in ("bert", "modernbert"):
            expected = _losses(recipe, Path(folder) / f"{recipe}-cpu", "cpu", "float32")
            found = _losses(recipe, Path(folder) / f"{recipe}-fp16", device, "fp16")
            apart = _apart(expected, found)
            runs = [Path(folder) / f"{recipe}-{number}" for number in range(2)]
            first, second = (_losses(recipe, run, device, "bf16", deterministic=True) for run in runs)
            yield {"check": "modes", "recipe": recipe, "fp16_apart": apart, "deterministic": first == second}
            if not (apart <= LOSS_BOUNDS["bf16"] and first == second):
                wrong.append(f"{recipe}: losses in fp16 are {apart:.1e} from the CPU's; {first}, {second}")
    if wrong:
        raise Wrong("\n".join(wrong))


def _apart(expected: Sequence[float], losses: Sequence[float]) -> float:
    """Return the largest difference of two losses of the same step, as a share of the expected one."""
    return max(abs(a - b) / abs(a) for a, b in zip(expected, losses, strict=True))


def _losses(
    recipe: str, run: Path, device: Device, precision: Precision, *, deterministic: bool = False
) -> list[float]:
    """Pretrain for some steps without dropout; return the losses of all steps and of the evaluations."""
    settings = {"budget.steps": STEPS, "encoder.dropout": 0.0}
    if recipe not in STREAMED:
        settings["batch.tokens"] = TOKENS
    source: dict[str, Any] = {"text": sorted((HERE.parent / "docs").glob("*.md"))}
    if (corpus := run.parent / f"{recipe}-cpu" / "text" / "corpus").exists():
        source = {"corpus": corpus}
    unmask.pretrain(
        f"{recipe}-mini",
        out=run,
        **source,
        settings=settings,
        device=device,
        precision=precision,
        deterministic=deterministic,
        quiet=True,
    )
    return [line["loss"] for kind in ("train", "heldout") for line in logged(run, kind)]


def learn(learner: Learner, batch: Batch, machine: Machine, *, compiled: bool = False) -> dict[str, Tensor]:
    """Return outputs and gradients of one batch, on the CPU in float32."""
    there = copy.deepcopy(learner).to(machine.device, machine.dtype)
    if compiled:
        there.compile_layers()
    batch = batch.to(machine.device)
    found = {"last": there.encoder(batch.tokens).last}
    (part,) = there(batch).values()
    part.sum.backward()
    found["loss"] = part.sum
    for name, value in there.named_parameters():
        if value.grad is not None:
            found[f"gradient of {name}"] = value.grad.to_dense() if value.grad.is_sparse else value.grad
    return {name: value.detach().float().cpu() for name, value in found.items()}


def tensors(device: Device) -> Iterator[Record]:
    """Compare a device with the CPU in float32: the largest differences, as shares of the norm."""
    small: dict[str, Any] = {"layers": 3, "width": 128, "heads": 4, "feed_forward": 512, "dropout": 0.0}
    wrong = []
    for family, settings in (
        ("bert", BertSettings(**small, init_std=0.05)),
        ("modernbert", ModernBertSettings(**small)),
    ):
        learner, batch = _learner(settings)
        expected = learn(learner, batch, Machine(torch.device("cpu"), "float32"))
        for compiled in (False,) if device == "cpu" else (False, True):  # a CPU computes layers without it
            worst = {}
            for precision in PRECISIONS:
                found = learn(learner, batch, Machine(torch.device(device), precision), compiled=compiled)
                if found.keys() != expected.keys():
                    raise Wrong(f"{precision}: other parameters have gradients: {found.keys() ^ expected.keys()}")
                worst[precision] = max(
                    (float((value - expected[name]).norm() / expected[name].norm().clamp(min=1e-6)), name)
                    for name, value in found.items()
                )
            case = f"{family}, compiled" if compiled else family
            yield {"check": "tensors", "case": case, "largest_difference": worst}
            for precision, (difference, name) in worst.items():
                if not difference <= BOUNDS[precision]:
                    wrong.append(f"{case}, {precision}: {name} is {difference:.1e} away from the CPU's")
    if wrong:
        raise Wrong("\n".join(wrong))


def _learner(settings: BertSettings | ModernBertSettings) -> tuple[Learner, Batch]:
    """Return a masked LM and ragged sequences."""
    torch.manual_seed(0)
    body = settings.build(VOCABULARY)
    learner = Learner(body, {"masked_lm": MaskedLMSettings().build(BuildContext(body))})
    special = frozenset(range(FIRST_WORD))
    masking = Masking(TokenMaskingSettings(), vocabulary=VOCABULARY, mask=MASK, special=special)
    samples = []
    for place, length in enumerate(LENGTHS):
        rng = derive_rng(0, "text", place)
        ids = rng.integers(FIRST_WORD, VOCABULARY, length)
        sample = Sample(key=(place,), ids=ids, segments=rng.integers(0, 2, length))
        samples.append(sample)
    masked = masking(samples, SampleRng(0, "masking", [sample.key for sample in samples]))
    return learner, collate(list(map(learner.prepare, masked)))


def speed(device: Device) -> Iterator[Record]:
    """Measure pretraining, and count what one of the steps before the timed ones launches, and where it waits."""
    toy = device == "cpu"
    for case, work in (TOY if toy else CASES).items():
        for compiled in (False,) if toy else (False, True):
            _free(device)
            with _observed(device) as seen:
                found = run_unmask(work, **{"batch.compile": compiled})
            yield {
                "check": "speed",
                "case": case,
                "engine": "unmask compiled" if compiled else "unmask",
                **found,
                **seen,
            }
        _free(device)
        yield {"check": "speed", "case": case, "engine": "trainer", **run_trainer(work)}


def _free(device: Device) -> None:
    """Return a GPU's memory."""
    if device == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def _observed(device: Device) -> Iterator[Record]:
    """Observe two of the steps that are not timed: the synchronizations of one, and the kernels of the other."""
    take, taken, found = Trainer.step, count(1), Record()

    def step(trainer: Trainer) -> dict[str, float]:
        number = next(taken)
        if number == WARM_STEPS - 1:
            with warnings.catch_warnings(record=True) as caught, _reporting(device):
                warnings.simplefilter("always")
                metrics = take(trainer)
            places = Counter(f"{Path(one.filename).name}:{one.lineno}" for one in caught)
            found["synchronizations"] = dict(places)
            return metrics
        if number != WARM_STEPS:
            return take(trainer)
        device_only = None if device == "cpu" else [torch.profiler.ProfilerActivity.CUDA]  # the rest takes minutes
        with torch.profiler.profile(activities=device_only) as profiler:
            metrics = take(trainer)
        kernels, seconds = Counter[str](), Counter[str]()
        for event in profiler.events():
            if event.device_type != DeviceType.CPU:
                kernels[event.name] += 1
                seconds[event.name] += event.device_time / 1e6
        found["kernels"], found["busy_seconds"] = sum(kernels.values()), sum(seconds.values())
        found["longest"] = [(name[:90], kernels[name], value) for name, value in seconds.most_common(LISTED)]
        return metrics

    with mock.patch.object(Trainer, "step", step):
        yield found


@contextmanager
def _reporting(device: Device) -> Iterator[None]:
    """Let torch warn of each synchronization with the device."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("warn")
    yield
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("default")


def finetuning(device: Device) -> Iterator[Record]:
    """Fine-tune MiniLM on phrases of SST-2."""
    toy = device == "cpu"
    with tempfile.TemporaryDirectory() as folder:
        train, dev = sst2_files(64 if toy else 2_000, Path(folder))
        for precision in ("float32",) if toy else ("bf16", "float32"):
            for compiled in (False,) if toy else (False, True):
                found = finetune_speed.run_unmask(
                    minilm(), train, dev, 2, 0, precision, device, **{"batch.compile": compiled}
                )
                engine = f"unmask {precision}, compiled" if compiled else f"unmask {precision}"
                yield {"check": "finetuning", "engine": engine, **found}
            found = finetune_speed.run_trainer(minilm(), train, dev, 2, 0, precision, device)
            yield {"check": "finetuning", "engine": f"trainer {precision}", **found}


def classify(device: Device) -> Iterator[Record]:
    """Classify texts of random words, all at once and one by one."""
    toy = device == "cpu"
    for shape in ("tiny",) if toy else ("minilm", "base"):
        for engine in ("unmask float32", "unmask bf16", "transformers bf16"):
            found = inference.measure(engine, shape, 16 if toy else 8_000, 10 if toy else 100, device)
            yield {"check": "inference", "case": shape, "engine": engine, **found}


CHECKS: dict[str, Callable[[Device], Iterator[Record]]] = {
    "families": families,
    "modes": modes,
    "tensors": tensors,
    "speed": speed,
    "finetuning": finetuning,
    "inference": classify,
}


def main() -> None:
    """Run the checks, and fail if one did."""
    options = parse(__doc__, CHECKS, runs=RUNS, toy=False)
    name = "CPU" if options.toy else torch.cuda.get_device_name()
    failed = []
    for check in options.names:
        try:
            for record in CHECKS[check]("cpu" if options.toy else "cuda"):
                key: Record = {part: record.pop(part) for part in KEYS if part in record}
                add("gpu", {**key, "device": name}, record)
        except Exception:
            traceback.print_exc()
            failed.append(check)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
