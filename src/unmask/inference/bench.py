"""Measurements of a model's engines on this machine: throughput, latency and the distance from float32.

Input: a model. Output: a row for each back-end and precision that is installed and that the processor has, and a
recommendation. The inputs are random tokens of mixed lengths, the same for all; tokenizing is not included.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.inference.backend import Backend, TorchBackend
from unmask.inference.export import Export, difference, export_model, trace
from unmask.inference.exported import ExportedBackend, load_exported
from unmask.inference.program import FEATURES, SUMMARY, ProgramSignature, build_program, default_head, signature_of
from unmask.model.model import Model
from unmask.support.capabilities import emulates_bf16
from unmask.support.errors import UserError
from unmask.training.machine import INT8, choose_inference_machine, choose_machine

MEAN, DEVIATION, LONGEST = 25, 15, 128
"""Lengths of the sequences in tokens, normally distributed up to the longest, and cut to what the model reads."""
CLOSE = {"float32": 1e-3, "bf16": 0.05, "int8": 0.05}
"""Largest difference from float32, as a share of the largest output, up to which an engine is recommended."""
LIBRARIES = {"onnx": "onnxruntime", "openvino": "openvino"}
"""The library that computes the programs of each format."""
PROGRAMS = (("onnx", "float32"), ("onnx", "int8"), ("openvino", "float32"), ("openvino", "bf16"))
"""Formats and precisions of programs that need no examples."""


class EngineMeasurement(msgspec.Struct, frozen=True):
    """One engine of a model.

    Attributes:
        backend: "torch", "onnx" or "openvino".
        precision: "float32", "bf16" or "int8".
        sentences_per_second: many sequences, sorted and cut into batches.
        p50_ms, p99_ms: latency of a single sequence.
        difference: largest difference from torch in float32, as a share of the largest output.
    """

    backend: str
    precision: str
    sentences_per_second: float
    p50_ms: float
    p99_ms: float
    difference: float


class Bench(msgspec.Struct, frozen=True):
    """All rows; `recommended` is the index of the fastest that is close to float32; `left_out`: the others, and why."""

    rows: list[EngineMeasurement]
    recommended: int
    left_out: list[str]


def measure_engines(model: Model, *, sequences: int = 1000, requests: int = 200) -> Bench:
    """Measure every engine of a model.

    Args:
        model: the model.
        sequences: number of sequences that throughput is measured with.
        requests: number of single sequences that latency is measured with.
    """
    exact, left_out = TorchBackend(model, choose_machine("cpu", "float32")), list[str]()
    head = default_head(model)
    signature = signature_of(exact, head)
    samples = mixed_lengths(model, signature, sequences)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, precision, backend in _backends(model, exact, Path(folder), left_out):
            worst, scale = difference(exact, backend, model, signature)
            speed, latencies = time_backend(backend, model, signature, samples, requests)
            p50, p99 = np.percentile(latencies, (50, 99)).tolist()
            share = worst / (scale or 1.0)  # all outputs may be 0
            rows.append(EngineMeasurement(name, precision, speed, 1e3 * p50, 1e3 * p99, share))
    close = [number for number, row in enumerate(rows) if row.difference <= CLOSE[row.precision]]
    return Bench(rows, max(close, key=lambda number: rows[number].sentences_per_second), left_out)


def mixed_lengths(model: Model, signature: ProgramSignature, count: int) -> list[Sample]:
    """Return random sequences of mixed lengths, with the positions that the program's output is read at."""
    rng, frame = np.random.default_rng(0), Frame.of(model.tokenizer)
    longest = min(LONGEST, model.encoder.longest)
    made = []
    for length in np.clip(rng.normal(MEAN, DEVIATION, count), 4, longest).astype(int):
        sample = frame.wrap(rng.integers(model.tokenizer.size, size=length - 2))
        at = {} if signature.at in ("", SUMMARY) else {signature.at: np.arange(len(sample))}
        made.append(sample.add(positions=at))
    return made


def _backends(
    model: Model, exact: TorchBackend, folder: Path, left_out: list[str]
) -> Iterator[tuple[str, str, Backend]]:
    """Yield the engines one after the other, each with its name and precision."""
    yield "torch", "float32", exact
    if not emulates_bf16():
        yield "torch", "bf16", TorchBackend(model, choose_machine("cpu", "bf16"))
    try:
        in_int8 = TorchBackend(model, choose_inference_machine("cpu", INT8))
    except UserError as error:
        left_out.append(f"torch int8: {error.message}")
    else:
        yield "torch", INT8, in_int8
    yield from exported_backends(model, exact, default_head(model), PROGRAMS, folder, left_out)


def exported_backends(
    model: Model,
    exact: TorchBackend,
    head: str,
    programs: Collection[tuple[str, str]],
    folder: Path,
    left_out: list[str],
) -> Iterator[tuple[str, str, ExportedBackend]]:
    """Export a model and yield its programs one after the other, each with its format and precision.

    Args:
        model: the model.
        exact: its backend in float32.
        head: name of the head, or `FEATURES`.
        programs: some of `PROGRAMS`.
        folder: where they are written, each to FORMAT-PRECISION.
        left_out: receives a line for each that cannot be made or loaded here.
    """
    traced = folder / "model.onnx"
    for format, precision in programs:
        if missing := [package for package in (LIBRARIES[format], "onnxscript") if find_spec(package) is None]:
            left_out.append(f"{format} {precision}: {missing[0]} is not installed")
            continue
        try:
            if not traced.exists():
                program, signature = build_program(model, exact, head)
                trace(program, traced, signature.outputs)
            made = folder / f"{format}-{precision}"
            export_model(model, Export(format, precision, head), made, traced=traced)
            backend = load_exported(made)[1]
        except Exception as error:  # the libraries' errors have no common class
            reason = error.message if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            left_out.append(f"{format} {precision}: {reason}")
            continue
        yield format, precision, backend


def time_backend(
    backend: Backend, model: Model, signature: ProgramSignature, samples: Sequence[Sample], requests: int
) -> tuple[float, list[float]]:
    """Return sequences per second of all samples together, and the seconds that each of the first `requests` takes."""

    def compute(subset: Sequence[Sample]) -> None:
        if signature.head == FEATURES:
            for _ in backend.layers(subset, [model.encoder.num_layers]):
                pass
        else:
            backend.logits(signature.head, subset)

    compute(samples)  # compiles kernels, allocates
    start = time.perf_counter()
    compute(samples)
    speed = len(samples) / (time.perf_counter() - start)
    latencies = []
    for sample in samples[:requests]:
        start = time.perf_counter()
        compute([sample])
        latencies.append(time.perf_counter() - start)
    return speed, latencies
