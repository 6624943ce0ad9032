"""Engines of other libraries: ONNX Runtime and OpenVINO compute an exported program.

Input: the file of a program; padded arrays. Output: the program's output as an array. Both libraries are optional.

Products of unsigned activations and weights of bytes in ONNX Runtime have signed weights where they are exact. Without
VNNI or AMX a processor adds pairs of products with signed weights in 16 bits, and 255 * 127 twice is too large for
them, as is (-128) * (-128) twice on ARM without dot products. ONNX Runtime then computes wrong outputs without a word.
For unsigned weights every processor has an exact kernel, but a slow one. Exported programs therefore hold unsigned
weights, which any program can compute exactly. Here they become signed where this processor multiplies those exactly,
and signed ones unsigned where it does not: the integers, and so the outputs, are the same, in less than half the time
on processors with VNNI.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.support.errors import UserError

Arrays = Mapping[str, np.ndarray]
HINTS = {"float32": "f32", "int8": "f32", "bf16": "bf16"}
"""OpenVINO's names of the precision in which what is not quantized is computed."""
OPERATOR = "MatMulInteger"
OFFSET = 128
"""Difference between an unsigned and a signed byte that stand for the same weight."""


class Engine(Protocol):
    """A compiled program.

    Attributes:
        precision: what it is computed in.
    """

    precision: str

    def run(self, inputs: Arrays) -> np.ndarray:
        """Return the output for padded inputs, (batch, length) int64 each; safe to call from several threads.

        Raises:
            UserError: the program cannot be computed, for example for want of memory.
        """
        ...


