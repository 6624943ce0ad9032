"""Static encoders: one vector per token, distilled from a model, whose mean is the vector of a text.

Input: a model that makes vectors of texts. Output: a table of vectors, in the directory that the module StaticEmbedding
of sentence-transformers reads: `tokenizer.json`, `model.safetensors` with `embedding.weight`, and `modules.json`, with
a Normalize after it. `StaticPredictor` reads it, as unmask, sentence-transformers or Model2Vec wrote it.

The idea is Model2Vec's (Tulkens and van Dongen 2024): the model reads each token of its vocabulary as a text of its
own; the vectors are centered and projected to their principal components; and frequent tokens count less: each is
weighted by a / (a + p) (SIF; Arora et al. 2017, section 3, with a = 1e-4). The probability p of a token is that of
Zipf's law, as the order of ids in a vocabulary is nearly that of frequency. Vectors of texts are then computed without
the model: the mean of their tokens', without special tokens. The vectors of special and unused tokens are 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.tokens import Tokens
from unmask.data.tokenizers.load import load_plain_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.words import encode_ragged
from unmask.families.checkpoints.check import check_checksums, write_checksums
from unmask.families.checkpoints.safetensors_file import read_indices, read_shapes, read_tensors
from unmask.families.checkpoints.sentence_files import static_folder
from unmask.families.checkpoints.sentence_modules import Pooling, supported, write_static_modules
from unmask.inference.backend import TorchBackend
from unmask.inference.pooling import embed_samples, finished
from unmask.inference.predictor import Predictor
from unmask.model.model import Model
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, HeadSpec, Keep
from unmask.support.choices import PoolingKind, PromptName, as_texts
from unmask.support.durable import replace_file
from unmask.support.errors import ShareNote, UserError
from unmask.support.fingerprint import fingerprint, fingerprint_values
from unmask.support.messages import argument
from unmask.support.model_card import NAME, Origin, model_card
from unmask.training.machine import Machine, choose_machine

COMPONENTS = 256
"""Maximum number of principal components."""
SIF = 1e-4
"""The probability at which a token counts half."""
UNUSED = re.compile(r"\[unused\d+\]")
WEIGHT = "embedding.weight"
ROWS, MAPPING, FACTORS = "embeddings", "mapping", "weights"
"""Model2Vec's names of the table, and of what may be beside it: the row of each token, and a factor of that."""
ABOUT = """One vector for each of {:,} tokens, of {} numbers, distilled from a model by unmask. The vector of a text is
the normalized mean of those of its tokens."""


class StaticEncoder(Encoder):
    """The table as an encoder without layers, whose output at a token does not depend on the others.

    Args:
        table: (vocabulary, width).
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.vocabulary, self.width = table.shape
        self.words = torch.nn.Embedding(self.vocabulary, self.width, device="meta")
        self.words.weight = torch.nn.Parameter(table, requires_grad=False)
        self.num_layers, self.longest = 0, 1 << 20
        self.head = HeadSpec(width=self.width)

    @property
    def layer_groups(self) -> Sequence[torch.nn.Module]:
        """See `Encoder`."""
        return (self.words,)

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`."""
        last = self.words(tokens.ids)  # (tokens, width)
        return Encoded(last, dict.fromkeys(keep.layers, last))


class StaticPredictor(Predictor):
    """A static encoder ready for inference: `embed` and searches.

    Args:
        table: (vocabulary, width) float32.
        tokenizer: the tokenizer.
        pooling: what vectors begin with, and whether they are normalized.
        machine: where to compute what is not a mean of vectors.
    """

    unread = 2

    def __init__(self, table: Tensor, tokenizer: Tokenizer, pooling: Pooling, machine: Machine | None = None) -> None:
        super().__init__(Model(StaticEncoder(table), tokenizer, pooling=pooling), machine)
        self.table = table.numpy()

    def vectors(
        self,
        texts: str | Sequence[str],
        *,
        pooling: PoolingKind | None = None,
        normalize: bool | None = None,
        prompt_name: PromptName | None = None,
        dimensions: int | None = None,
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """See `Predictor`."""
        if pooling not in (None, "mean"):
            raise UserError(f"{argument('pooling', pooling)}: the vectors of a static encoder are means")
        own = supported(self.model.pooling).changed(self.table.shape[1], normalize=normalize, dimensions=dimensions)
        prompted = [own.prompt_of(prompt_name) + text for text in as_texts(texts)]
        encoded = encode_ragged(self.model.tokenizer, prompted)
        notes = list[str]()
        if own.length is not None and (long := int((encoded.lengths > own.length).sum())):
            notes.append(ShareNote(long, len(prompted), f"texts are longer than {own.length} tokens and were cut"))
            encoded = encoded.cut(np.minimum(encoded.lengths, own.length))
        if empty := int((encoded.lengths == 0).sum()):
            notes.append(ShareNote(empty, len(prompted), "texts are empty"))
        notes += self.model.tokenizer.notes([encoded.ids], prompted)
        return finished(self._means(encoded.ids, encoded.lengths), own), tuple(notes)

    def framed_vectors(self, samples: Sequence[Sample], pooling: Pooling) -> np.ndarray:
        """See `Predictor`: the special tokens around a text do not count."""
        start = Frame.of(self.model.tokenizer).start
        texts = [sample.ids[start : len(sample) - self.unread + start] for sample in samples]
        return self._means(np.concatenate(texts), np.array([*map(len, texts)]))

    def _means(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the mean of the vectors of each text's tokens, (texts, width); 0 if it has none.

        Args:
            ids: the tokens of all texts, (tokens,).
            lengths: their number in each text, (texts,).
        """
        vectors, filled = np.zeros((len(lengths), self.table.shape[1]), np.float32), np.flatnonzero(lengths)
        if len(filled):
            starts = np.cumsum([0, *lengths[filled][:-1]])
            sums = np.add.reduceat(self.table[ids], starts)  # (texts, width)
            vectors[filled] = sums / lengths[filled, None].astype(np.float32)
        return vectors

    def with_dimensions(self, dimensions: int | None) -> StaticPredictor:
        """See `Predictor`."""
        if dimensions is None:
            return self
        pooling = self.model.with_dimensions(dimensions).pooling
        return StaticPredictor(torch.from_numpy(self.table), self.model.tokenizer, supported(pooling))

    def __repr__(self) -> str:
        tokens, width = self.table.shape
        where = f"{self.origin.source!r}, " if self.origin is not None else ""
        return f"{type(self).__name__}({where}{tokens:,} tokens of {width} numbers)"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is not None:
            return super().__reduce__()
        return type(self), (torch.from_numpy(self.table), self.model.tokenizer, self.model.pooling)

    def fingerprint(self) -> str:
        """See `Predictor`: the vectors, the tokenizer and the pooling."""
        table = fingerprint({WEIGHT: torch.from_numpy(self.table)})
        return fingerprint_values([table, self.model.tokenizer.sha256, self.model.pooling])


def distill_tokens(model: Model) -> np.ndarray:
    """Return one vector per token, (vocabulary, components) float32; see the module.

    Raises:
        UserError: the model makes no vectors of texts.
    """
    if model.task is not None and model.task.vectors.pooling is None:
        raise UserError(
            f"this model is for {model.task.title}, and makes no vectors of texts",
            remedy="name a model that was trained on pairs, or an encoder",
        )
    tokenizer, pooling = model.tokenizer, supported(model.pooling)
    spelled = tokenizer.tokens(range(tokenizer.size))
    used = np.array(
        [id not in tokenizer.special_ids and not UNUSED.fullmatch(spelled[id]) for id in range(len(spelled))]
    )
    frame, ids = Frame.of(tokenizer), np.flatnonzero(used)
    samples = [frame.wrap(np.array([id])).named((0, number)) for number, id in enumerate(ids.tolist())]
    rows = embed_samples(TorchBackend(model, choose_machine(precision="float32")), model, samples, pooling)
    table = np.zeros((len(spelled), min(COMPONENTS, rows.shape[1], len(rows))), np.float32)
    table[ids] = principal_components(rows, table.shape[1]) * sif_weights(len(rows))[:, None]
    return table


def principal_components(rows: np.ndarray, count: int) -> np.ndarray:
    """Return rows, (rows, width), centered and projected to so many principal components, (rows, count) float32.

    The sign of a component is that for which its largest weight is positive.
    """
    centered = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    _, directions = np.linalg.eigh(centered.T @ centered)  # in increasing order of variance
    directions = directions[:, ::-1][:, :count]  # (width, count)
    largest = directions[np.abs(directions).argmax(0), np.arange(count)]
    projected: np.ndarray = (centered @ (directions * np.sign(largest))).astype(np.float32)
    return projected


def sif_weights(count: int) -> np.ndarray:
    """Return the weights of tokens in the order of their frequency by Zipf's law, (tokens,) float32, as Model2Vec."""
    ranks = 1 / np.arange(2, count + 2)
    weights: np.ndarray = (SIF / (SIF + ranks / ranks.sum())).astype(np.float32)
    return weights


def write_static(model: Model, folder: Path) -> Sequence[str]:
    """Write a model as a static encoder into an empty directory.

    Raises:
        UserError: it makes no vectors of texts.
    """
    table, pooling = torch.from_numpy(distill_tokens(model)), supported(model.pooling)
    model.tokenizer.save(folder)
    replace_file(folder / "model.safetensors", safetensors.torch.save({WEIGHT: table.contiguous()}, {"format": "pt"}))
    write_static_modules(folder, pooling)
    origin = Origin(
        base=model.as_base,
        library="sentence-transformers",
        pipeline="sentence-similarity",
        tags=("sentence-transformers", "feature-extraction", "static-embeddings"),
    )
    card = model_card("A static encoder", ABOUT.format(*table.shape), origin=origin)
    replace_file(folder / NAME, card.encode())
    write_checksums(folder)
    return [
        f"{table.shape[0]:,} tokens of {table.shape[1]} numbers, which StaticEmbedding of sentence-transformers reads"
    ]


def load_static(source: str | Path, machine: Machine | None = None) -> StaticPredictor:
    """Load a static encoder.

    Raises:
        UserError: a file is damaged or missing, or there are other steps than normalization.
    """
    directory = Path(source)
    found = static_folder(directory)
    assert found is not None
    folder, pooling = found
    check_checksums(directory)
    pooling = supported(pooling)
    tokenizer = load_plain_tokenizer(folder)
    return StaticPredictor(_read_table(folder / "model.safetensors", tokenizer.size), tokenizer, pooling, machine)


def _read_table(path: Path, tokens: int) -> Tensor:
    """Return the vectors of the tokens of a vocabulary, (tokens or more, width), as StaticEmbedding has them.

    Raises:
        UserError: the file has something else.
    """
    shapes, refusal = read_shapes(path), f"not a table with a row for each of the {tokens:,} tokens of the vocabulary"
    name = WEIGHT if WEIGHT in shapes else ROWS
    others = shapes.keys() - {name}
    if len(shapes.get(name, ())) != 2 or not others <= ({MAPPING, FACTORS} if name == ROWS else set()):
        raise UserError(refusal, file=path)
    tensors = read_tensors(path, {name} | others - {MAPPING})
    table = tensors[name]  # (rows, width)
    if MAPPING in others:
        table = table[read_indices(path, MAPPING, len(table))]  # (tokens, width)
    if FACTORS in others:
        if shapes[FACTORS] != (len(table),):
            raise UserError(f"{FACTORS} has shape {shapes[FACTORS]}, not one number for each token", file=path)
        table = table * tensors[FACTORS][:, None]
    if len(table) < tokens:
        raise UserError(refusal, file=path)
    return table
