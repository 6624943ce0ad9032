"""The kernel that rotates on GPUs computes what torch's operations do; Triton's interpreter runs it on a CPU."""

import importlib.util

import pytest

from ... import forking

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton: pip install triton")
PROGRAM = """
import os

os.environ["TRITON_INTERPRET"] = "1"
import torch
from unmask.nn.layers import fused_attention, rotary_kernel
from unmask.nn.layers.rotary import Rotation

POSITIONS = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 0])
for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
    for interleaved in (False, True):
        for heads, width in ((12, 64), (3, 20), (1, 2)):
            rotation = Rotation(interleaved=interleaved)
            tables = rotation.tables(5, width, torch.empty(0, dtype=dtype))
            qkv = torch.randn(9, 3 * heads * width, dtype=torch.float32).to(dtype)
            grads = torch.randn(3, 9, heads, width).to(dtype).unbind()
            found = []
            for kernel in (True, False):
                inputs = qkv.clone().requires_grad_()
                if kernel:
                    outputs = rotary_kernel.split_rotated(inputs, heads, rotation, tables, POSITIONS)
                else:
                    angles = (table[POSITIONS] for table in tables)
                    outputs = fused_attention.split_rotated(inputs, heads, rotation, *angles)
                torch.autograd.backward(outputs, grads)
                found.append([*(output.detach() for output in outputs), inputs.grad])
            for value, expected in zip(*found, strict=True):
                torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
print("equal")
"""


def test_the_kernel_equals_ordinary_operations(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf8")
    done = forking.run([tmp_path / "program.py"], timeout=300)
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr
