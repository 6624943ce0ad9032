"""Prefixes that wrappers of torch put before the names of all tensors of a model, and their removal.

Input and output: the shapes of the tensors of a file by name, and the function that reads them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from unmask.support.errors import InputWarning, UserError

Load: TypeAlias = Callable[[Iterable[str]], dict[str, Tensor]]
"""Returns the tensors of the given names."""
WRAPPERS = {
    "module.": "DataParallel and DistributedDataParallel",
    "_orig_mod.": "torch.compile",
    "_fsdp_wrapped_module.": "FullyShardedDataParallel",
}
"""Prefixes, and what puts them there."""
_WRAPPED = re.compile(rf"(?:{'|'.join(re.escape(prefix) for prefix in WRAPPERS)})+")


def without_prefixes(
    path: Path, shapes: dict[str, tuple[int, ...]], load: Load
) -> tuple[Path, dict[str, tuple[int, ...]], Load]:
    """Return the same without the prefixes of wrappers, which a warning names.

    A wrapped part of a model has its prefix within the name; `module.` counts only at the beginning.

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
            raise UserError(f"{plain[short]} and {name} have the same name without the prefixes of torch", file=path)
        plain[short] = name
    removed = [prefix for prefix in WRAPPERS if any(prefix in name and short != name for short, name in plain.items())]
    if not removed:
        return path, shapes, load
    sources = ", ".join(f"'{prefix}' ({WRAPPERS[prefix]})" for prefix in removed)
    warnings.warn(f"{path}: removed the prefix {sources} from the names of the tensors", InputWarning, stacklevel=2)

    def load_plain(names: Iterable[str]) -> dict[str, Tensor]:
        wanted = list(names)
        tensors = load([plain[name] for name in wanted])
        return {name: tensors[plain[name]] for name in wanted}

    return path, {short: shapes[name] for short, name in plain.items()}, load_plain
