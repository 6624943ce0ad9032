"""Arrays in files: a full disk is an error that names the file, and nothing else.

`np.save` says of it only how many bytes were not written, and a write to a memory map of a file without room on the
disk ends the process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.support.durable import create, named

_BLOCK = 1 << 20  # number of values that are written at a time


def save_array(path: Path, values: npt.NDArray[Any]) -> None:
    """Write an array in NumPy's format.

    Raises:
        OSError: the disk is full.
    """
    values = np.ascontiguousarray(values)
    with named(path), create(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
        file.write(values.data)


def create_map(path: Path, fill: np.generic, count: int) -> np.memmap[Any, Any]:
    """Return a memory map of a new file, (count,), which takes its room on the disk at once.

    Args:
        path: the file.
        fill: all values at first.
        count: number of values, at least 1.

    Raises:
        OSError: the disk is full.
    """
    block = np.full(min(count, _BLOCK), fill)
    with named(path), create(path) as file:
        for start in range(0, count, _BLOCK):
            file.write(block[: count - start].data)
    return np.memmap(path, block.dtype, "r+")
