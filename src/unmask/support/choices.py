"""Values that parameters of several functions accept; the command line offers the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where to compute: "auto" is CUDA if there is such a GPU, or else the CPU; "mps" is the GPU of Apple's processors."""
Precision = Literal["auto", "float32", "bf16"]
"""Number format of a computation; "auto" is bf16 where it is faster than float32."""
Documents = Literal["auto", "file", "blank-line", "line"]
"""What a document is in plain text: a whole file, a block between blank lines, or a line."""
Format = Literal["tsv", "csv", "jsonl", "conll"]
"""Formats of labeled files."""
TextFormat = Literal["tsv", "csv", "jsonl", "conll", "txt"]
"""Formats of files whose labels are not read."""
Files = str | Path | Sequence[str | Path]
"""A file, or several that form one set."""


def as_files(files: Files) -> Sequence[str | Path]:
    """Return files as a sequence."""
    return [files] if isinstance(files, str | Path) else files
