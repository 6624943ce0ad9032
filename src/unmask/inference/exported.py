"""Directories of exported models: their manifest, and the backend that computes them.

Input: a directory that `inference/export.py` wrote. Output: a model without weights, and a `Backend` for it.

What a program computes depends on the processor and on the version of its engine: in int8, sums may saturate. So a
directory also holds some inputs and the outputs that the program had where it was exported, and each time it is loaded
they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.frame import adopt_framing
from unmask.data.batches.groups import Group
from unmask.data.tokenizers.load import load_tokenizer
from unmask.families.checkpoints.check import check_checksums, on_meta
from unmask.families.checkpoints.heads import NAMED
from unmask.families.checkpoints.hub import CHECK, MANIFEST
from unmask.families.checkpoints.huggingface import read_settings
from unmask.families.checkpoints.safetensors_file import CHECKSUMS
from unmask.families.checkpoints.sentence_files import read_dense, read_pooling
from unmask.families.checkpoints.sentence_modules import DENSE
from unmask.inference.backend import Backend, finite, in_order, run_in_batches
from unmask.inference.engines import ENGINES, Arrays, Engine, program_file
from unmask.inference.program import FEATURES, INPUTS, ProgramSignature, probes
from unmask.model.model import Model
from unmask.support.choices import exists
from unmask.support.durable import read_json, replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_path, fingerprint_values
from unmask.support.messages import argument
from unmask.tasks import AnyTask
from unmask.tasks.regression import Regression
from unmask.training.machine import processor
from unmask.training.runs.display import Display

NUM_CHECKED, NUM_COLUMNS = 6, 256
"""Number of sequences of `probes` in `CHECK`, and of the columns of their outputs."""
ROUNDING = {"float32": 1e-3, "bf16": 0.05, "int8": 0.05}
"""Largest difference from these outputs that is accepted, as a ratio of root mean squares."""
AGAIN = "export the model again"
BATCH_TOKENS = 1024
"""Maximum number of tokens per batch: its hidden states fit the processor's cache."""


class ExportManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an exported model is.

    Attributes:
        format: "onnx" or "openvino".
        precision: "float32", "bf16" or "int8".
        signature: what the program computes.
        vocabulary: number of token ids.
        labels: labels of the head, in order.
        task: the task that the model was fine-tuned for.
        difference: largest difference from the original that the check after the export found.
        scale: largest absolute value of the original there.
        target: "any": right on every processor; "this": as fast and close as possible on the one that it was made on.
        processor: the processor that it was made and checked on.
    """

    format: str
    precision: str
    signature: ProgramSignature
    vocabulary: int
    labels: tuple[str, ...] = ()
    task: AnyTask | None = None
    difference: float = 0.0
    scale: float = 1.0
    target: str = "any"
    processor: str = ""


@dataclass(frozen=True)
class ExportedBackend:
    """`Backend` that computes an exported program; ragged batches are padded within groups of similar length.

    Attributes:
        engine: the compiled program.
        signature: what it computes.
        precision: what it is computed in here: that of the manifest, or float32 in place of bf16.
        num_layers: number of the only layer whose hidden states can be returned.
        display: shows the progress of long computations.
        fingerprint: that of its tokenizer and of the checksums of its directory, or without these of all its files.
        infinite: whether logits may be minus infinity.
    """

    engine: Engine
    signature: ProgramSignature
    precision: str
    num_layers: int
    display: Display
    fingerprint: str = ""
    infinite: bool = False

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`."""
        if head != self.signature.head:
            raise UserError(f"this model was exported with {self._what}, without a {head} head")

        if len(samples) == 1:
            return [finite(self._run_alone(samples[0]), self.infinite)]

        def compute(batch: Batch) -> np.ndarray:
            rows = self._run(batch)
            return rows if self.signature.per_text else rows[batch.positions[self.signature.at].numpy()]

        batches = samples, compute, self.signature.at, BATCH_TOKENS, self.display
        return in_order(run_in_batches(*batches, infinite=self.infinite))

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`; only the last layer is there, if the model was exported with it."""
        if self.signature.head != FEATURES or pooled or any(layer != self.num_layers for layer in layers):
            remedy = "use the model that it was exported from"
            if not pooled and all(layer == self.num_layers for layer in layers):
                remedy += f", or export that with {argument('head', 'features')}"
            elif self.signature.head == FEATURES and not pooled:
                remedy += ", or ask for the last layer only (-1)"
            raise UserError(f"this model was exported with {self._what}, without these hidden states", remedy=remedy)

        def compute(batch: Batch) -> np.ndarray:
            rows = self._run(batch)[:, None].repeat(len(layers), 1)  # (tokens, layers, width)
            return rows if at is None else rows[batch.positions[at].numpy()]

        return run_in_batches(samples, compute, at, BATCH_TOKENS, self.display)

    @property
    def has_layers(self) -> bool:
        """See `Backend`: only the last one."""
        return self.signature.head == FEATURES

    def has_head(self, head: str) -> bool:
        """See `Backend`: only the one that it was exported with."""
        return head == self.signature.head

    @property
    def _what(self) -> str:
        name = self.signature.head
        return "its last layer" if name == FEATURES else f"its {name.replace('_', ' ')} head"

    def _run(self, batch: Batch) -> np.ndarray:
        """Return the output for a batch: a row per text, or per token, in the batch's order."""
        group_rows = []
        for group in batch.tokens.groups:
            rows = self.engine.run(_padded(batch, group))
            if not self.signature.per_text:
                rows = rows.reshape(-1, rows.shape[-1])
                rows = rows if group.index is None else rows[group.index.numpy()]
            group_rows.append(rows.astype(np.float32, copy=False))
        return np.concatenate(group_rows)

    def _run_alone(self, sample: Sample) -> np.ndarray:
        """Return the logits of a single sequence: a batch of it would only take time."""
        ones, zeros = np.ones(len(sample), np.int64), np.zeros(len(sample), np.int64)
        columns = sample.ids, ones, zeros if sample.segments is None else sample.segments
        inputs = {name: column.astype(np.int64)[None] for name, column in zip(INPUTS, columns, strict=True)}
        rows = self.engine.run(inputs).astype(np.float32, copy=False)
        return rows if self.signature.per_text else rows[0][sample.positions[self.signature.at]]


def _padded(batch: Batch, group: Group) -> Arrays:
    """Return the inputs of a program for a group of sequences."""
    shape, inside = (group.sequences, group.longest), slice(group.start, group.stop)
    real = np.ones(shape, np.int64) if group.real is None else group.real.numpy().astype(np.int64)
    real_ids, real_segments = batch.tokens.ids[inside], batch.tokens.segments
    columns = [real_ids, torch.zeros_like(real_ids) if real_segments is None else real_segments[inside]]
    ids, segments = (np.zeros(group.sequences * group.longest, np.int64) for _ in range(2))
    where = slice(None) if group.index is None else group.index.numpy()
    for padded, column in zip((ids, segments), columns, strict=True):
        padded[where] = column.numpy()
    return dict(zip(INPUTS, (ids.reshape(shape), real, segments.reshape(shape)), strict=True))


def is_exported(source: str | Path) -> bool:
    """Return whether a directory holds an exported model."""
    path = Path(source) / MANIFEST
    return exists(path) and path.is_file()


def load_exported(directory: Path, display: Display | None = None) -> tuple[Model, ExportedBackend]:
    """Return an exported model and its backend; the encoder of the model has shapes, but no weights.

    Args:
        directory: the directory.
        display: shows the progress of long computations.

    Raises:
        UserError: a file is missing or damaged, the engine is not installed, or the outputs are not those that the
            program had where it was exported.
    """
    check_checksums(directory)
    manifest = read_json(directory / MANIFEST, ExportManifest, AGAIN)
    model, backend = open_exported(directory, manifest, display)
    check_outputs(directory, manifest, model, backend)
    return model, backend


def open_exported(
    directory: Path, manifest: ExportManifest, display: Display | None = None
) -> tuple[Model, ExportedBackend]:
    """Return what `load_exported` does, without the check of its outputs."""
    path = directory / MANIFEST
    if manifest.format not in ENGINES:
        raise UserError(f"unknown format '{manifest.format}'", file=path, remedy=AGAIN)
    if manifest.precision not in ROUNDING:
        raise UserError(f"unknown precision '{manifest.precision}'", file=path, remedy=AGAIN)
    task, signature = manifest.task, manifest.signature
    is_sigmoid = signature.activation == "sigmoid"
    if isinstance(task, Regression) and task.part == signature.head and task.is_probability != is_sigmoid:
        raise UserError("the program is of an earlier version: it returns no logits", file=path, remedy=AGAIN)
    settings, words = read_settings(directory), load_tokenizer(directory)
    words.summary = settings.summary
    adopt_framing(words, directory)
    file = program_file(directory, manifest.format, manifest.precision)
    engine = ENGINES[manifest.format](file, torch.get_num_threads(), manifest.precision)
    with on_meta():
        body = settings.build(manifest.vocabulary)
    heads: dict[str, dict[str, Tensor]] = {} if signature.head == FEATURES else {signature.head: {}}
    pooling = read_pooling(directory, words)
    if pooling is not None and pooling.dense:
        heads[DENSE] = read_dense(directory, pooling.dense, settings.width)
    model = Model(body, words, heads, manifest.labels, task, pooling=pooling)
    shown = display or Display(quiet=True)
    listed = directory / CHECKSUMS
    known = fingerprint_values([fingerprint_path(listed if listed.is_file() else directory), words.sha256])
    infinite = task is not None and task.infinite
    return model, ExportedBackend(engine, signature, engine.precision, settings.layers, shown, known, infinite)


def outputs(backend: Backend, model: Model, signature: ProgramSignature, samples: Sequence[Sample]) -> list[np.ndarray]:
    """Return what a program, or its original, computes for samples, (rows, columns) each, in their order."""
    if signature.head != FEATURES:
        return backend.logits(signature.head, samples)
    rows = backend.layers(samples, [model.encoder.num_layers])
    return [vectors[:, 0] for vectors in in_order(rows)]


def write_check(directory: Path, model: Model, backend: ExportedBackend) -> None:
    """Write the inputs and outputs that `check_outputs` reads."""
    samples = probes(model, backend.signature)[:NUM_CHECKED]
    tensors = {}
    for number, rows in enumerate(outputs(backend, model, backend.signature, samples)):
        tensors[f"input.{number}"] = samples[number].ids
        tensors[f"output.{number}"] = _checked_columns(rows)
    replace_file(directory / CHECK, save(tensors))


def check_outputs(directory: Path, manifest: ExportManifest, model: Model, backend: ExportedBackend) -> None:
    """Check that a program has the outputs here that it had where it was exported.

    Raises:
        UserError: it has others, by more than rounding, or the file that tells is missing or damaged; or the labels
            are not those of the program.
    """
    path, samples = directory / CHECK, probes(model, backend.signature)[:NUM_CHECKED]
    try:
        stored = load_file(path)
        expected = [stored[f"output.{number}"] for number in range(len(samples))]
        same = all(np.array_equal(stored[f"input.{number}"], sample.ids) for number, sample in enumerate(samples))
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError("the file is missing or damaged", file=path, remedy=AGAIN) from error
    if not same:
        raise UserError("the stored inputs are not those of this version", file=path, remedy=AGAIN)
    computed = outputs(backend, model, backend.signature, samples)
    number = computed[0].shape[-1]
    if manifest.signature.head in NAMED and not len(manifest.labels) == len(set(manifest.labels)) == number:
        raise UserError(
            f"labels does not name the {number} labels of the program, each once",
            file=directory / MANIFEST,
            remedy=AGAIN,
        )
    here = np.concatenate([_checked_columns(rows).ravel() for rows in computed])
    there = np.concatenate([rows.ravel() for rows in expected])
    scale = np.linalg.norm(there) or 1.0  # all outputs may be 0
    off = float(np.linalg.norm(here - there) / scale) if here.shape == there.shape else np.inf
    if not off <= ROUNDING[manifest.precision]:  # also if it is not a number
        raise UserError(
            f"on this processor ({processor()}) the program's outputs differ by {100 * off:.1f} % from those on "
            f"{manifest.processor}, where it was exported",
            file=directory,
            remedy=f"export the model on this machine, or with {argument('target', 'any')}",
        )


def _checked_columns(rows: np.ndarray) -> np.ndarray:
    """Return the columns of outputs that are stored and compared, (rows, columns)."""
    return np.ascontiguousarray(rows.reshape(-1, rows.shape[-1])[:, :NUM_COLUMNS])
