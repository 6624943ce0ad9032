"""Products of unsigned activations and weights of bytes in ONNX Runtime: signed weights where they are exact.

Without VNNI or AMX a processor adds pairs of products with signed weights in 16 bits, and 255 * 127 twice is too large
for them, as is (-128) * (-128) twice on ARM without dot products. ONNX Runtime then computes wrong outputs without a
word. For unsigned weights every processor has an exact kernel, but a slow one. Exported programs therefore hold
unsigned weights, which any program can compute exactly. Here they become signed where this processor multiplies those
exactly, and signed ones unsigned where it does not: the integers, and so the outputs, are the same, in less than half
the time on processors with VNNI.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

OPERATOR = "MatMulInteger"
OFFSET = 128
"""Difference between an unsigned and a signed byte that stand for the same weight."""


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
