"""The predictions of a teacher on disk, so that many students learn from what it computed once.

    DIR/manifest.json        whose predictions of which data these are, and the sha256 of each file
    DIR/part-00000.safetensors
        keys     (samples, 16)   digests of what the teacher read and where it predicted, so that no other sample's
                                 predictions are ever taken
        offsets  (samples + 1)   sample s has the targets from offsets[s] to offsets[s + 1]
        values   (targets, k)    of a language model the k highest log-probabilities, float16; of a task all logits
        ids      (targets, k)    their tokens; only of a language model

Of a language model's distribution only the k most probable tokens are kept, and the probability of all others together:
the divergence is that of these k + 1 outcomes, which is at most that of all tokens, and equal to it where the student
divides the rest as the teacher does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import safetensors.numpy
import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.data.text.files import read_whole
from unmask.nn.layers.vocabulary import CHUNK, SoftTargets
from unmask.objectives.hidden_cosine import NAME as HIDDEN_COSINE
from unmask.objectives.layer_matching import NAME as LAYER_MATCHING
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Decoding, Distributions
from unmask.objectives.teacher import Teacher, check_numbers
from unmask.support.capabilities import cpu_or_gpu
from unmask.support.durable import only_writer, replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256
from unmask.support.messages import argument, setting
from unmask.support.transfer import to_device

TOP = 32
"""Number of tokens that are kept of a language model's distribution."""
SAMPLES = 8192
"""Number of samples of a file."""
LEAST = 1e-6
"""Probability of all other tokens at least, as those of the kept ones are rounded."""


MANIFEST, LEFT = "manifest.json", {".manifest.json.part"}
"""Name of the manifest; what a program leaves that is killed while it writes the first one."""
PART = re.compile(r"part-\d{5,9}\.safetensors")
"""Names of files of predictions."""


class TargetsManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """manifest.json: what the predictions are of, and the sha256 of each file."""

    of: dict[str, str]
    files: dict[str, str]


