"""Each command in each precision works or says in one line why not, on a processor with AVX2 alone.

Environment variables restrict oneDNN, torch's own kernels, MKL, and the oneDNN inside of OpenVINO to AVX2. ONNX Runtime
knows no such restriction: see test_emulated.py. On a processor with AVX2 alone all other tests run like this, so these
run with --exhaustive only.
"""

import json
import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from unmask.inference.load import load

from .simulated_program import PROGRAMS, TEXTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variables are of x86"),
]
if torch.backends.cpu.get_cpu_capability() == "AVX2":
    pytestmark.append(pytest.mark.exhaustive)
for library in ("onnxruntime", "onnxscript", "openvino", "nncf", "starlette"):
    if find_spec(library) is None:  # importing them here takes seconds
        pytest.skip("the extras onnx, openvino and serve are not installed", allow_module_level=True)

PROGRAM = Path(__file__).with_name("simulated_program.py")
KERNELS = [
    "nn/layers/test_attention.py",
    "nn/layers/test_linear.py",
    "training/test_precision.py",
    "inference/test_backend.py",
]
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
PROCESSORS = {"default": {}, "avx2": AVX2}
TESTED = [pytest.param("default", marks=pytest.mark.exhaustive), "avx2"]
"""This processor runs each command in the tests of the commands already."""
COMMANDS = ("pretrain", "finetune", "distill", "predict", "evaluate", "features", "embed", "serve")
TRAINING = COMMANDS[:3]


@pytest.fixture(scope="module")
def folder(documents, tmp_path_factory):
    """Files of texts and of labeled examples, and what is made of them; all of pytest's processes share it."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "simulated"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            shared.mkdir()
            (shared / "text.txt").write_text("\n\n".join(documents[:80]))
            first = (document.split(".")[0] for document in documents[:40])
            lines = [f"{text}\t{('bad', 'good')[number % 2]}" for number, text in enumerate(first)]
            (shared / "examples.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    return shared


def run_program(processor, *words):
    """Run the program on a processor, and return the JSON text that it prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | PROCESSORS[processor]
    done = subprocess.run(
        [sys.executable, PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def simulated(folder):
    """Run the program on a processor, unless that was done, and return what it printed."""

    def run(processor):
        printed = folder / f"{processor}.json"
        with FileLock(f"{printed}.lock"):
            if not printed.exists():
                words = [folder / processor, folder / "text.txt", folder / "examples.tsv"]
                printed.write_text(run_program(processor, *words))
        return json.loads(printed.read_text())

    return run


def check(cell, expected):
    """Assert that a cell worked, or was refused with a message of one line; None: it works."""
    if expected is None:
        assert cell["status"] == 0, cell["message"]
    else:
        assert (cell["status"], cell["output"]) == (2, "")
        assert expected in cell["message"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.parametrize("processor", TESTED)
def test_a_command_in_a_precision(simulated, processor, precision, command):
    found = simulated(processor)
    expected = None
    if precision == "bf16" and found["able"]["emulates bf16"]:
        expected = "this processor does not multiply bf16, and would take many times as long as in float32; omit "
    elif precision == "int8" and command in TRAINING:
        expected = "int8 is for finished models"
    check(found["cells"][f"{command} {precision}"], expected)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("processor", TESTED)
def test_an_export(simulated, processor, program):
    found, precision = simulated(processor), program.split("-")[1]
    refused = precision == "bf16" and found["able"]["emulates bf16"]
    expected = "OpenVINO does not compute in bf16 on this processor; export in float32" if refused else None
    check(found["cells"][f"export to {program} {precision}"], expected)


@pytest.mark.parametrize("processor", TESTED)
def test_int8_without_an_export(simulated, processor):
    found = simulated(processor)
    expected = (
        None if found["able"]["int8"] else "--precision int8 needs VNNI of AVX-512, and unmask's C extension; omit "
    )
    check(found["cells"]["predict --precision int8"], expected)


@pytest.mark.parametrize("processor", TESTED)
def test_the_engines_are_measured(simulated, processor):
    found = simulated(processor)
    rows = json.loads(found["cells"]["bench float32"]["output"])
    measured = {(row["backend"], row["precision"]): row["difference"] for row in rows["rows"]}
    exact = {("torch", "float32"), ("onnx", "float32"), ("onnx", "int8"), ("openvino", "float32")}
    in_bf16 = set() if found["able"]["emulates bf16"] else {("torch", "bf16"), ("openvino", "bf16")}
    in_int8 = {("torch", "int8")} if found["able"]["int8"] else set()
    assert measured.keys() == exact | in_bf16 | in_int8
    assert len(rows["left_out"]) == found["able"]["emulates bf16"] + (not found["able"]["int8"])
    assert all(measured[engine, "float32"] < 1e-4 for engine in ("torch", "onnx", "openvino"))


def test_what_a_processor_with_avx2_alone_can_do(simulated):
    able = simulated("avx2")["able"]
    assert (able["instructions"], able["default"], able["emulates bf16"]) == ("AVX2", "float32", True)
    assert not able["oneDNN in bf16"]


@pytest.mark.exhaustive
def test_programs_of_this_processor_give_the_same_with_avx2_or_are_refused(simulated, folder):
    default = simulated("default")["programs"]
    avx2 = json.loads(run_program("avx2", folder / "default"))
    assert default.keys() == avx2.keys() == PROGRAMS.keys()
    for program in PROGRAMS:
        check_same(program, avx2[program], default[program])


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "openvino-bf16"])  # which is not made there
def test_programs_made_with_avx2_give_the_same_here_or_are_refused(simulated, folder, program):
    there = simulated("avx2")["programs"][program]
    here = [list(prediction.scores.values()) for prediction in load(folder / "avx2" / program).predict(TEXTS)]
    check_same(program, here, there)


def check_same(program, here, there):
    """Assert that a program predicts the same on two processors, or is refused if it was made for the other one."""
    if program == "openvino-int8-this" and isinstance(here, str):
        assert "the program's outputs differ by" in here and "target=" in here
    else:
        close = {"float32": 1e-5, "bf16": 5e-3, "int8": 1e-3}[program.split("-")[1]]
        assert [probability for text in here for probability in text] == pytest.approx(
            [probability for text in there for probability in text], abs=close
        )


def test_a_program_in_float32_predicts_what_the_model_does(simulated):
    found = simulated("avx2")
    lines = [json.loads(line) for line in found["cells"]["predict float32"]["output"].splitlines()]
    for line, scores in zip(lines, found["programs"]["onnx-float32"], strict=True):
        assert list(line["scores"].values()) == pytest.approx(scores, abs=1e-5)


def test_the_kernels_with_avx2_alone():
    """The tests of kernels, precision and inference, in a process that is restricted."""
    tests = [str(PROGRAM.parents[1] / name) for name in KERNELS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | AVX2,
        capture_output=True,
        text=True,
        cwd=PROGRAM.parents[2],
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout or done.stdout.rstrip().endswith("[100%]")
