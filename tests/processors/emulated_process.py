"""Processes on other processors: an emulator's (qemu), or this one with some of its features masked (emulated_cpuid.c).

A masked processor runs at full speed, and computes with the kernels that the libraries have for AVX2.
"""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ARM = HERE.parents[1] / "build" / "arm"
"""What `make arm` prepares."""
MASKED, AARCH64 = "masked", "aarch64"
PROCESSORS = (MASKED, "Haswell", "Nehalem", AARCH64)
"""With AVX2, twice; without AVX; ARM. None of them has VNNI."""


def python_on(name, folder):
    """Return the command of Python on one of `PROCESSORS`; `folder` takes files that it needs."""
    if name == MASKED:
        return [*_masking(folder), sys.executable]
    if name != AARCH64:
        if platform.machine() not in ("x86_64", "AMD64"):
            pytest.skip("Python is not that of x86-64, which is to be emulated")
        return [_emulator("qemu-x86_64"), "-cpu", name, sys.executable]
    if not (ARM / "ready").is_file():
        pytest.skip("Python for arm64 is prepared by `make arm`")
    root, paths = ARM / "root", f"{HERE.parents[1] / 'src'}:{ARM / 'site'}"
    variables = [f"PYTHONHOME={root / 'usr'}", f"PYTHONPATH={paths}", "PYTHONDONTWRITEBYTECODE=1"]
    emulator = [_emulator("qemu-aarch64"), "-cpu", "cortex-a72", "-L", str(root)]
    return ["env", *variables, *emulator, str(root / "usr/bin/python3.11")]


def _emulator(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} (Debian: qemu-user) is not installed")
    return found


def _masking(folder):
    """Return what starts a program on this processor without its newer features."""
    compiler, library = shutil.which("cc"), folder / "cpuid.so"
    if compiler is None or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("masking features takes Linux, an x86-64 processor and a C compiler")
    source = HERE / "emulated_cpuid.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    command = ["env", f"LD_PRELOAD={library}"]
    if subprocess.run([*command, "true"]).returncode:
        pytest.skip("this processor, or the virtual machine, does not let its features be masked")
    return command


class Emulated:
    """Engines of another process.

    Args:
        command: what runs Python on another processor, with its arguments.
        log: the file for what it prints beside its answers, such as warnings of features that are not emulated.
    """

    def __init__(self, command, log):
        program = Path(__file__).with_name("emulated_engine.py")
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.log = log

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def compute(self, path, inputs, precision="int8"):
        given = {name: (str(array.dtype), array.tolist()) for name, array in inputs.items()}
        return np.asarray(self.ask(path=str(path), precision=precision, inputs=given))

    def engine(self, plain=False):
        """Return a class with the interface of `OnnxEngine` that computes there."""
        compute = self.compute

        class Engine:
            def __init__(self, path, threads, precision):
                self.path, self.precision = path, None if plain else precision

            def run(self, inputs):
                return compute(self.path, inputs, self.precision).astype(np.float32)

        return Engine

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)