class TargetStore:
    """Predictions by sample; see the module.

    Args:
        directory: created if it does not exist.
        of: what the predictions are of, such as fingerprints of teacher and data; a directory of others is refused.

    Raises:
        UserError: the directory holds other predictions or other files, or a file is damaged.
    """

    def __init__(self, directory: str | Path, of: Mapping[str, str]) -> None:
        self.directory = Path(directory)
        self.manifest = TargetsManifest(dict(of), {})
        self._where: dict[bytes, tuple[Any, int, int]] = {}
        self._new: dict[bytes, tuple[np.ndarray, np.ndarray | None]] = {}
        path = self.directory / MANIFEST
        if path.exists():
            self._open(path, of)
        elif self.directory.is_dir() and any(path.name not in LEFT for path in self.directory.iterdir()):
            raise UserError(
                "not a directory of predictions", file=self.directory, remedy=f"choose another {argument('targets')}"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # before the first predictions, so that they are known if the run is killed then
            with only_writer(self.directory, wait=True):
                if path.exists():  # another student has begun meanwhile
                    self._open(path, of)
                else:
                    self._write_manifest()

    def __len__(self) -> int:
        return len(self._where) + len(self._new)

    def _open(self, path: Path, of: Mapping[str, str]) -> None:
        """Read the manifest, and index all files."""
        remedy = f"remove the directory, or choose another {argument('targets')}"
        try:
            self.manifest = msgspec.json.decode(read_whole(path), type=TargetsManifest)
        except (ValueError, RecursionError) as error:
            raise UserError(f"damaged ({error})", file=path, remedy=remedy) from error
        for name, value in of.items():
            if (stored := self.manifest.of.get(name)) != value:
                raise UserError(
                    f"these predictions are of another {name}: {stored}, not {value}",
                    file=self.directory,
                    remedy=remedy,
                )
        for name, digest in self.manifest.files.items():
            file = self.directory / name
            if not PART.fullmatch(name):
                raise UserError(f"damaged (no file is named {name[:100]})", file=path, remedy=remedy)
            if not file.is_file() or sha256(file) != digest:
                raise UserError("the file was altered or truncated", file=file, remedy=remedy)
            self._index(file)

    def _index(self, file: Path) -> None:
        """Remember where the samples of a file are in it."""
        part: Any = safetensors.safe_open(file, "numpy")
        keys, offsets = part.get_tensor("keys"), part.get_tensor("offsets").tolist()
        self._where |= {key.tobytes(): (part, *span) for key, span in zip(keys, pairwise(offsets), strict=True)}

    def __contains__(self, key: bytes) -> bool:
        return key in self._new or key in self._where

    def __getitem__(self, key: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and ids of a sample's targets, (targets, k) each."""
        if key in self._new:
            return self._new[key]
        part, start, stop = self._where[key]
        ids = part.get_slice("ids")[start:stop] if "ids" in part.keys() else None  # noqa: SIM118 (not a mapping)
        return part.get_slice("values")[start:stop], ids

    def put(self, key: bytes, values: np.ndarray, ids: np.ndarray | None = None) -> None:
        """Store values and ids of a sample's targets."""
        self._new[key] = values, ids
        if len(self._new) == SAMPLES:
            self.flush()

    def flush(self) -> None:
        """Write what is not on disk yet, after what other students of the same teacher have written meanwhile."""
        if self._new:
            with only_writer(self.directory, wait=True):
                self._flush()

    def _flush(self) -> None:
        self.manifest = msgspec.json.decode(read_whole(self.directory / MANIFEST), type=TargetsManifest)
        values = [values for values, _ in self._new.values()]
        ids = [ids for _, ids in self._new.values() if ids is not None]
        tensors = {
            "keys": np.stack([np.frombuffer(key, np.uint8) for key in self._new]),
            "offsets": np.cumsum([0, *map(len, values)]),
            "values": np.concatenate(values),
            **({"ids": np.concatenate(ids)} if ids else {}),
        }
        name = f"part-{len(self.manifest.files):05}.safetensors"
        replace_file(self.directory / name, safetensors.numpy.save(tensors))
        self.manifest = TargetsManifest(self.manifest.of, {**self.manifest.files, name: sha256(self.directory / name)})
        self._write_manifest()
        self._index(self.directory / name)
        self._new.clear()

    def _write_manifest(self) -> None:
        replace_file(self.directory / MANIFEST, msgspec.json.format(msgspec.json.encode(self.manifest)))


def sample_key(ids: np.ndarray, segments: np.ndarray | None, positions: np.ndarray) -> bytes:
    """Return the digest of a sample: its ids, (length,), segments, (length,), and where it has targets, (targets,)."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (ids, np.zeros(0) if segments is None else segments, positions):
        digest.update(part.astype(np.int64).tobytes() + b"|")
    return digest.digest()


class Top:
    """The most probable tokens of a distribution over the vocabulary, as targets.

    Attributes:
        ids: (targets, k) int64.
        values: their log-probabilities at the temperature of the store, (targets, k).
    """

    def __init__(self, ids: Tensor, values: Tensor) -> None:
        self.ids = ids
        self.values = values

    def log_probabilities(self, temperature: float) -> SoftTargets:
        """See `Decoding`: the rest of the probability is divided as the student does."""

        def compute(chunk: slice, predicted: Tensor) -> Tensor:
            ids, known = self.ids[chunk], self.values[chunk].float()  # (chunk, k) each
            teacher_rest, student_rest = (
                (1 - top.exp().sum(1, keepdim=True)).clamp(min=LEAST).log() for top in (known, predicted.gather(1, ids))
            )
            return (predicted + (teacher_rest - student_rest)).scatter(1, ids, known)  # (chunk, vocabulary)

        return compute


class StoringTeacher(Teacher):
    """A teacher whose predictions are stored, and computed only for batches with a sample that is not stored.

    Held-out batches, which are few, are always computed.

    Args:
        learner: see `Teacher`.
        store: the predictions.
        temperature: temperature of the stored distributions.
    """

    def __init__(self, learner: Learner, store: TargetStore, temperature: float) -> None:
        super().__init__(learner)
        self.store = store
        self.temperature = temperature

    def predict(self, name: str, batch: Batch) -> Distributions | Tensor:
        """See `Teacher`."""
        if not torch.is_grad_enabled():
            return super().predict(name, batch)
        keys, starts = _samples(batch, self.learner.parts[name].at)
        if any(key not in self.store for key in keys):
            decoding = super().predict(name, batch)
            assert isinstance(decoding, Decoding), "the teacher is a language model"
            values, ids = _top(decoding, self.temperature)
            for key, *arrays in zip(keys, np.split(values, starts), np.split(ids, starts), strict=True):
                if key not in self.store:
                    self.store.put(key, *arrays)
        stored = zip(*(self.store[key] for key in keys), strict=True)
        rows, tokens = (torch.from_numpy(np.concatenate(part)) for part in stored)
        device = batch.tokens.ids.device
        return Top(to_device(tokens.long(), device), to_device(rows, device))


def _samples(batch: Batch, at: str) -> tuple[list[bytes], np.ndarray]:
    """Return the key of each sample of a batch, and where its targets begin among all, without the first."""
    offsets, positions = batch.tokens.offsets.cpu().numpy(), batch.positions[at].cpu().numpy()
    owners = np.searchsorted(offsets, positions, side="right") - 1  # (targets,)
    starts = np.searchsorted(owners, np.arange(1, len(offsets) - 1))
    ids, segments = batch.tokens.ids.cpu().numpy(), batch.tokens.segments
    marks = None if segments is None else segments.cpu().numpy()
    keys = [
        sample_key(ids[begin:end], None if marks is None else marks[begin:end], targets - begin)
        for begin, end, targets in zip(offsets[:-1], offsets[1:], np.split(positions, starts), strict=True)
    ]
    return keys, starts


def _top(decoding: Decoding, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the highest log-probabilities of each target, (targets, k) float16, and their ids, (targets, k) int32.

    Raises:
        UserError: they are not numbers.
    """
    compute, rows = decoding.log_probabilities(temperature), decoding.rows
    size, most = max(1, CHUNK[cpu_or_gpu(rows.device)] // len(decoding.decoder)), min(TOP, len(decoding.decoder))
    values, ids = [rows.new_zeros(0, most).float()], [torch.zeros(0, most, dtype=torch.int64, device=rows.device)]
    for start in range(0, len(rows), size):
        best = compute(slice(start, start + size), rows).topk(most, dim=1)
        values.append(best.values)
        ids.append(best.indices)
    logs = torch.cat(values)
    check_numbers(logs)
    halves = logs.clamp(min=torch.finfo(torch.float16).min).cpu().numpy().astype(np.float16)
    return halves, torch.cat(ids).cpu().numpy().astype(np.int32)


def check_targets(objectives: Iterable[str]) -> None:
    """Raise an error if predictions cannot be stored, or if storing them has no effect."""
    for name in (HIDDEN_COSINE, LAYER_MATCHING):
        if name in objectives:
            raise UserError(
                f"objective.{name} reads hidden states, for which the teacher computes every batch: storing its "
                "predictions has no effect",
                remedy=f"omit {argument('targets')}, or pass {setting(f'objective.{name}', False)}",
            )
