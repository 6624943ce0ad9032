"""Reading of safetensors files from untrusted sources: sizes and names are checked before memory is allocated.

`safetensors` itself rejects most malformed files. This module also rejects what it accepts: duplicate keys, invalid
names, headers with a million tensors, weights that are not finite.

Weights may be in several files, as transformers writes large models. Input: a directory with
`model.safetensors.index.json`, `{"weight_map": {tensor: file}}`, and these files beside it. Output: the shapes and
values of the tensors, as of a single file. The index comes from strangers: files are named in it without a path, each
tensor has to be in the file that it is listed in, and in no other.

`without_prefixes` removes the prefixes that wrappers of torch put before the names of all tensors of a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unmask.data.text.files import read_whole, require_regular
from unmask.data.text.json_keys import refuse_duplicates
from unmask.support.errors import UserError
from unmask.support.notices import note

WEIGHTS, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
"""Names of the file of all weights, of the index of several files, and of pickled weights."""
MAX_HEADER = 1_000_000
"""Maximum size of a header in bytes; that of BERT-large has 40,000."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int64, torch.int32)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def weights_file(directory: Path) -> Path | None:
    """Return the file by which the weights of a directory are read: of all, the index, or pickled ones; None: none.

    Raises:
        UserError: it is no regular file.
    """
    for name in (WEIGHTS, INDEX, PICKLED):
        require_regular(directory / name)
        if (directory / name).exists():
            return directory / name
    return None


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors by name, from the header alone.

    Raises:
        UserError: the file is missing or malformed.
    """
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > MAX_HEADER:
                raise UserError(f"a header of {size:,} bytes is too large for an encoder", file=path)
            header = json.loads(file.read(size), object_pairs_hook=refuse_duplicates)
        with safe_open(path, framework="pt"):  # runs the library's own checks of offsets and sizes
            pass
        shapes = {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SafetensorError) as error:
        raise UserError(f"not a valid safetensors file ({error})", file=path, remedy="download it again") from error
    for name in shapes:
        if not _NAME.fullmatch(name) or ".." in name:
            raise UserError(f"{name!r} is not a valid tensor name", file=path)
    return shapes


def read_tensors(path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of the given names, in float32.

    Raises:
        UserError: a tensor contains a value that is not finite, or its type is not one of `FLOATS`.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: checked(file.get_tensor(name), name, path) for name in names}
    except SafetensorError as error:  # a type that torch lacks
        raise UserError(f"not a valid safetensors file ({error})", file=path) from error


def read_indices(path: Path, name: str, count: int) -> Tensor:
    """Return a tensor of numbers of rows of a table, (any number,) int64.

    Args:
        path: the file.
        name: name of the tensor.
        count: number of rows of the table.

    Raises:
        UserError: it has something else.
    """
    with safe_open(path, framework="pt") as file:
        rows: Tensor = file.get_tensor(name)
    if rows.dtype not in INTEGERS or rows.ndim != 1 or not bool(((rows >= 0) & (rows < count)).all()):
        raise UserError(f"tensor {name} is not a list of numbers from 0 to {count - 1}", file=path)
    return rows.long()


def checked(tensor: Tensor, name: str, path: Path) -> Tensor:
    """Return a weight in float32 after checking its type and that it is finite; see `read_tensors`."""
    if tensor.dtype not in FLOATS or tensor.layout != torch.strided:
        raise UserError(
            f"tensor {name} has type {tensor.dtype}, not a supported floating-point type",
            file=path,
            remedy="use the model that was quantized, if these are its weights",
        )
    tensor = tensor.float()
    # a value that is not finite makes the sum so; only a sum that overflows needs the slow look at each value
    if not (bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())):
        raise UserError(f"tensor {name} has values that are not finite", file=path, remedy="use another checkpoint")
    return tensor


CHECKSUMS = "checksums.json"
"""Name of the file with the checksums of a directory that unmask wrote (check.py)."""
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
    shapes: dict[str, tuple[int, ...]] = {}
    holders: dict[str, Path] = {}
    for file in dict.fromkeys(files.values()):
        require_regular(file)
        if not file.exists():
            raise UserError(f"{INDEX} lists tensors in this file, but it is missing", file=file, remedy=REMEDY)
        for tensor, shape in read_shapes(file).items():
            if tensor in holders:
                raise UserError(f"{tensor} is also in {holders[tensor].name}", file=file, remedy=REMEDY)
            shapes[tensor], holders[tensor] = shape, file
    for tensor in sorted(shapes.keys() | files.keys()):
        if tensor not in holders:
            raise UserError(f"{tensor!r} is missing, which {INDEX} lists here", file=files[tensor], remedy=REMEDY)
        if files.get(tensor) != holders[tensor]:
            where = f"in {files[tensor].name}" if tensor in files else "nowhere"
            raise UserError(f"{tensor} is here, but {INDEX} lists it {where}", file=holders[tensor], remedy=REMEDY)
    return shapes


def read_shard_tensors(files: Mapping[str, Path], names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of the given names, in float32; the errors are those of `read_tensors`."""
    wanted: dict[Path, list[str]] = {}
    for name in names:
        wanted.setdefault(files[name], []).append(name)
    return {
        name: value for file, file_names in wanted.items() for name, value in read_tensors(file, file_names).items()
    }


Load: TypeAlias = Callable[[Iterable[str]], dict[str, Tensor]]
"""Returns the tensors of the given names."""
WRAPPERS = {
    "module.": "DataParallel and DistributedDataParallel",
    "_orig_mod.": "torch.compile",
    "_fsdp_wrapped_module.": "FullyShardedDataParallel",
    "base_model.model.": "PEFT",
}
"""Prefixes, and what puts them there."""
_WRAPPED = re.compile(rf"(?:{'|'.join(re.escape(prefix) for prefix in WRAPPERS)})+")


def without_prefixes(
    path: Path, shapes: dict[str, tuple[int, ...]], load: Load
) -> tuple[Path, dict[str, tuple[int, ...]], Load]:
    """Return the same without the prefixes of wrappers, which a note names.

    A wrapped part of a model has its prefix within the name; `module.` and that of PEFT count only at the beginning.

    Args:
        path: file of the tensors.
        shapes: shapes of the tensors, by their names.
        load: reads them.

    Raises:
        UserError: two tensors have the same name without the prefixes.
    """
    plain: dict[str, str] = {}
    for name in shapes:
        short = _WRAPPED.sub("", name, count=1) if _WRAPPED.match(name) else name
        for prefix in ("_orig_mod.", "_fsdp_wrapped_module."):
            short = short.replace(f".{prefix}", ".")
        if short in plain:
            raise UserError(f"{plain[short]} and {name} have the same name without the prefixes of wrappers", file=path)
        plain[short] = name
    removed = [prefix for prefix in WRAPPERS if any(prefix in name and short != name for short, name in plain.items())]
    if not removed:
        return path, shapes, load
    sources = ", ".join(f"'{prefix}' ({WRAPPERS[prefix]})" for prefix in removed)
    note(f"{path}: removed the prefix {sources} from the names of the tensors")

    def load_plain(names: Iterable[str]) -> dict[str, Tensor]:
        wanted = list(names)
        tensors = load([plain[name] for name in wanted])
        return {name: tensors[plain[name]] for name in wanted}

    return path, {short: shapes[name] for short, name in plain.items()}, load_plain
