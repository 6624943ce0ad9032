"""An encoder's layers as features: texts as samples with the word of each token, and rows streamed to a file.

In: texts, and rows of layers as a back-end computes them. Out: samples; on disk one safetensors file.

Lengths are known as soon as the texts are tokenised, so a file gets its header and full size first, and each sample's
rows are written to their place as they are computed: what is in memory at once is one batch, however long the file is.
It is written aside and renamed when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.durable import sync
from unmask.errors import UnmaskError, UserError
from unmask.labelled.labelled_file import NAMES, Row
from unmask.tasks.rows import are_pairs, cut_and_wrap
from unmask.tokenizers.tokenizer import Ids, Tokenizer

FILE = "features.safetensors"
TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
"""What is written, by its name in the format."""


@dataclass(frozen=True)
class Features:
    """Layers of some texts.

    Attributes:
        values: (tokens, layers, width), float32; special tokens are included.
        offsets: (texts + 1,) int64: text t has the tokens from offsets[t] to offsets[t + 1].
        word_ids: (tokens,) int64: the number of the word in its text, as BERT's pre-tokeniser cuts them; -1 for special
            tokens. The second text of a pair counts from 0 again.
        cut: how many texts were longer than the model reads, and so were cut at their end.
    """

    values: Tensor
    offsets: Tensor
    word_ids: Tensor
    cut: int


@dataclass(frozen=True)
class Words:
    """Texts as samples, with the word of each token: `word_ids`, `offsets` and `cut` as in `Features`."""

    samples: list[Sample]
    word_ids: np.ndarray
    cut: int

    @property
    def offsets(self) -> np.ndarray:
        """Where each text begins, (texts + 1,)."""
        return np.cumsum([0, *map(len, self.samples)])


def frame_words(tokenizer: Tokenizer, rows: Sequence[Row], longest: int) -> Words:
    """Return a sample for each row, of one text or two; what exceeds `longest` tokens is cut as in fine-tuning.

    Raises:
        UserError: see `are_pairs`.
    """
    frame = Frame.of(tokenizer)
    names = NAMES[: 1 + are_pairs(rows)]
    columns = [tokenizer.encode_words([row.values[name] for row in rows]) for name in names]
    samples, words, cut = [], [], 0
    for number, texts in enumerate(zip(*columns, strict=True)):
        sample, kept = cut_and_wrap(frame, [ids for ids, _ in texts], longest)
        cut += sum(kept) < sum(len(ids) for ids, _ in texts)
        samples.append(sample.named((0, number)))
        words.append(_between(frame, *(word[:here] for (_, word), here in zip(texts, kept, strict=True))))
    return Words(samples, np.concatenate([np.zeros(0, np.int64), *words]), cut)


def _between(frame: Frame, first: Ids, second: Ids | None = None) -> np.ndarray:
    """Put -1 where a frame puts special tokens."""
    extract = None if frame.extract is None else -1
    return replace(frame, cls=-1, sep=-1, extract=extract).wrap(first, second).ids


def write_features(
    path: Path,
    rows: Iterator[tuple[int, np.ndarray]],
    offsets: np.ndarray,
    shape: tuple[int, int],
    *,
    half: bool = False,
    word_ids: np.ndarray | None = None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write `values`, `offsets` and, if given, `word_ids` into a safetensors file; see the module.

    Args:
        path: the file; its folder is made.
        rows: each sample's number and its rows, (tokens, layers, width), as `Backend.layers` yields them.
        offsets: (samples + 1,): where each sample's rows stand.
        shape: layers and width.
        half: in float16, whose error is an eighth of bf16's: behind a LayerNorm nothing is near its largest number.
        word_ids: as in `Features`.
        about: the file's metadata.

    Raises:
        UnmaskError: a value that float16 cannot hold.
        OSError: the disk is full; nothing is left.
    """
    kind = "F16" if half else "F32"
    others = {"offsets": offsets} | ({} if word_ids is None else {"word_ids": word_ids})
    shapes = {"values": (kind, (int(offsets[-1]), *shape)), **{name: ("I64", it.shape) for name, it in others.items()}}
    header, starts = _header(shapes, about or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    row_bytes = shape[0] * shape[1] * np.dtype(TYPES[kind]).itemsize
    try:
        with aside.open("wb") as file:
            file.write(header)
            for name, numbers in others.items():
                file.seek(len(header) + starts[name])
                file.write(numbers.astype(np.int64).tobytes())
            for number, values in rows:
                with np.errstate(over="ignore"):  # it is refused below
                    data = values.astype(TYPES[kind], copy=False)
                if half and not np.isfinite(data).all():
                    raise UnmaskError("a feature is not finite in float16: this encoder's layers cannot be stored")
                file.seek(len(header) + starts["values"] + int(offsets[number]) * row_bytes)
                file.write(data.tobytes())
        sync(aside)
        aside.replace(path)
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def open_table(path: Path) -> np.ndarray:
    """Map the `values` of a file that `write_features` made into memory: (rows, layers, width)."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))["values"]
    start = 8 + size + entry["data_offsets"][0]
    return np.memmap(path, TYPES[entry["dtype"]], "r", start, tuple(entry["shape"]))


def parse_layers(texts: Sequence[str]) -> tuple[int, ...]:
    """Read layers from the command line: numbers, divided by commas or spaces.

    Raises:
        UserError: no numbers.
    """
    try:
        return tuple(int(part) for text in texts for part in text.split(",") if part)
    except ValueError as error:
        raise UserError(
            f"--layers {' '.join(texts)}: not numbers", remedy="for example --layers=-4,-3,-2,-1"
        ) from error


def _header(
    shapes: Mapping[str, tuple[str, tuple[int, ...]]], about: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """Return the file's beginning, and where behind it each tensor starts."""
    entries: dict[str, object] = {"__metadata__": dict(about)} if about else {}
    starts, place = {}, 0
    for name, (kind, shape) in sorted(shapes.items(), key=lambda item: -np.dtype(TYPES[item[1][0]]).itemsize):
        end = place + int(np.prod(shape)) * np.dtype(TYPES[kind]).itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [place, end]}
        starts[name], place = place, end
    text = json.dumps(entries, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that what follows is aligned; larger numbers come first for the same reason
    return len(text).to_bytes(8, "little") + text, starts
