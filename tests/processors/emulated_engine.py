"""Computes exported programs in a process of its own, which an emulator can give another processor.

Input: a request per line, in JSON. Output: the answer to each. It does not import torch, which emulators take minutes
for.
"""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np

from unmask.inference.engines import ENGINES, multiplies_signed_bytes


class Plain:
    """ONNX Runtime as other programs use it, without the settings of unmask."""

    def __init__(self, path):
        import onnxruntime

        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [one.name for one in self.session.get_inputs()]

    def run(self, inputs):
        return self.session.run(None, {name: inputs[name] for name in self.names})[0]


@cache
def engine(path, precision):
    """Return the engine for a file; without a precision: as other programs compute it."""
    if precision is None:
        return Plain(path)
    kind = ENGINES["openvino" if Path(path).suffix == ".xml" else "onnx"]
    return kind(Path(path), 1, precision)


def answer(path=None, precision=None, inputs=None):
    """Return the output for inputs, (dtype, numbers) each; without a path: whether signed bytes are multiplied."""
    if path is None:
        return multiplies_signed_bytes()
    arrays = {name: np.asarray(numbers, dtype) for name, (dtype, numbers) in inputs.items()}
    return engine(path, precision).run(arrays).tolist()


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
