"""Copies between the CPU and a device."""

import pytest
import torch

from unmask.support.transfer import ALIGNMENT, all_to_device


@pytest.mark.parametrize("seed", range(3))
def test_tensors_are_copied_as_one_with_their_dtypes_shapes_and_values(seed):
    rng = torch.Generator().manual_seed(seed)
    shapes = [(), (0,), (1,), (3, 5), (7,), (2, 0, 3), (9, 1)]
    dtypes = [torch.int64, torch.int32, torch.bool, torch.uint8, torch.float32, torch.bfloat16, torch.float64]
    tensors = [torch.randint(0, 2, shape, generator=rng).to(dtype) for shape in shapes for dtype in dtypes]
    tensors = [tensors[index] for index in torch.randperm(len(tensors), generator=rng)]
    tensors.append(torch.arange(12).view(3, 4).t())
    copies = all_to_device(tensors, torch.device("cpu"))
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.data_ptr() % ALIGNMENT == 0
        assert copy.is_contiguous()
        assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
        assert copy.equal(tensor)


def test_no_tensors_are_no_tensors():
    assert all_to_device([], torch.device("cpu")) == []
