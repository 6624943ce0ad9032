"""Engines of optional libraries: a clear error where one is missing, or its file damaged."""

import numpy as np
import pytest

from unmask.inference.engines import ENGINES, need, program_file
from unmask.support.errors import UserError

from .. import forking


def test_a_missing_library_is_named_with_its_extra():
    with pytest.raises(UserError, match="this needs no_such_library") as caught:
        need("no_such_library", "onnx")
    assert "unmask[onnx]" in str(caught.value)


@pytest.mark.parametrize("name", ENGINES)
def test_a_file_that_is_no_program_is_refused(name, tmp_path):
    pytest.importorskip({"onnx": "onnxruntime"}.get(name, name), reason="the extra is not installed")
    file = program_file(tmp_path, name, "float32")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a program that can be computed"):
        ENGINES[name](file, 1, "float32")


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
        ENGINES["onnx"](tmp_path / "model/model.onnx", 1, "float32")


HARMFUL = """
import resource, sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from unmask.inference.engines import ENGINES
from unmask.support.errors import UserError

folder, kind = sys.argv[1:]
weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.0] * 4)
nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
initial = [weight]
if kind == "declared shape":
    del weight.float_data[:]
    weight.dims[:] = [10**6, 10**6]
elif kind in ("length", "negative", "endless"):
    del weight.float_data[:]
    weight.data_location = TensorProto.EXTERNAL
    where = {"location": "w.data", "offset": "0", "length": "16"}
    where |= {"length": {"length": 10**15}, "negative": {"offset": -8, "length": -16}, "endless": {}}[kind]
    if kind == "endless":
        (Path(folder) / "w.data").symlink_to("/dev/zero")
    else:
        (Path(folder) / "w.data").write_bytes(bytes(16))
    for key, value in where.items():
        weight.external_data.add(key=key, value=str(value))
else:  # 400 GB while it is computed
    initial.append(helper.make_tensor("shape", TensorProto.INT64, [3], [4, 100_000, 250_000]))
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["large"]) if kind == "expanded" else
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] if kind == "expanded" else [4])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
graph = helper.make_graph(nodes, "g", [x], [y], initial)
program = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
path = Path(folder) / "model.onnx"
path.write_bytes(program.SerializeToString())
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
try:
    engine = ENGINES["onnx"](path, 1, "float32")
    engine.run({"x": np.zeros(1 if kind == "expanded" else 4, np.float32)})
except UserError as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("kind", ["declared shape", "length", "negative", "endless", "constant", "expanded"])
def test_programs_made_to_harm_are_refused(kind, tmp_path):
    """In a process with 6 GiB of address space, so that what is allocated beyond it is noticed."""
    pytest.importorskip("onnx", reason="the extra is not installed")
    pytest.importorskip("onnxruntime", reason="the extra is not installed")
    done = forking.run(["-c", HARMFUL, tmp_path, kind])
    assert done.returncode == 0, done.stderr[-2000:]
    assert "model.onnx: not a program that can be computed" in done.stdout
