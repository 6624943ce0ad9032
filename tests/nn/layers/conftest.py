"""Random inputs and comparisons for attention kernels."""

import numpy as np
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.nn.layers.rotary import Rotation

LENGTHS = (3, 17, 17, 60, 64, 200, 200)  # groups with and without padding
ROTATIONS = [None, Rotation(), Rotation(base=100.0, interleaved=True)]
HEADS = 3


def tokens_of(lengths=LENGTHS):
    zeros = [np.zeros(length, dtype=np.int64) for length in lengths]
    return collate([Sample(key=(i,), ids=zero, segments=zero) for i, zero in enumerate(zeros)]).tokens


def run(kernel, spec, tokens, dtype=torch.float64):
    """Return the output of a kernel for random inputs, and their gradient."""
    random = torch.Generator().manual_seed(1)
    shape = int(tokens.offsets[-1]), 3 * spec.heads * 8
    qkv = torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
    before = qkv.detach().clone()
    out = kernel(qkv, tokens, spec)
    assert qkv.equal(before), "inputs are not modified"
    weights = torch.randn(out.shape, generator=random, dtype=torch.float64).to(dtype)
    (gradient,) = torch.autograd.grad((out * weights).sum(), qkv)
    return out.detach(), gradient


def assert_same(ours, theirs, atol=1e-12):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


class Without:
    """An operator namespace that lacks one operator."""

    def __init__(self, namespace, missing):
        self.namespace, self.missing = namespace, missing

    def __getattr__(self, name):
        if name == self.missing:
            raise AttributeError(name)
        return getattr(self.namespace, name)
