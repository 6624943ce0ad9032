"""What do exported models cost on real text, and what do they save?

`sst2`, `conll2003`: MiniLM (a sentence-embedding model), fine-tuned by default on 10,000 phrases of SST-2 and on a
quarter of the sentences of CoNLL-2003. What `unmask export` makes of it labels the dev set of SST-2 and the test set of
CoNLL-2003, tokenizing included; its score minus that of the original in float32 comes with the interval of the paired
comparison of `evaluate`. OpenVINO's int8 is calibrated by training examples. Texts per second are measured when the
scored file is predicted again.

`static`: the static encoder of MiniLM (`unmask export --format static`) and MiniLM itself give pairs of texts a cosine,
which is compared with people's scores (Spearman, with a bootstrap interval over pairs). Speed is the number of texts
per second of CPU time, in one thread, the best of some rounds, in which the two take turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RUNS, SHARED, add, minilm, parse
from labelled import SST2, SST2_DEV

import unmask
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.export import Export, export_model
from unmask.inference.program import CALIBRATION
from unmask.metrics.intervals import intervals, measure_all
from unmask.metrics.regression import measure
from unmask.model.model import load_model
from unmask.tasks.embedding import Embedding

ENGINES = [
    *("torch float32", "torch bf16", "torch int8", "onnx float32", "onnx int8"),
    *("openvino float32", "openvino bf16", "openvino int8"),
]
TASKS = {
    "sst2": ("classification", 10_000, SST2, SST2_DEV),
    "conll2003": ("token-classification", 3_500, "ner/conll2003/eng.train.xz", "ner/conll2003/eng.testb.xz"),
}
"""Of each data set the task, how many examples are trained on, of which file, and the examples that are scored."""
PAIRS = {
    "SICK": ["pairs/sick/SICK_test_annotated.txt.xz"],
    "STS 2016": [f"pairs/sts/2016/{name}.test.tsv" for name in ("answer-answer", "headlines", "plagiarism")],
}
"""Files of pairs with scores."""
ROUNDS = 2


def load(engine: str, run: Path, train: Path, folder: Path) -> Any:
    """Return what predicts with a fine-tuned model, exported where the engine is not torch."""
    kind, precision = engine.split()
    if kind == "torch":
        return unmask.load(run, device="cpu", precision=precision)
    model, out = load_model(run), folder / engine.replace(" ", "-")
    assert model.task is not None
    examples = model.task.read([train], columns={})[:CALIBRATION]
    samples = model.task.frame(model.tokenizer, examples, model.labels, gold=False).samples
    export_model(model, Export(kind, precision), out, samples)
    return unmask.load(out)


def compared(engine: str, run: Path, train: Path, scored: Path, folder: Path) -> dict[str, Any]:
    """Return score, difference from the original with its interval and p, and texts per second."""
    predictor, original = load(engine, run, train, folder), unmask.load(run, device="cpu")
    found = evaluate_task(predictor, [scored], columns={}, against=original)
    task = predictor.model.task
    examples = task.read([scored], columns={})
    start = time.perf_counter()
    predictor.run(examples)
    speed = len(examples) / (time.perf_counter() - start)
    score = {"metric": task.metric, "score": found["metrics"][task.metric]}
    differences = found["against"]["differences"][task.metric]
    return {**score, **differences, "examples": len(examples), "texts_per_second": speed}


def programs(name: str, run: Path) -> None:
    """Fine-tune where that is not done, and measure all engines."""
    kind, examples, *files = TASKS[name]
    train, scored = (SHARED / file for file in files)
    if not (run / "model").exists():
        resume = (run / "provenance.json").exists()
        unmask.finetune(kind, minilm(), [train], run, dev=[scored], examples=examples, resume=resume)
    with tempfile.TemporaryDirectory() as folder:
        for engine in ENGINES:
            add("quantization", {"data": name, "engine": engine}, compared(engine, run, train, scored, Path(folder)))


def cpu_speed(encoder: Any, texts: Sequence[str]) -> float:
    """Return how many texts are computed in a second of CPU time."""
    start = time.process_time()
    encoder.vectors(texts)
    return len(texts) / (time.process_time() - start)


def static() -> None:
    """Compare MiniLM and its static encoder on all pairs."""
    torch.set_num_threads(1)
    pairs = {name: Embedding().read([SHARED / file for file in files], columns={}) for name, files in PAIRS.items()}
    texts = [row.values[part] for row in pairs["SICK"] for part in ("text", "text_b")]
    with tempfile.TemporaryDirectory() as folder:
        unmask.export(minilm(), f"{folder}/static", "static", quiet=True)
        models = {"model": minilm(), "static": f"{folder}/static"}
        encoders: dict[str, Any] = {kind: unmask.load(model, device="cpu") for kind, model in models.items()}
        speeds = [{kind: cpu_speed(encoder, texts) for kind, encoder in encoders.items()} for _ in range(ROUNDS)]
        for kind, encoder in encoders.items():
            for name, rows in pairs.items():
                gold = np.array([float(row.values["label"]) for row in rows])
                one, other = (encoder.vectors([row.values[part] for row in rows])[0] for part in ("text", "text_b"))
                scored = measure(gold, (one * other).sum(1))
                values, bounds = measure_all(scored, len(rows)), intervals(scored, len(rows))
                record = {"spearman": values["spearman"], "interval": bounds["spearman"], "examples": len(rows)}
                record["texts_per_cpu_second"] = max(of[kind] for of in speeds)
                add("static_encoder", {"encoder": kind, "data": name}, record)


def main() -> None:
    """Measure programs and static encoders."""
    options = parse(__doc__, [*TASKS, "static"], runs=RUNS)
    for name in options.names:
        if name == "static":
            static()
        else:
            programs(name, options.runs / "quantization" / name)


if __name__ == "__main__":
    main()
