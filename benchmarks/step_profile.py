"""Where does a step's time go, in pretraining (pretrain_speed.py) and in fine-tuning (finetune_speed.py), and that of a
text in inference (inference.py), of many in a call or of one?

torch's profiler measures each kernel; the rest of the wall time is Python, numpy and the dispatcher. Each kernel
belongs to one kind of work; an elementwise one (a product, a copy) to the part that called it. Calls of the C
extensions, which the profiler does not see, are timed from outside.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import finetune_speed
import inference
import pretrain_speed
import torch
from common import add, machine, minilm, parse
from files import sst2_files
from pretrain_speed import Work

from unmask.support import adamw, panels, rows
from unmask.training.loop import Trainer

FINETUNING = "finetune"
INFERENCE = ["many-float32", "many-bf16", "one-float32", "one-bf16"]
CASES = ["mini-var-bf16-0.1", "mini-full512-bf16-0.1", "small-var-bf16-0.1", FINETUNING]
STEPS, SEQUENCES, EXAMPLES, TEXTS = 10, 32, 2_000, 1_000
"""Timed steps of pretraining, their sequences, examples of fine-tuning, and texts of inference."""
EXTENSIONS = {
    (panels, "_panels", "layers"): "layers in panels",
    (panels, "_panels", "multiply"): "products in panels, with GELU and norms",
    (panels, "_panels", "pack"): "matrices into panels",
    (panels, "_panels", "attend"): "attention in panels",
    (panels, "_panels", "attend_back"): "attention in panels",
    (rows, "_rows", "norm"): "norms",
    (rows, "_rows", "norm_back"): "norms",
    (rows, "_rows", "gelu"): "GELU",
    (adamw, "_adamw", "step"): "AdamW",
    (adamw, "_adamw", "squares"): "AdamW",
}
"""Functions of C extensions: the module that calls them, the name of the extension there, and that of the function."""
KINDS = {
    "products of matrices": ("mm", "addmm", "addmm_", "mkldnn_linear", "linear"),
    "attention's batched products": ("bmm", "baddbmm"),
    "softmax and its gradient": ("_softmax", "_softmax_backward_data", "exp", "amax"),
    "norms": ("native_layer_norm", "native_layer_norm_backward"),
    "GELU": ("gelu", "gelu_backward"),
    "AdamW": ("_fused_adamw_", "_foreach_norm", "linalg_vector_norm", "dot"),
    "random bits": ("clamp_", "sub_", "bitwise_left_shift", "__lshift__"),
    "copies, conversions, fills": ("copy_", "fill_", "zero_", "cat", "_foreach_copy_"),
    "gathers and scatters": ("index_select", "index_add_", "index_copy_", "scatter_", "gather", "_unique2", "nonzero"),
    "products and sums of elements": ("mul", "mul_", "add", "add_", "addcmul", "div", "sum", "neg"),
}


def pretraining(case: str) -> tuple[float, int, int]:
    """Pretrain; return the seconds of a timed step, and how many steps were not timed and timed."""
    found = pretrain_speed.run_unmask(Work.parse(case, steps=STEPS, sequences=SEQUENCES))
    return found["seconds"] / STEPS, pretrain_speed.WARM_STEPS, STEPS


def finetuning(case: str) -> tuple[float, int, int]:
    """Fine-tune MiniLM for an epoch; return what `pretraining` does."""
    with tempfile.TemporaryDirectory() as folder:
        train, dev = sst2_files(EXAMPLES, Path(folder))
        found = finetune_speed.run_unmask(minilm(), train, dev, 1, 0, "auto")
    return found["seconds_per_step"], finetune_speed.WARM_STEPS, found["steps"]


def infer(case: str) -> Iterator[dict[str, Any]]:
    """Classify texts twice and yield the seconds per text of each kind of work, as `profile` does."""
    number, precision = case.split("-")
    words = inference.texts(TEXTS)
    found = dict.fromkeys([*EXTENSIONS.values(), *KINDS], 0.0)
    with tempfile.TemporaryDirectory() as folder:
        compute = inference.engine(f"unmask {precision}", inference.build("minilm", Path(folder)), Path(folder))
        calls = [words] if number == "many" else [[text] for text in words]
        compute(words)
        start = time.perf_counter()
        for texts in calls:
            compute(texts)
        wall = (time.perf_counter() - start) / TEXTS
        with ExitStack() as changes:
            time_extensions(changes, found, TEXTS)
            profiler = changes.enter_context(torch.profiler.profile())
            for texts in calls:
                compute(texts)
    sum_kernels(profiler, found, TEXTS)
    yield from shares(found, wall, "text")


def time_extensions(changes: ExitStack, found: dict[str, float], number: int) -> None:
    """Add the seconds of extensions' functions to those of each kind, divided by a number, until `changes` ends."""

    def timed(function: Callable[..., Any], kind: str, *arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        found[kind] += (time.perf_counter() - start) / number
        return result

    for (module, extension, name), kind in EXTENSIONS.items():
        library = vars(module)[extension]  # None, if it is not installed
        if function := getattr(library, name, None):
            changes.enter_context(mock.patch.object(library, name, partial(timed, function, kind)))


def sum_kernels(profiler: torch.profiler.profile, found: dict[str, float], number: int) -> None:
    """Add the seconds of torch's kernels to those of each kind, divided by a number."""
    kinds = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    for event in profiler.key_averages():
        if event.key in kinds:
            found[kinds[event.key]] += event.self_cpu_time_total / 1e6 / number


def shares(found: dict[str, float], wall: float, whole: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each kind of work, for what is left, and for the whole."""
    found["all else, including Python and numpy"] = max(0.0, wall - sum(found.values()))
    for kind, seconds in found.items():
        yield {"kind": kind, "seconds": seconds, "share": seconds / wall}
    yield {"kind": whole, "seconds": wall, "share": 1.0}


def profile(run: Callable[[], tuple[float, int, int]]) -> Iterator[dict[str, Any]]:
    """Train twice and yield the seconds per step of each kind of work: of wall time, then of torch's kernels."""
    found = dict.fromkeys([*EXTENSIONS.values(), *KINDS], 0.0)
    wall, warm, steps = run()
    step, taken = Trainer.step, count(1)

    def observed(trainer: Trainer) -> dict[str, float]:
        """Take a step of the run as it is, and sum the kernels of those that are timed."""
        if not warm < next(taken) <= warm + steps:
            return step(trainer)
        with ExitStack() as changes:
            time_extensions(changes, found, steps)
            profiler = changes.enter_context(torch.profiler.profile())
            metrics = step(trainer)
        sum_kernels(profiler, found, steps)
        return metrics

    with mock.patch.object(Trainer, "step", observed):
        run()
    yield from shares(found, wall, "step")


def main() -> None:
    """Profile all cases."""
    for case in parse(__doc__, CASES + INFERENCE).names:
        run = partial(finetuning if case == FINETUNING else pretraining, case)
        for record in infer(case) if case in INFERENCE else profile(run):
            add("step_profile", {"case": case, "kind": record.pop("kind"), **machine()}, record)


if __name__ == "__main__":
    main()
