"""How fast is our LSTM with projection, compared with torch's of the same shape?

A layer of each of the recipes elmo-mini, elmo-small and elmo reads windows of 20 tokens from 32 streams: forward and
backward pass, on one thread, in float32 and in bf16. torch.nn.LSTM (`proj_size`) has no clipping; ours is measured
without and with it. The three take turns; time is that of the processor, so that other programs matter less.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from common import add
from torch import Tensor, nn

from unmask.nn.layers.lstm import Lstm
from unmask.recipes.recipe import read_recipe

RECIPES = ["elmo-mini", "elmo-small", "elmo"]
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
CLIP = 3.0
Run = Callable[[Tensor], Tensor]


def engines(width: int, cells: int, streams: int, length: int, dtype: torch.dtype) -> dict[str, Run]:
    """Return layers that read windows, (length * streams, width), step by step, and return their outputs."""
    found: dict[str, Run] = {}
    for name, clip in (("unmask", None), ("unmask, clipped", CLIP)):
        own = Lstm(width, cells, clip).to(dtype)
        found[name] = lambda x, own=own: own(x, [streams] * length, own.start(streams))[0]  # type: ignore[misc]
    theirs = nn.LSTM(width, cells, proj_size=width).to(dtype)

    def read(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
            outputs: Tensor = theirs(x.view(length, streams, width))[0]
            return outputs

    return found | {"torch.nn.LSTM": read}


def seconds(run: Run, x: Tensor) -> float:
    """Return the processor's seconds of a forward and a backward pass."""
    x = x.clone().requires_grad_()
    start = time.process_time()
    run(x).sum().backward()  # type: ignore[no-untyped-call]
    return time.process_time() - start


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES, help="whose layers are measured")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--length", type=int, default=20, help="tokens of a window")
    parser.add_argument("--rounds", type=int, default=15, help="the first of which does not count")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for recipe in options.recipes:
        body: Any = read_recipe(recipe).encoder
        width, cells = body.width // 2, body.cells
        for precision, dtype in PRECISIONS.items():
            layers = engines(width, cells, options.streams, options.length, dtype)
            x = torch.randn(options.length * options.streams, width, dtype=dtype)
            times: dict[str, list[float]] = {name: [] for name in layers}
            for _ in range(options.rounds):
                for name, run in layers.items():
                    times[name].append(seconds(run, x))
            for name, found in times.items():
                record = {"recipe": recipe, "precision": precision, "engine": name, "streams": options.streams}
                record |= {"shape": f"{width} / {cells}", "length": options.length}
                record |= {"seconds": statistics.median(found[1:])}
                add("recurrence", record, instead=("recipe", "precision", "engine"))


if __name__ == "__main__":
    main()
