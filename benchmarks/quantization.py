"""What do exported programs and their number formats cost on real text, and what do they save?

MiniLM (a sentence-embedding model), fine-tuned by default on 10,000 phrases of SST-2 and on a quarter of the sentences
of CoNLL-2003. What `unmask export` makes of it labels the dev set of SST-2 and the test set of CoNLL-2003, tokenizing
included; its score minus that of the original in float32 comes with the interval of the paired bootstrap. OpenVINO's
int8 is calibrated by training examples. "this" is int8 for this processor alone (`export --target this`). Texts per
second are measured when the scored file is predicted again.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from common import RUNS, SHARED, add, minilm, parse
from labelled import SST2, SST2_DEV

import unmask
from unmask.inference.evaluation.scoring import evaluate_task
from unmask.inference.export import Export, export_model
from unmask.inference.program import CALIBRATION
from unmask.model.model import load_model

ENGINES = [
    *("torch float32", "torch bf16", "onnx float32", "onnx int8"),
    *("openvino float32", "openvino bf16", "openvino int8"),
    *("onnx int8 this", "openvino int8 this"),
]
TASKS = {
    "sst2": ("classification", 10_000, SST2, SST2_DEV),
    "conll2003": ("token-classification", 3_500, "ner/conll2003/eng.train.xz", "ner/conll2003/eng.testb.xz"),
}
"""Of each data set the task, how many examples are trained on, of which file, and the examples that are scored."""


def load(engine: str, run: Path, train: Path, folder: Path) -> Any:
    """Return what predicts with a fine-tuned model, exported where the engine is not torch."""
    kind, precision, *target = engine.split()
    if kind == "torch":
        return unmask.load(run, device="cpu", precision=precision)
    model, out = load_model(run), folder / engine.replace(" ", "-")
    assert model.task is not None
    examples = model.task.read([train], columns={})[:CALIBRATION]
    samples = model.task.frame(model.tokenizer, examples, model.labels, gold=False).samples
    export_model(model, Export(kind, precision, target=target[0] if target else "any"), out, samples)
    return unmask.load(out)


def measure(engine: str, run: Path, train: Path, scored: Path, folder: Path) -> dict[str, Any]:
    """Return score, difference from the original with its interval and p, and texts per second."""
    predictor, original = load(engine, run, train, folder), unmask.load(run, device="cpu")
    found = evaluate_task(predictor, [scored], columns={}, against=original)
    task = predictor.model.task
    examples = task.read([scored], columns={})
    start = time.perf_counter()
    predictor.run(examples)
    speed = len(examples) / (time.perf_counter() - start)
    return {
        "metric": task.metric,
        "score": found["metrics"][task.metric],
        **found["against"]["differences"][task.metric],
        "examples": len(examples),
        "texts_per_second": speed,
    }


def main() -> None:
    """Fine-tune where that is not done, and measure all engines."""
    options = parse(__doc__, TASKS, engines=ENGINES, runs=RUNS)
    for name in options.names:
        kind, examples, *files = TASKS[name]
        train, scored = (SHARED / file for file in files)
        run = options.runs / "quantization" / name
        if not (run / "model").exists():
            resume = (run / "provenance.json").exists()
            unmask.finetune(kind, minilm(), [train], run, dev=[scored], examples=examples, resume=resume)
        with tempfile.TemporaryDirectory() as folder:
            for engine in options.engines:
                found = measure(engine, run, train, scored, Path(folder))
                add("quantization", {"data": name, "engine": engine}, found)


if __name__ == "__main__":
    main()
