"""Inference of the same classifier by unmask and by its peers, which take turns in one run.

Case: a classifier with random weights in the shape of MiniLM or BERT-base, on texts of random words with lengths of
mean 25 tokens. Each engine gets texts and returns logits, so tokenizing is included; every engine sorts by length.
unmask is `unmask.load(DIR).predict`, on the directory itself or on what `unmask export` wrote. transformers is called
as its documentation does, in batches of 32. sentence-transformers has no classifiers of single texts: it returns the
mean of the last layer of the same encoder. ONNX Runtime and OpenVINO compute the exported programs in padded batches
of 32, and so does "inductor", the same program captured by torch.export and compiled by AOTInductor, which needs a C++
compiler.

`--beside N`: other programs keep N cores busy meanwhile, as on a machine that is shared; that is a result of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SEEDS, alternate, machine, minilm, parse
from pretrain_speed import random_texts
from torch.export import Dim

import unmask
from unmask.families import BodySettings
from unmask.families.bert import BertSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.engines import ENGINES, program_file
from unmask.inference.program import build_program, default_head
from unmask.model.model import Model, load_model, save_model
from unmask.support.choices import Device
from unmask.tasks.classification import Classification
from unmask.training.machine import choose_machine

SHAPES = {"tiny": (2, 128, 2), "minilm": (6, 384, 12), "base": (12, 768, 12)}
"""Layers, width and heads."""
PEERS = [
    *("unmask float32", "unmask bf16", "unmask-onnx float32", "unmask-openvino float32", "unmask-openvino bf16"),
    *("unmask int8", "unmask-onnx int8", "transformers float32", "transformers bf16", "sentence-transformers float32"),
    *("onnx float32", "onnx int8", "openvino float32", "openvino bf16", "inductor float32"),
]
BATCH, GPU_BATCH = 32, 256
LENGTH = 128
Run = Callable[[Sequence[str]], Any]


def build(shape: str, folder: Path) -> Path:
    """Write the classifier of a shape; return its directory."""
    layers, width, heads = SHAPES[shape]
    settings = BertSettings(layers=layers, width=width, heads=heads, feed_forward=4 * width)
    return write_classifier(settings, LENGTH, folder / shape)


def write_classifier(settings: BodySettings, length: int, out: Path) -> Path:
    """Write a classifier with random weights and the vocabulary of MiniLM; return its directory."""
    tokenizer, task, labels = unmask.load_tokenizer(minilm()), Classification(length=length, pairs=False), ("no", "yes")
    torch.manual_seed(0)
    body = settings.build(tokenizer.size)
    heads = {task.part: task.build(body.head, labels).published()}
    save_model(out, Model(body, tokenizer, heads, labels, task), "A benchmark.")
    return out


def texts(count: int) -> list[str]:
    """Return texts of random words, each a token; with the special tokens their lengths have a mean of 25."""
    rng = np.random.default_rng(3)
    lengths = np.clip(rng.normal(25, 15, count), 4, LENGTH).astype(int) - 2
    return random_texts(unmask.load_tokenizer(minilm()), lengths, rng)


def engine(name: str, model: Path, folder: Path, device: Device = "cpu", length: int = LENGTH) -> Run:
    """Return the function by which an engine computes texts of at most this length."""
    kind, precision = name.split()
    if kind == "unmask":
        return unmask.load(model, device=device, precision=precision, engine="torch").predict
    if kind.startswith("unmask-"):
        return unmask.load(_exported(model, kind.removeprefix("unmask-"), precision, folder)).predict
    if kind == "transformers":
        return _transformers(model, precision, device, length)
    if kind == "sentence-transformers":
        return _vectors(model)
    if kind == "inductor":
        return _captured(model, folder)
    return _padded(model, kind, precision, folder)


def _exported(model: Path, target: str, precision: Any, folder: Path) -> Path:
    out = folder / f"{target}-{precision}"
    unmask.export(model, out, target, precision=precision, quiet=True)
    return out


def _transformers(model: Path, precision: str, device: Device, length: int) -> Run:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=dtype).eval().to(device)

    @torch.inference_mode()
    def compute(some: Sequence[str]) -> Any:
        given = tokenizer(some, padding=True, truncation=True, max_length=length, return_tensors="pt")
        return network(**given.to(device)).logits.float().cpu().numpy()

    return _in_batches(compute, GPU_BATCH if device == "cuda" else BATCH)


def _vectors(model: Path) -> Run:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    body = Transformer(str(model), max_seq_length=LENGTH)
    network = SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension())], device="cpu")
    return lambda some: network.encode(list(some), batch_size=BATCH, show_progress_bar=False)


def _padded(model: Path, target: str, precision: str, folder: Path) -> Run:
    """Return ONNX Runtime or OpenVINO on padded batches, with the tokenizer of transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    file = program_file(_exported(model, target, precision, folder), target, precision)
    compiled = ENGINES[target](file, torch.get_num_threads(), precision)

    def compute(some: Sequence[str]) -> Any:
        return compiled.run(tokenizer(some, padding=True, truncation=True, max_length=LENGTH, return_tensors="np"))

    return _in_batches(compute)


def _captured(model: Path, folder: Path) -> Run:
    """Return the program that is exported, as AOTInductor compiles it, on padded batches."""
    from transformers import AutoTokenizer

    tokenizer, loaded = AutoTokenizer.from_pretrained(model), load_model(model)
    program, _ = build_program(loaded, TorchBackend(loaded, choose_machine("cpu", "float32")), default_head(loaded))
    examples = tuple(torch.ones(3, 7, dtype=torch.int64) for _ in program.inputs)
    sizes = {0: Dim("batch", min=1, max=BATCH), 1: Dim("length", min=2, max=LENGTH)}
    with torch.no_grad():
        captured = torch.export.export(program.eval(), examples, dynamic_shapes=(sizes,) * len(examples))
        package = torch._inductor.aoti_compile_and_package(captured, package_path=str(folder / "program.pt2"))
    compiled: Any = torch._inductor.aoti_load_package(package)

    @torch.inference_mode()
    def compute(some: Sequence[str]) -> Any:
        given = tokenizer(some, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt")
        return compiled(*(given[name] for name in program.inputs)).numpy()

    return _in_batches(compute)


def _in_batches(compute: Run, batch: int = BATCH) -> Run:
    """Return a function that computes texts in batches, the longest first, as sentence-transformers does."""

    def run(some: Sequence[str]) -> list[Any]:
        order = sorted(some, key=len, reverse=True)
        return [compute(order[start : start + batch]) for start in range(0, len(order), batch)]

    return run


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep some processes busy that compute all the time."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(
    name: str, shape: str, count: int, requests: int, device: Device = "cpu", beside: int = 0
) -> dict[str, Any]:
    """Return sentences per second of all texts together, and the latency of some alone."""
    given = texts(count)
    with tempfile.TemporaryDirectory() as folder:
        run = engine(name, build(shape, Path(folder)), Path(folder), device)
        run(given)  # compiles kernels, allocates
        with busy(beside):
            start = time.perf_counter()
            run(given)
            speed = count / (time.perf_counter() - start)
            latencies = []
            for text in given[:requests]:
                start = time.perf_counter()
                run([text])
                latencies.append(1e3 * (time.perf_counter() - start))
    p50, p99 = np.percentile(latencies, (50, 99)).tolist()
    return {"sentences": count, "sentences_per_second": speed, "p50_ms": p50, "p99_ms": p99}


def main() -> None:
    """Measure every engine in turn."""
    options = parse(__doc__, list(SHAPES)[1:], sentences=1000, requests=200, rounds=SEEDS, engines=PEERS, beside=0)
    result, key = ("beside", machine() | {"beside": options.beside}) if options.beside else ("inference", machine())
    for shape in options.names:
        for number in options.rounds:
            work = partial(measure, count=options.sentences, requests=options.requests, beside=options.beside)
            alternate(result, work, options.engines, {"case": shape}, **key, round=number)


if __name__ == "__main__":
    main()
