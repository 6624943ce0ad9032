"""Engines of optional libraries: a clear error where one is missing, or its file damaged."""

import numpy as np
import pytest

from unmask.inference.engines import ENGINES, need
from unmask.support.errors import UserError


def test_a_missing_library_is_named_with_its_extra():
    with pytest.raises(UserError, match="this needs no_such_library") as caught:
        need("no_such_library", "onnx")
    assert "unmask[onnx]" in str(caught.value)


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_is_no_program_is_refused(name, tmp_path):
    pytest.importorskip({"onnx": "onnxruntime"}.get(name, name), reason="the extra is not installed")
    file, kind = ENGINES[name]
    (tmp_path / file).write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a program that can be computed"):
        kind(tmp_path / file, 1, "float32")


@pytest.mark.parametrize("location", ["../secret", "{folder}/secret"])
def test_C12_weights_outside_of_the_directory_are_not_read(location, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the extra is not installed")
    pytest.importorskip("onnxruntime", reason="the extra is not installed")
    (tmp_path / "secret").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location.format(folder=tmp_path))
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    program = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.onnx").write_bytes(program.SerializeToString())
    with pytest.raises(UserError, match="External data path"):
        ENGINES["onnx"][1](tmp_path / "model/model.onnx", 1, "float32")
