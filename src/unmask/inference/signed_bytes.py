"""Products of unsigned activations and signed weights in ONNX Runtime: exact or not, and made fast where they are.

Without VNNI or AMX a processor adds pairs of such products in 16 bits, and 255 * 127 twice is too large for them. ONNX
Runtime then computes wrong outputs without a word, unless it converts the weights to unsigned ones (`EXACT`), for which
every processor has an exact, but slower kernel. Exported programs therefore hold unsigned weights, which any program
can compute exactly, and here they become signed where this processor multiplies those exactly: the integers, and so the
outputs, are the same, in less than half the time on processors with VNNI.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

EXACT = "session.x64quantprecision"
"""ONNX Runtime's setting that makes processors without VNNI multiply signed weights exactly."""
OPERATOR = "MatMulInteger"
OFFSET = 128
"""Difference between an unsigned and a signed byte that stand for the same weight."""


@cache
def multiplies_signed_bytes() -> bool:
    """Return whether ONNX Runtime multiplies unsigned by signed bytes exactly on this processor, by trying it."""
    helper, runtime = import_module("onnx.helper"), import_module("onnxruntime")
    types = import_module("onnx").TensorProto
    weights = np.full((64, 16), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node(OPERATOR, ["x", "weights"], ["y"])],
        "trial",
        [helper.make_tensor_value_info("x", types.UINT8, [None, 64])],
        [helper.make_tensor_value_info("y", types.INT32, [None, 16])],
        [import_module("onnx.numpy_helper").from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.full((16, 64), 255, np.uint8)
    exact = x.astype(np.int32) @ weights.astype(np.int32)
    return all(bool((session.run(None, {"x": x[:rows]})[0] == exact[:rows]).all()) for rows in (1, 16))


def with_signed_weights(path: Path) -> bytes | str:
    """Return a program whose unsigned weights and their zero points are signed; its path, if it has none."""
    onnx, arrays = import_module("onnx"), import_module("onnx.numpy_helper")
    program = onnx.load(str(path), load_external_data=False)
    stored = {tensor.name: tensor for tensor in program.graph.initializer}
    uses = Counter(name for node in program.graph.node for name in node.input)
    changed: dict[str, Any] = {}
    for node in program.graph.node:
        names = (node.input[1], node.input[3]) if node.op_type == OPERATOR and len(node.input) == 4 else ()
        if names and all(name in stored and stored[name].data_type == onnx.TensorProto.UINT8 for name in names):
            changed |= {name: stored[name] for name in names}
            uses.subtract(names)
    if not changed or any(uses[name] for name in changed):  # something else reads them
        return str(path)
    for name, tensor in changed.items():
        signed = arrays.to_array(tensor).astype(np.int16) - OFFSET
        tensor.CopyFrom(arrays.from_array(signed.astype(np.int8), name))
    serialized: bytes = program.SerializeToString()
    return serialized
