"""How fast is our LSTM with projection, compared with torch's of the same shape?

A layer of each of the recipes elmo-mini, elmo-small and elmo reads windows of 20 tokens from 32 streams: forward and
backward pass, on one thread, in float32 and in bf16. torch.nn.LSTM (`proj_size`) has no clipping; ours is measured
without and with it. The three take turns, in rounds of which the first does not count; time is that of the processor,
so that other programs matter less.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from common import add, parse
from torch import Tensor, nn

from unmask.nn.layers.lstm import Lstm
from unmask.recipes.recipe import read_recipe

RECIPES = ["elmo-mini", "elmo-small", "elmo"]
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
STREAMS, LENGTH, ROUNDS, CLIP = 32, 20, 15, 3.0
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
    options = parse(__doc__, RECIPES)
    torch.set_num_threads(1)
    for recipe in options.names:
        body: Any = read_recipe(recipe).encoder
        width, cells = body.width // 2, body.cells
        for precision, dtype in PRECISIONS.items():
            layers = engines(width, cells, STREAMS, LENGTH, dtype)
            x = torch.randn(LENGTH * STREAMS, width, dtype=dtype)
            rounds = [{name: seconds(run, x) for name, run in layers.items()} for _ in range(ROUNDS)]
            for name in layers:
                record = {"streams": STREAMS, "shape": f"{width} / {cells}", "length": LENGTH}
                record["seconds"] = statistics.median(times[name] for times in rounds[1:])
                add("recurrence", {"recipe": recipe, "precision": precision, "engine": name}, record)


if __name__ == "__main__":
    main()
