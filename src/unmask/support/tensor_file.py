"""Files of safetensors that are written one tensor at a time, so that no more than one of them has to be in memory.

Input: dtype and shape of each tensor, then the tensors. Output: the file that `safetensors` would write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.support.durable import create

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8

Described = Mapping[str, tuple[torch.dtype, Sequence[int]]]
"""Dtype and shape of tensors by name."""


def in_order(described: Described) -> list[str]:
    """Return the names of tensors in the order in which they are written."""
    return sorted(described, key=lambda name: (-described[name][0].itemsize, name))


def header_of(described: Described, metadata: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, int]]:
    """Return the header of a file of safetensors, and where after it each tensor begins, in the order of `in_order`.

    The format (https://huggingface.co/docs/safetensors): the length of the header, 8 bytes little endian; the header,
    JSON that maps each name to dtype, shape and position; the tensors, without gaps. Files are those of `safetensors`,
    with the tensors in the same order: the widest dtype first, then by name, so that each of them is aligned.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    starts, end = dict[str, int](), 0
    for name in in_order(described):
        dtype, shape = described[name]
        starts[name], end = end, end + dtype.itemsize * prod(shape)
        entries[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [starts[name], end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    return len(header).to_bytes(8, "little") + header, starts


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors on any device, by name, as `write_tensors` does; they may share memory."""
    described = {name: (value.dtype, value.shape) for name, value in tensors.items()}
    write_tensors(path, described, (tensors[name].detach().cpu() for name in in_order(described)), metadata)


def write_tensors(
    path: Path, described: Described, tensors: Iterable[Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a file of safetensors one tensor at a time; it is not flushed to the disk.

    Args:
        path: the file.
        described: dtype and shape of each tensor.
        tensors: the tensors, on the CPU, in the order of `in_order`.
        metadata: what the header says besides.

    Raises:
        OSError: it cannot be written; the error may lack the name of the file (`durable.named`).
    """
    header, starts = header_of(described, metadata)
    with create(path) as file:
        file.write(header)
        for name, tensor in zip(starts, tensors, strict=True):
            assert (tensor.dtype, tuple(tensor.shape)) == (described[name][0], tuple(described[name][1])), name
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
