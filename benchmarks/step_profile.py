"""Where does the time of a pretraining step go (see engines.py for the work)?

torch's profiler measures each kernel; the rest of the wall time is Python, numpy and the dispatcher. Each kernel
belongs to one kind of work; an elementwise one (a product, a copy) to the part that called it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import count
from unittest import mock

import torch
from common import add
from engines import WARM_STEPS, Work, run_unmask

from unmask.training.loop import Trainer

CASES = ["mini-var-bf16-0.1", "mini-full512-bf16-0.1", "small-var-bf16-0.1"]
KINDS = {
    "products of matrices": ("mm", "addmm", "addmm_", "mkldnn_linear", "linear"),
    "attention's batched products": ("bmm", "baddbmm"),
    "softmax and its gradient": ("_softmax", "_softmax_backward_data", "exp", "amax"),
    "norms": ("native_layer_norm", "native_layer_norm_backward"),
    "GELU": ("gelu", "gelu_backward"),
    "AdamW": ("_fused_adamw_", "_foreach_norm", "linalg_vector_norm"),
    "random bits": ("clamp_", "sub_", "bitwise_left_shift", "__lshift__"),
    "copies, conversions, fills": ("copy_", "fill_", "zero_", "cat", "_foreach_copy_"),
    "gathers and scatters": ("index_select", "index_add_", "index_copy_", "scatter_", "gather", "_unique2", "nonzero"),
    "products and sums of elements": ("mul", "mul_", "add", "add_", "addcmul", "div", "sum", "neg"),
}


def profile(work: Work) -> Iterator[dict[str, float | str]]:
    """Pretrain twice and yield the seconds per step of each kind of work: of wall time, then of torch's kernels."""
    kinds = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    found = dict.fromkeys(KINDS, 0.0)
    measured = run_unmask(work)
    wall = measured["seconds"] / work.steps
    profiler, step, taken = torch.profiler.profile(), Trainer.step, count(1)

    def observed(trainer: Trainer) -> dict[str, float]:
        """Take a step of the run as it is, with the profiler on from the first timed one to the last."""
        if (number := next(taken)) == WARM_STEPS + 1:
            profiler.start()
        metrics = step(trainer)
        if number == work.all_steps:
            profiler.stop()
        return metrics

    with mock.patch.object(Trainer, "step", observed):
        run_unmask(work)
    for event in profiler.key_averages():
        if event.key in kinds:
            found[kinds[event.key]] += event.self_cpu_time_total / 1e6 / work.steps
    found["all else, including Python and numpy"] = max(0.0, wall - sum(found.values()))
    for kind, seconds in found.items():
        yield {"kind": kind, "seconds": seconds, "share": seconds / wall}
    yield {"kind": "step", "seconds": wall, "share": 1.0}


def main() -> None:
    """Profile all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="CASE", help="as those of pretrain_speed.py")
    parser.add_argument("--steps", type=int, default=10, help="profiled steps")
    parser.add_argument("--sequences", type=int, default=32, help="per step")
    options = parser.parse_args()
    for case in options.cases:
        for record in profile(Work.parse(case, steps=options.steps, sequences=options.sequences)):
            add("step_profile", {"case": case, **record}, instead=("case", "kind"))


if __name__ == "__main__":
    main()
