"""What does a static encoder keep of its model, and how much faster is it?

The static encoder of MiniLM (`unmask export --format static`) and MiniLM itself give pairs of texts a cosine, which is
compared with people's scores (Spearman, with a bootstrap interval over pairs). Speed is the number of texts per second
of CPU time, in one thread, the best of `--rounds`, in which the two take turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from common import SHARED, add, minilm, parse

import unmask
from unmask.data.labelled.labelled_file import Row
from unmask.inference.load import load
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import intervals, measure_all
from unmask.metrics.regression import measure
from unmask.tasks.embedding import Embedding

DATA = {
    "SICK": ["pairs/sick/SICK_test_annotated.txt.xz"],
    "STS 2016": [f"pairs/sts/2016/{name}.test.tsv" for name in ("answer-answer", "headlines", "plagiarism")],
}
"""Files of pairs with scores, under shared/data."""


def score(predictor: Predictor, rows: Sequence[Row]) -> dict[str, object]:
    """Return Spearman's correlation of cosines with scores, its interval and the number of pairs."""
    gold = np.array([float(row.values["label"]) for row in rows])
    first, second = (predictor.vectors([row.values[name] for row in rows])[0] for name in ("text", "text_b"))
    measured = measure(gold, (first * second).sum(1))
    return {
        "spearman": measure_all(measured, len(rows))["spearman"],
        "interval": intervals(measured, len(rows))["spearman"],
        "examples": len(rows),
    }


def speed(predictor: Predictor, texts: Sequence[str]) -> float:
    """Return how many texts are computed in a second of CPU time."""
    start = time.process_time()
    predictor.vectors(texts)
    return len(texts) / (time.process_time() - start)


def main() -> None:
    """Run the benchmark and add its records to benchmarks/results/static_encoder.json."""
    options = parse(__doc__, rounds=3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        unmask.export(minilm(), f"{folder}/static", "static", quiet=True)
        predictors = {"model": load(minilm(), device="cpu"), "static": load(f"{folder}/static", device="cpu")}
        pairs = {name: Embedding().read([SHARED / file for file in files], columns={}) for name, files in DATA.items()}
        texts = [row.values[name] for row in pairs["SICK"] for name in ("text", "text_b")]
        speeds = [
            {kind: speed(predictor, texts) for kind, predictor in predictors.items()} for _ in range(options.rounds)
        ]
        for (kind, predictor), (name, rows) in product(predictors.items(), pairs.items()):
            record = score(predictor, rows) | {"texts_per_cpu_second": max(of[kind] for of in speeds)}
            add("static_encoder", {"encoder": kind, "data": name}, record)


if __name__ == "__main__":
    main()
