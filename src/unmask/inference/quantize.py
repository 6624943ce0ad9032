"""Quantization of exported programs to int8.

ONNX Runtime quantizes weights in advance, per channel, and activations while computing; OpenVINO (by NNCF) quantizes
both in advance, with scales that real inputs determine.

Processors without VNNI or AMX add products of unsigned activations and signed weights in 16 bits, where sums of two can
saturate: a program is then silently off by as much as int8 itself costs. So by default the weights of ONNX programs are
unsigned, which every processor multiplies exactly (inference/signed_bytes.py makes them as fast), and those of OpenVINO
programs have half of the range, so that no sum saturates.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.inference.engines import need
from unmask.inference.program import INPUTS

CALIBRATION = 128
"""Maximum number of texts that OpenVINO's scales are determined by."""


def quantize_onnx(path: Path, out: Path, *, signed: bool = False) -> None:
    """Write a program with int8 weights.

    Args:
        path: the program in float32.
        out: the file to write.
        signed: whether the weights are signed: faster where a processor multiplies them exactly, and off elsewhere.
    """
    onnx, quantization = need("onnx", "onnx"), need("onnxruntime.quantization", "onnx")
    program = onnx.load(str(path))
    del program.graph.value_info[:]  # shapes that the exporter wrote contradict those that the quantizer infers
    kind = quantization.QuantType.QInt8 if signed else quantization.QuantType.QUInt8
    quantization.quantize_dynamic(program, str(out), weight_type=kind, per_channel=True)


def quantize_openvino(program: Any, samples: Sequence[Sample], *, signed: bool = False) -> Any:
    """Return an OpenVINO program with int8 weights and activations.

    Args:
        program: the program in float32; it is changed.
        samples: real inputs.
        signed: whether the weights have the whole range of signed bytes: closer to float32 where a processor
            multiplies them exactly, and off elsewhere.
    """
    os.environ["NNCF_CI"] = "1"  # otherwise it reports its use to its makers
    nncf = need("nncf", "openvino")
    wanted = [program_input.get_any_name() for program_input in program.inputs]

    def inputs(sample: Sample) -> dict[str, np.ndarray]:
        ids = np.asarray(sample.ids, np.int64)
        segments = np.zeros_like(ids) if sample.segments is None else np.asarray(sample.segments, np.int64)
        arrays = dict(zip(INPUTS, (ids[None], np.ones_like(ids)[None], segments[None]), strict=True))
        return {name: arrays[name] for name in wanted}

    data = nncf.Dataset(list(samples), inputs)
    fix = nncf.OverflowFix.DISABLE if signed else nncf.OverflowFix.ENABLE
    return nncf.quantize(
        program,
        data,
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(samples),
        advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
    )


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silence what the libraries log below errors, such as hints about packages that are not needed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
