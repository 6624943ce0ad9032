"""Where does a step's time go, in pretraining (pretrain_speed.py) and in fine-tuning (finetune_speed.py)?

torch's profiler measures each kernel; the rest of the wall time is Python, numpy and the dispatcher. Each kernel
belongs to one kind of work; an elementwise one (a product, a copy) to the part that called it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import finetune_speed
import pretrain_speed
import torch
from common import add, machine, minilm, parse
from files import sst2_files
from pretrain_speed import Work

from unmask.training.loop import Trainer

FINETUNING = "finetune"
CASES = ["mini-var-bf16-0.1", "mini-full512-bf16-0.1", "small-var-bf16-0.1", FINETUNING]
STEPS, SEQUENCES, EXAMPLES = 10, 32, 2_000
"""Timed steps of pretraining, their sequences, and examples of fine-tuning."""
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


def profile(run: Callable[[], tuple[float, int, int]]) -> Iterator[dict[str, Any]]:
    """Train twice and yield the seconds per step of each kind of work: of wall time, then of torch's kernels."""
    kinds = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    found = dict.fromkeys(KINDS, 0.0)
    wall, warm, steps = run()
    step, taken = Trainer.step, count(1)

    def observed(trainer: Trainer) -> dict[str, float]:
        """Take a step of the run as it is, and sum the kernels of those that are timed."""
        if not warm < next(taken) <= warm + steps:
            return step(trainer)
        with torch.profiler.profile() as profiler:
            metrics = step(trainer)
        for event in profiler.key_averages():
            if event.key in kinds:
                found[kinds[event.key]] += event.self_cpu_time_total / 1e6 / steps
        return metrics

    with mock.patch.object(Trainer, "step", observed):
        run()
    found["all else, including Python and numpy"] = max(0.0, wall - sum(found.values()))
    for kind, seconds in found.items():
        yield {"kind": kind, "seconds": seconds, "share": seconds / wall}
    yield {"kind": "step", "seconds": wall, "share": 1.0}


def main() -> None:
    """Profile all cases."""
    for case in parse(__doc__, CASES).names:
        for record in profile(partial(finetuning if case == FINETUNING else pretraining, case)):
            add("step_profile", {"case": case, "kind": record.pop("kind"), **machine()}, record)


if __name__ == "__main__":
    main()
