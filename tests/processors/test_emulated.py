"""int8 programs compute the same on processors without VNNI as on this one, or are refused there.

ONNX Runtime and OpenVINO choose their kernels by the processor's flags; emulated_process.py changes those. Only the
engine is there, in another process (emulated_engine.py): the exports and checks of these tests run here.
"""

import sys
from contextlib import closing
from functools import cache

import numpy as np
import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.inference import export
from unmask.inference.engines import ENGINES, OPERATOR, multiplies_signed_bytes, program_file
from unmask.inference.export import Export, export_model
from unmask.inference.exported import load_exported
from unmask.inference.program import INPUTS
from unmask.model.model import Model
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification
from unmask.tasks.rows import as_rows, frame_rows

from .emulated_process import AARCH64, MASKED, PROCESSORS, Emulated, python_on

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
pytest.importorskip("onnxscript", reason="the extra onnx is not installed")

pytestmark = pytest.mark.exhaustive
SATURATING = (MASKED, "Haswell")
"""This processor and an emulated one, both with AVX2 and without VNNI: sums of two products saturate."""
SAME = {AARCH64: 0.02}
"""Largest difference that is accepted, as a share of the largest output, if not 1e-4: on ARM a byte may be rounded to
its neighbor."""
SETTINGS = BertSettings(layers=2, width=64, heads=2, feed_forward=128, positions=32, init_std=0.1)
LABELS = ("no", "yes")
HERE = {".onnx": ENGINES["onnx"], ".xml": ENGINES["openvino"]}
"""The engines of this process, by the name of the file."""
TEXTS = ["the dog", "the cat near the sea", "a garden", "poem"]


@pytest.fixture(scope="module", params=PROCESSORS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def emulated(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("emulated")
    with closing(Emulated(python_on(name, folder), folder / "log")) as process:
        yield process


@pytest.fixture(scope="module")
def model(tokenizer):
    """A classifier whose weights all have the same magnitude, so that sums of two products saturate where they can."""
    torch.manual_seed(1)
    encoder, task = SETTINGS.build(tokenizer.size), Classification(length=12)
    with torch.no_grad():
        for weight in (it for name, it in encoder.named_parameters() if it.dim() == 2 and "embeddings" not in name):
            weight.copy_(weight.sign() * SETTINGS.init_std)
    return Model(encoder, tokenizer, {task.part: task.build(encoder.head, LABELS).published()}, LABELS, task)


@pytest.fixture(scope="module")
def write(model, tmp_path_factory):
    """Export to int8 with signed or unsigned weights, on a processor of which an engine is given."""

    def exported(format, signed, engine=None):
        if format == "openvino":
            pytest.importorskip("nncf", reason="the extra openvino is not installed")
        samples = frame_rows(model.tokenizer, as_rows(TEXTS), 12).samples
        out = tmp_path_factory.mktemp("exported") / "out"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(export, "_weights", lambda wanted: [signed])
            if engine is not None:
                patch.setitem(ENGINES, format, engine)
            export_model(model, Export(format, "int8", target="this" if signed else "any"), out, samples)
        return out

    return exported


@pytest.fixture(scope="module")
def directory(write):
    """Return a directory that `write` has written, once."""
    return cache(write)


@pytest.fixture
def load(monkeypatch):
    """Load a directory, and check its outputs, with an engine of another processor."""

    def loaded(directory, engine):
        for format in list(ENGINES):
            monkeypatch.setitem(ENGINES, format, engine)
        return load_exported(directory)

    return loaded


@pytest.fixture
def inputs(tokenizer):
    rng, lengths = np.random.default_rng(0), np.array([12, 9, 5])
    arrays = rng.integers(5, tokenizer.size, (3, 12)), np.arange(12) < lengths[:, None], np.zeros((3, 12))
    return {name: array.astype(np.int64) for name, array in zip(INPUTS, arrays, strict=True)}


@pytest.fixture
def same(name):
    return SAME.get(name, 1e-4)


@pytest.fixture
def difference(emulated, inputs):
    """Compute a program there and here, in the exact mode; return the difference as a share of the largest output."""

    def measure(path, precision="int8"):
        here = HERE[path.suffix](path, 1, "int8").run(inputs)
        return np.abs(emulated.compute(path, inputs, precision) - here).max() / np.abs(here).max()

    return measure


def test_signed_bytes_saturate_with_avx2(emulated, name, tmp_path):
    helper, types = onnx.helper, onnx.TensorProto
    weights, x = np.full((64, 16), 127, np.int8), np.full((16, 64), 255, np.uint8)
    graph = helper.make_graph(
        [helper.make_node(OPERATOR, ["x", "weights"], ["y"])],
        "products",
        [helper.make_tensor_value_info("x", types.UINT8, [None, 64])],
        [helper.make_tensor_value_info("y", types.INT32, [None, 16])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    found, exact = emulated.compute(path, {"x": x}, None), 64 * 255 * 127
    assert (found == (32 * (2**15 - 1) if name in SATURATING else exact)).all()
    assert emulated.ask() is (name == "Nehalem"), "the trial notices it, and on ARM that two products of -128 overflow"


def test_the_trial_is_right_here(tmp_path):
    here = Emulated([sys.executable], tmp_path / "log")
    with closing(here):
        assert here.ask() is multiplies_signed_bytes()


def test_unsigned_weights_are_exact_in_every_program(directory, difference, same):
    path = program_file(directory("onnx", False), "onnx", "int8")
    assert difference(path) < same
    assert difference(path, None) < same


def test_signed_weights_are_exact_with_this_engine_alone(directory, difference, same, name):
    path = program_file(directory("onnx", True), "onnx", "int8")
    assert difference(path) < same
    assert (difference(path, None) < same) == (name not in SATURATING)
    assert name not in SATURATING or difference(path, None) > 0.1, "the planted fault"


def test_loading_there_accepts_what_is_exact_and_refuses_the_rest(directory, emulated, name, load):
    load(directory("onnx", False), emulated.engine())
    load(directory("onnx", False), emulated.engine(plain=True))
    load(directory("onnx", True), emulated.engine())
    if name in SATURATING:
        with pytest.raises(UserError, match=r"the program's outputs differ by \d"):
            load(directory("onnx", True), emulated.engine(plain=True))


def test_what_was_exported_there_is_accepted_here(write, emulated):
    load_exported(write("onnx", False, emulated.engine()))


def test_openvino_with_half_of_the_range_is_exact(directory, difference, same, emulated, name, load):
    if name != MASKED:
        pytest.skip("qemu 7.2 computes a tanh of OpenVINO wrongly, where the processor itself is right")
    half, whole = directory("openvino", False), directory("openvino", True)
    assert difference(half / "model.xml") < same
    load(half, emulated.engine())
    assert difference(whole / "model.xml") > 0.1, "the planted fault"
    with pytest.raises(UserError, match=r"the program's outputs differ by \d"):
        load(whole, emulated.engine())