class OnnxEngine:
    """`Engine` of ONNX Runtime, on the CPU.

    Args:
        path: file of the program.
        threads: number of threads to compute with.
        precision: that of the file; see inference/engines.py for int8.

    Raises:
        UserError: onnxruntime is not installed, or the file is damaged.
    """

    def __init__(self, path: Path, threads: int, precision: str) -> None:
        runtime = need("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if int8 := precision == "int8":
            need("onnx", "onnx")
        try:
            program = with_weights(path, signed=multiplies_signed_bytes()) if int8 else str(path)
            self.session = runtime.InferenceSession(program, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's errors have no common class
            raise damaged(path, error) from error
        self.path, self.precision = path, precision
        self.names = [graph_input.name for graph_input in self.session.get_inputs()]

    def run(self, inputs: Arrays) -> np.ndarray:
        """See `Engine`."""
        try:
            outputs = self.session.run(None, {name: inputs[name] for name in self.names})
        except Exception as error:  # the library's errors have no common class
            raise damaged(self.path, error) from error
        return in_columns(outputs)


class OpenVinoEngine:
    """`Engine` of OpenVINO, on the CPU; arguments and errors as for `OnnxEngine`.

    Each thread has a request of its own, which is reused. On processors on which OpenVINO does not compute in bf16,
    such a program, whose weights are float32, is computed in float32.
    """

    def __init__(self, path: Path, threads: int, precision: str) -> None:
        library = need("openvino", "openvino")
        self.precision = "float32" if precision == "bf16" and not openvino_computes_bf16() else precision
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
        }
        try:
            self.compiled = library.Core().compile_model(str(path), "CPU", settings)
        except RuntimeError as error:
            raise damaged(path, error) from error
        self.path = path
        self.names = [graph_input.get_any_name() for graph_input in self.compiled.inputs]
        self.requests = threading.local()

    def run(self, inputs: Arrays) -> np.ndarray:
        """See `Engine`."""
        if not hasattr(self.requests, "request"):
            self.requests.request = self.compiled.create_infer_request()
        try:
            outputs = self.requests.request.infer({name: inputs[name] for name in self.names}, share_inputs=True)
        except Exception as error:  # the library's errors have no common class
            raise damaged(self.path, error) from error
        return np.array(in_columns([outputs[number] for number in range(len(outputs))]))  # a copy: memory is reused


ENGINES: dict[str, type[OnnxEngine] | type[OpenVinoEngine]] = {"onnx": OnnxEngine, "openvino": OpenVinoEngine}
"""The engine of each format."""
FLOAT32, INT8, OLD = "onnx/model.onnx", "onnx/model_quantized.onnx", "model.onnx"
"""The files of ONNX programs, where Optimum writes them and transformers.js finds them, and of older exports."""


def program_file(directory: Path, format: str, precision: str) -> Path:
    """Return the file of a program in a directory, which need not be there."""
    if format != "onnx":
        return directory / "model.xml"
    path = directory / (INT8 if precision == "int8" else FLOAT32)
    return path if path.is_file() or not (directory / OLD).is_file() else directory / OLD


def in_columns(outputs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the outputs of a program, of which several are the columns of one."""
    return outputs[0] if len(outputs) == 1 else np.stack(outputs, -1)


@cache
def openvino_computes_bf16() -> bool:
    """Return whether OpenVINO computes in bf16 on this processor, by trying a product."""
    library, operators = need("openvino", "openvino"), need("openvino.opset13", "openvino")
    x = operators.parameter([-1, 64], np.float32)
    product = operators.matmul(x, operators.constant(np.ones((64, 64), np.float32)), False, False)
    settings = {"INFERENCE_PRECISION_HINT": HINTS["bf16"]}
    try:
        compiled = library.Core().compile_model(library.Model([product], [x]), "CPU", settings)
        exact = bool((compiled({0: np.ones((2, 64), np.float32)})[0] == 64).all())
    except RuntimeError:  # OpenVINO goes by the flags of the processor, its oneDNN by what it may use
        return False
    return exact and compiled.get_property("INFERENCE_PRECISION_HINT") == library.Type.bf16


def need(module: str, extra: str) -> Any:
    """Return a module of an optional library.

    Raises:
        UserError: it is not installed, or the installation is broken; names the extra that has it.
    """
    remedy = f'pip install "unmask[{extra}]"'
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"this needs {module}", remedy=remedy) from error
    except Exception as error:  # of a version that does not fit others, whatever fails first
        raise UserError(f"{module} cannot be imported ({type(error).__name__}: {error})", remedy=remedy) from error


def damaged(path: Path, error: Exception) -> UserError:
    """Return the error for a program that cannot be read."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return UserError(f"not a program that can be computed ({lines[0]})", file=path, remedy="export the model again")


@cache
def multiplies_signed_bytes() -> bool:
    """Return whether ONNX Runtime multiplies unsigned by signed bytes exactly on this processor, by trying it."""
    helper, runtime = import_module("onnx.helper"), import_module("onnxruntime")
    types = import_module("onnx").TensorProto
    weights = np.repeat(np.array([[127] * 8 + [-128] * 8], np.int8), 64, 0)  # the largest products of either sign
    graph = helper.make_graph(
        [helper.make_node(OPERATOR, ["x", "weights"], ["y"])],
        "trial",
        [helper.make_tensor_value_info("x", types.UINT8, [None, 64])],
        [helper.make_tensor_value_info("y", types.INT32, [None, 16])],
        [import_module("onnx.numpy_helper").from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (1, 16):
        for byte in (255, 0):  # some kernels subtract 128 from these, too
            x = np.full((rows, 64), byte, np.uint8)
            if (session.run(None, {"x": x})[0] != x.astype(np.int32) @ weights.astype(np.int32)).any():
                return False
    return True


def with_weights(path: Path, *, signed: bool) -> bytes | str:
    """Return a program whose weights and their zero points are all signed, or all unsigned; its path, if they are so.

    Weights that something else reads, too, stay as they are.
    """
    onnx, arrays = import_module("onnx"), import_module("onnx.numpy_helper")
    kinds = (np.uint8, np.int8) if signed else (np.int8, np.uint8)
    program = onnx.load(str(path), load_external_data=False)
    stored = {tensor.name: tensor for tensor in program.graph.initializer}
    uses = Counter(name for node in program.graph.node for name in node.input)
    changed: dict[str, Any] = {}
    for node in program.graph.node:
        names = (node.input[1], node.input[3]) if node.op_type == OPERATOR and len(node.input) == 4 else ()
        if names and all(name in stored and arrays.to_array(stored[name]).dtype == kinds[0] for name in names):
            changed |= {name: stored[name] for name in names}
            uses.subtract(names)
    if not changed or any(uses[name] for name in changed):
        return str(path)
    for name, tensor in changed.items():
        moved = arrays.to_array(tensor).astype(np.int16) + (-OFFSET if signed else OFFSET)
        tensor.CopyFrom(arrays.from_array(moved.astype(kinds[1]), name))
    serialized: bytes = program.SerializeToString()
    return serialized
