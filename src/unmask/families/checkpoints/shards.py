"""Weights in several safetensors files, as transformers writes large models.

Input: a directory with `model.safetensors.index.json`, `{"weight_map": {tensor: file}}`, and these files beside it.
Output: the shapes and values of the tensors, as of a single file. The index comes from strangers: files are named in it
without a path, each tensor has to be in the file that it is listed in, and in no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from unmask.data.text.files import read_whole, require_regular
from unmask.families.checkpoints.safetensors_file import read_shapes, read_tensors, refuse_duplicates
from unmask.support.errors import UserError

INDEX = "model.safetensors.index.json"
REMEDY = "download all files of the model again"
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.safetensors")


def read_index(path: Path) -> dict[str, Path]:
    """Return the file of each tensor.

    Raises:
        UserError: the index is malformed, or names what is not the name of a file beside it.
    """
    try:
        content = json.loads(read_whole(path), object_pairs_hook=refuse_duplicates)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"not a valid index of weights ({error})", file=path, remedy=REMEDY) from error
    listed = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise UserError("not an index of weights: there is no 'weight_map'", file=path, remedy=REMEDY)
    for tensor, name in listed.items():
        if not isinstance(name, str) or not _SHARD.fullmatch(name) or ".." in name:
            raise UserError(
                f"{tensor!r} is listed in {name!r}, which is not the name of a safetensors file beside it",
                file=path,
                remedy=REMEDY,
            )
    return {tensor: path.parent / name for tensor, name in listed.items()}


def read_shard_shapes(files: Mapping[str, Path]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors by name, from the headers of their files alone.

    Args:
        files: the file of each tensor.

    Raises:
        UserError: a file is missing or malformed, or its tensors are not those that are listed in it.
    """
    found: dict[str, tuple[int, ...]] = {}
    holders: dict[str, Path] = {}
    for file in dict.fromkeys(files.values()):
        require_regular(file)
        if not file.exists():
            raise UserError(f"{INDEX} lists tensors in this file, but it is missing", file=file, remedy=REMEDY)
        for tensor, shape in read_shapes(file).items():
            if tensor in holders:
                raise UserError(f"{tensor} is also in {holders[tensor].name}", file=file, remedy=REMEDY)
            found[tensor], holders[tensor] = shape, file
    for tensor in sorted(found.keys() | files.keys()):
        if tensor not in holders:
            raise UserError(f"{tensor!r} is missing, which {INDEX} lists here", file=files[tensor], remedy=REMEDY)
        if files.get(tensor) != holders[tensor]:
            where = f"in {files[tensor].name}" if tensor in files else "nowhere"
            raise UserError(f"{tensor} is here, but {INDEX} lists it {where}", file=holders[tensor], remedy=REMEDY)
    return found


def read_shard_tensors(files: Mapping[str, Path], names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of the given names, in float32; the errors are those of `read_tensors`."""
    wanted: dict[Path, list[str]] = {}
    for name in names:
        wanted.setdefault(files[name], []).append(name)
    return {name: value for file, own in wanted.items() for name, value in read_tensors(file, own).items()}
