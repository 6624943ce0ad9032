"""Values that parameters of several functions accept; the command line offers the same."""

import re
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from unmask.support.errors import UserError, check_unicode
from unmask.support.messages import argument
from unmask.support.urls import Url

Device = Literal["auto", "cpu", "cuda", "mps"]
"""Where to compute: "auto" is CUDA if there is such a GPU, or else the CPU; "mps" is the GPU of Apple's processors."""
Precision = Literal["auto", "float32", "bf16", "fp16"]
"""Number format of a computation; "auto" is bf16 where it is faster than float32, and fp16 on GPUs that lack bf16."""
InferencePrecision = Literal["auto", "float32", "bf16", "fp16", "int8"]
"""The same without gradients; in int8 are the products of layers, on a CPU."""
InferenceEngine = Literal["torch", "auto"]
"""What computes on a CPU: torch, or the fastest engine that is installed; see `unmask.inference.fastest`."""
PoolingKind = Literal["mean", "cls", "max", "weighted-mean", "last", "mean-sqrt"]
"""The vector of a text: the mean of all tokens, the vector where the model reads that of a text, the maximum, the mean
weighted by position, the last token, or the sum divided by the square root of the number of tokens."""
SummaryKind = Literal["first", "extract", "last"]
"""The position from which a model takes the vector of a text; see data/batches/frame.py."""
PromptName = Literal["query", "document"]
"""What a text is in a search, as models may have another prompt for each."""
MinedRows = Literal["triplets", "tuples", "graded"]
"""Rows of mined negatives: an anchor, a positive and a negative, or all of its negatives; or a query, a passage and its
grade, 1 or 0."""
ExplainMethod = Literal["auto", "integrated-gradients", "occlusion"]
"""How the contribution of words to a prediction is computed; see `unmask.inference.explanation`."""
Documents = Literal["auto", "file", "blank-line", "line"]
"""What a document is in plain text: a whole file, a block between blank lines, or a line."""
Format = Literal["tsv", "csv", "jsonl", "conll"]
"""Formats of labeled files."""
TextFormat = Literal["tsv", "csv", "jsonl", "conll", "txt"]
"""Formats of files whose labels are not read."""
AuditedTask = Literal["classification", "multi-label", "token-classification"]
"""Tasks whose labels can be audited."""
RankedTask = Literal["classification", "multi-label", "regression", "token-classification"]
"""Tasks for which encoders can be ranked without training."""
Suite = Literal["blimp", "bits"]
"""How a language model is scored: by BLiMP's pairs of sentences, or by bits per character of text."""
PllKind = Literal["original", "word-l2r"]
"""What is masked to score a token by a masked language model: the token, or also the rest of its word."""
BITS_PLL: PllKind = "word-l2r"
"""What is masked for bits per character, unless something else is asked for."""
DownstreamKind = Literal["linear", "average", "difference", "rnn"]
"""Downstream models; see `unmask.nn.encoders.downstream`."""
DOWNSTREAM_KINDS: tuple[str, ...] = get_args(DownstreamKind)
ProgramPrecision = Literal["float32", "bf16", "int8"]
"""What an exported program computes in."""
Target = Literal["any", "this"]
"""Processors that int8 is made for: any, or the closest on this one."""
Engine = Literal["local", "hosts", "ray"]
"""Where the processes that build a corpus work; see `unmask.build_corpus`."""
CellEngine = Literal["local", "ray"]
"""Where the processes that compute the cells of a comparison work; see `unmask.compare`."""
Files = str | Path | Sequence[str | Path]
"""A file, or several that form one set."""
LabelNames = str | Sequence[str]
"""Names of labels; a single string, the only form on the command line, has them separated by commas."""
ColumnNames = Mapping[str, str | int | Sequence[str]]
"""Our names of columns, and what they are in a file: a name, a number from 0, or several of them."""
MAX_NAME = 255
"""Maximum length in bytes of a name in a path, on every common file system."""
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://.", re.IGNORECASE | re.DOTALL)
_COLLAPSED = re.compile(r"[a-z][a-z0-9+.-]+:/+[^/]", re.IGNORECASE)  # what pathlib makes of a URL; no drive of Windows
_LOCAL = ("file", "local")


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Check the value of a parameter.

    Args:
        name: the parameter.
        value: its value.
        choices: a `Literal` type with the values that it can have.

    Raises:
        UserError: it has another one.
    """
    if value not in get_args(choices):
        known = ", ".join(map(str, get_args(choices)))
        raise UserError(f"{argument(name, value)}: unknown", remedy=f"choose one of {known}")


def as_several(values: Any) -> list[Any]:
    """Return one value, or several, as a list; a string, bytes or a mapping is one."""
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    return list(values) if several else [values]


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """Return texts as a list, whose characters would otherwise be taken for the texts if there is only one.

    Raises:
        UserError: they are a table, whose columns would be taken for texts, or one is no string, or not valid Unicode.
    """
    if hasattr(texts, "columns") or hasattr(texts, "column_names"):
        kind = type(texts).__name__
        raise UserError(f"a {kind} is given, where texts are expected", remedy="pass one of its columns")
    found = as_several(texts)
    check_unicode(found)
    return found


def as_files(files: Files) -> Sequence[str | Path]:
    """Return files as a sequence; those that are URLs become a `Url`.

    Raises:
        UserError: one is a text, too long for the name of a file, or a URL that cannot be read.
    """
    paths = [as_url(path) for path in as_several(files)]
    for path in paths:
        if not isinstance(path, Url):
            check_path(path)
    return paths


def exists(path: Path) -> bool:
    """Return whether a file exists; none does whose name is too long, such as a text in place of a path."""
    try:
        return path.exists()
    except OSError:
        return False


def check_path(
    path: str | Path,
    what: str = "the path of a file",
    remedy: str = "write it to a file first; labeled examples and texts to predict may be {'text': [...]}",
) -> None:
    """Check that an argument is a path, or the name of a model.

    Raises:
        UserError: it is of another type, or a text: too long for the name of a file.
    """
    if not isinstance(path, str | PathLike):
        raise UserError(f"a {type(path).__name__} is given, where {what} is expected", remedy=remedy)
    if any(len(name.encode("utf8", "surrogateescape")) > MAX_NAME for name in str(path).split("/")):
        raise UserError(f"'{str(path)[:30]}…' is a text, where {what} is expected", remedy=remedy)


def as_url(path: str | Path) -> str | Path:
    """Return an argument as a `Url`, or as a path if it is one, also of a URL such as `file:///texts/a.txt`.

    Raises:
        UserError: it is a URL that cannot be read, or was changed by pathlib.
    """
    if isinstance(path, Path):
        if _COLLAPSED.match(str(path)) and not path.exists():
            raise UserError("is a URL as a Path, which changes it", file=path, remedy="pass it as a string")
        return path
    if isinstance(path, Url) or not isinstance(path, str) or not (match := _URL.match(path)):
        return path
    try:
        url = Url(path)
    except ValueError as error:
        raise UserError(f"'{match[1]}://…' is not a URL ({error})") from None
    if "::" in path:
        raise UserError("is a URL inside another", file=url, remedy="give that of a file")
    if match[1].lower() not in _LOCAL:
        return url
    from urllib.request import url2pathname  # with http and ssl: most of the time of `unmask --help`

    return url2pathname(urlsplit(path).path)


def refuse_url(path: str | Path) -> None:
    """Raise a UserError if an output is a URL."""
    if _COLLAPSED.match(str(path)):
        raise UserError(
            "files are written on this machine only",
            file=path if isinstance(path, Path) else Url(path),
            remedy=f"choose a path as {argument('out')}, and copy it there afterwards",
        )
