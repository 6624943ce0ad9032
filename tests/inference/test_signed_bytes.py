"""Signed and unsigned weights of ONNX programs give the same integers; processors that saturate are noticed."""

import numpy as np
import pytest

from unmask.inference import engines
from unmask.inference.engines import OFFSET, OnnxEngine, multiplies_signed_bytes, with_weights

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


@pytest.fixture
def program(tmp_path):
    """Write a program that multiplies by unsigned weights with a zero point of each column; return it and them."""

    def write(seed, shared=False):
        rng, helper = np.random.default_rng(seed), onnx.helper
        weights, zeros = rng.integers(0, 256, (24, 8), np.uint8), rng.integers(0, 256, 8, np.uint8)
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["bytes", "scale", "zero"]),
            helper.make_node("MatMulInteger", ["bytes", "weights", "zero", "zeros"], ["whole"]),
            helper.make_node("Cast", ["whole"], ["y"], to=onnx.TensorProto.FLOAT),
        ]
        outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 8])]
        if shared:
            nodes.append(helper.make_node("Identity", ["weights"], ["copy"]))
            outputs.append(helper.make_tensor_value_info("copy", onnx.TensorProto.UINT8, [24, 8]))
        inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 24])]
        stored = [onnx.numpy_helper.from_array(array, name) for array, name in ((weights, "weights"), (zeros, "zeros"))]
        graph = helper.make_graph(nodes, "bytes", inputs, outputs, stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, tmp_path / "model.onnx")
        return tmp_path / "model.onnx", weights, zeros

    return write


def expected(x, weights, zeros):
    """The integers of the operators' definitions: 255 steps from the lowest to the highest number, 0 being one."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.clip(np.round(-low / scale), 0, 255)
    quantized = np.clip(np.round(x / scale) + zero, 0, 255)
    return (quantized - zero) @ (weights.astype(np.float64) - zeros)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_outputs_are_the_exact_integers_either_way(program, seed, signed, monkeypatch):
    if signed and not multiplies_signed_bytes():
        pytest.skip("this processor adds products of bytes in 16 bits, so that signed weights are not used")
    path, weights, zeros = program(seed)
    monkeypatch.setattr(engines, "multiplies_signed_bytes", lambda: signed)
    x = np.random.default_rng(seed).normal(size=(9, 24)).astype(np.float32)
    np.testing.assert_array_equal(OnnxEngine(path, 1, "int8").run({"x": x}), expected(x, weights, zeros))


def test_weights_and_zero_points_are_moved_together(program):
    path, weights, zeros = program(0)
    changed = onnx.load_from_string(with_weights(path, signed=True))
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in changed.graph.initializer}
    assert {array.dtype for array in stored.values()} == {np.dtype(np.int8)}
    for before, name in ((weights, "weights"), (zeros, "zeros")):
        np.testing.assert_array_equal(stored[name].astype(int) + OFFSET, before)


def test_weights_that_something_else_reads_stay_as_they_are(program):
    path, *_ = program(0, shared=True)
    assert with_weights(path, signed=True) == str(path)


@pytest.mark.parametrize("shift", [0, 128], ids=["x86", "ARM"])
def test_the_trial_notices_sums_that_saturate(monkeypatch, shift):
    class Saturating:
        """Adds pairs of products in 16 bits, as processors without VNNI; ARM's kernel makes both factors signed."""

        def __init__(self, program, providers):
            (tensor,) = onnx.load_from_string(program).graph.initializer
            self.weights = onnx.numpy_helper.to_array(tensor).astype(np.int32)

        def run(self, names, inputs):
            products = (inputs["x"].astype(np.int32)[:, :, None] - shift) * self.weights  # (rows, 64, columns)
            pairs = products[:, ::2] + products[:, 1::2]
            return [pairs.clip(-(2**15), 2**15 - 1).sum(1) + shift * self.weights.sum(0)]

    assert multiplies_signed_bytes.__wrapped__() == multiplies_signed_bytes()
    monkeypatch.setattr(runtime, "InferenceSession", Saturating)
    assert not multiplies_signed_bytes.__wrapped__()


def test_signed_weights_become_unsigned_where_they_saturate(program, tmp_path, monkeypatch):
    """And the integers are the same, both ways."""
    path, weights, zeros = program(1)
    signed = tmp_path / "signed.onnx"
    signed.write_bytes(with_weights(path, signed=True))
    assert with_weights(signed, signed=True) == str(signed)
    assert with_weights(path, signed=False) == str(path)
    back = onnx.load_from_string(with_weights(signed, signed=False))
    assert back.graph == onnx.load(path).graph
    monkeypatch.setattr(engines, "multiplies_signed_bytes", lambda: False)
    x = np.random.default_rng(1).normal(size=(9, 24)).astype(np.float32)
    np.testing.assert_array_equal(OnnxEngine(signed, 1, "int8").run({"x": x}), expected(x, weights, zeros))
