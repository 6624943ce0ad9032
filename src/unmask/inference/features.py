"""Hidden states as features: texts as samples with the word index of each token, and rows streamed to a file.

Input: texts, and hidden states from an inference backend. Output: samples; on disk, one safetensors file.

Lengths are known as soon as the texts are tokenized, so the header is written first, and each sample's rows are written
at their offset as soon as they are computed: only one batch is in memory at a time, however large the file is. The file
is written under a temporary name and renamed when it is complete.

Files of vectors of texts: NumPy's `.npy`, or `.safetensors` with a tensor `vectors`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.labelled_file import TEXTS, Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.inference.backend import Backend
from unmask.support.durable import check_file, create, named, replace_file, sync
from unmask.support.errors import UnmaskError, UserError
from unmask.support.messages import argument
from unmask.support.tensor_file import Described, header_of
from unmask.tasks.rows import are_pairs, cut_and_wrap

SUFFIXES = (".npy", ".safetensors")


def check_target(path: Path) -> None:
    """Raise an error, before anything is computed, if vectors cannot be written to a path."""
    if path.suffix not in SUFFIXES:
        raise UserError("the suffix determines the format", file=path, remedy=f"use {' or '.join(SUFFIXES)}")
    if path.exists():
        raise UserError("the file exists", file=path, remedy=f"choose another {argument('out')}")
    check_file(path)


def write_vectors(path: Path, vectors: np.ndarray | Sequence[np.ndarray], model: str) -> None:
    """Write vectors, (texts, width), in the format of the suffix.

    Args:
        path: the file; see `check_target`.
        vectors: the vectors; or those of the tokens of each text, (tokens, width), which `.safetensors` has one after
            the other, with the `offsets` of texts among them, (texts + 1,).
        model: fingerprint of the model, for the metadata of `.safetensors`.
    """
    if isinstance(vectors, np.ndarray):
        tensors = {"vectors": vectors}
    else:
        tensors = {"vectors": np.concatenate(vectors), "offsets": np.cumsum([0, *map(len, vectors)])}
    if path.suffix == ".npy":
        content = io.BytesIO()
        np.save(content, vectors, allow_pickle=False)
        replace_file(path, content.getvalue())
    else:
        replace_file(path, safetensors.numpy.save(tensors, {"model": model}))


FILE = "features.safetensors"
TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64}
"""NumPy types by their names in the safetensors format."""


@dataclass(frozen=True)
class Features:
    """Hidden states of a list of texts.

    Attributes:
        values: (tokens, layers, width), float32; special tokens are included.
        offsets: (texts + 1,) int64: text t has the tokens from offsets[t] to offsets[t + 1].
        word_ids: (tokens,) int64: the index of each token's word in its text, with words split as by BERT's
            pre-tokenizer; -1 for special tokens. The second text of a pair starts again from 0.
        cut: number of texts that were longer than the model's maximum length and were truncated at their end.
    """

    values: Tensor
    offsets: Tensor
    word_ids: Tensor
    cut: int


@dataclass(frozen=True)
class FramedWords:
    """Texts as samples, with the word index of each token: `word_ids`, `offsets` and `cut` as in `Features`.

    `notes` are those of the tokenizer, on what the model does not read of the texts.
    """

    samples: list[Sample]
    word_ids: np.ndarray
    cut: int
    notes: list[str]

    @property
    def offsets(self) -> np.ndarray:
        """Index of the first token of each text, and the total, (texts + 1,)."""
        return np.cumsum([0, *map(len, self.samples)])


def frame_words(tokenizer: Tokenizer, rows: Sequence[Row], longest: int) -> FramedWords:
    """Return a sample for each row of one or two texts; more than `longest` tokens are truncated as in fine-tuning.

    Raises:
        UserError: single texts and pairs are mixed (see `are_pairs`).
    """
    frame = Frame.of(tokenizer)
    names = TEXTS[: 1 + are_pairs(rows)]
    texts_of = [[row.values[name] for row in rows] for name in names]
    columns = [tokenizer.encode_words(texts) for texts in texts_of]
    notes = tokenizer.notes((ids for column in columns for ids, _ in column), chain(*texts_of))
    samples, words, cut = [], [], 0
    for number, texts in enumerate(zip(*columns, strict=True)):
        sample, sizes = cut_and_wrap(frame, [ids for ids, _ in texts], longest)
        cut += sum(sizes) < sum(len(ids) for ids, _ in texts)
        samples.append(sample.named((0, number)))
        words.append(frame.spread(*(word[:size] for (_, word), size in zip(texts, sizes, strict=True))))
    return FramedWords(samples, np.concatenate([np.zeros(0, np.int64), *words]), cut, notes)


def collect_features(backend: Backend, words: FramedWords, layers: Sequence[int], width: int) -> Features:
    """Return the hidden states of texts, of layers by their numbers; see `Predictor.features`."""
    offsets = words.offsets
    values = np.empty((int(offsets[-1]), len(layers), width), np.float32)
    for number, rows in backend.layers(words.samples, layers):
        values[offsets[number] : offsets[number + 1]] = rows
    return Features(torch.from_numpy(values), torch.from_numpy(offsets), torch.from_numpy(words.word_ids), words.cut)


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
    """Write `values`, `offsets` and, if given, `word_ids` to a safetensors file; see the module's docstring.

    Args:
        path: the file; its folder is created.
        rows: each sample's index and its rows, (tokens, layers, width), as `Backend.layers` yields them.
        offsets: (samples + 1,): index of each sample's first row, and the total.
        shape: number of layers, and width.
        half: write float16, whose rounding error is an eighth of bf16's: after a LayerNorm no value is near its
            maximum.
        word_ids: as in `Features`.
        about: the file's metadata.

    Raises:
        UnmaskError: float16 cannot represent a value.
        OSError: the disk is full; no partial file is left.
    """
    kind = "F16" if half else "F32"
    others = {"offsets": offsets} | ({} if word_ids is None else {"word_ids": word_ids})
    described: Described = {
        "values": (torch.float16 if half else torch.float32, (int(offsets[-1]), *shape)),
        **{name: (torch.int64, array.shape) for name, array in others.items()},
    }
    header, starts = header_of(described, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    row_bytes = shape[0] * shape[1] * np.dtype(TYPES[kind]).itemsize
    try:
        with named(path), create(aside) as file:
            file.write(header)
            for name, numbers in others.items():
                file.seek(len(header) + starts[name])
                file.write(numbers.astype(np.int64).tobytes())
            for number, values in rows:
                with np.errstate(over="ignore"):  # checked below
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
    """Return the `values` of a file written by `write_features` as a memory map, (rows, layers, width)."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))["values"]
    start = 8 + size + entry["data_offsets"][0]
    return np.memmap(path, TYPES[entry["dtype"]], "r", start, tuple(entry["shape"]))
