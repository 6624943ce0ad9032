"""Where does the time of a pretraining step go (see engines.py for the work)?

torch's profiler counts how long each kernel itself takes; what Python, numpy and the dispatcher take is the rest of the
wall time. Each kernel belongs to one kind of work; an elementwise one (a product, a copy) to the part that called it.
"""

from __future__ import annotations

import argparse
import time

import torch
from common import write
from engines import Work, unmask_trainer

CASES = [
    Work("mini", "var", "bf16", 0.1, steps=15),
    Work("mini", "full512", "bf16", 0.1, steps=5),
    Work("small", "var", "bf16", 0.1, steps=10),
]
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


def profile(work: Work) -> dict[str, float]:
    """Return the seconds of a step by kind."""
    with unmask_trainer(work) as trainer:
        begun = time.perf_counter()
        for _ in range(work.steps):
            trainer.step()
        wall = (time.perf_counter() - begun) / work.steps
    with unmask_trainer(work) as trainer, torch.profiler.profile() as profiler:
        for _ in range(work.steps):
            trainer.step()
    kinds = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    found = dict.fromkeys(KINDS, 0.0)
    for event in profiler.key_averages():
        if event.key in kinds:
            found[kinds[event.key]] += event.self_cpu_time_total / 1e6 / work.steps
    return {**found, "all else, Python and numpy among it": max(0.0, wall - sum(found.values())), "step": wall}


def main() -> None:
    """Profile all cases."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = {}
    for work in CASES:
        case = f"bert-{work.size}, {'mixed lengths' if work.data == 'var' else 'rows of 512'}"
        found[case] = profile(work)
        print(case, {kind: f"{1000 * seconds:.1f} ms" for kind, seconds in found[case].items()}, flush=True)
    write("step_profile", {"seconds": found})


if __name__ == "__main__":
    main()
