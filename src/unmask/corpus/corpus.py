"""Read a corpus: memory-mapped shards of token ids, cut into sentences and documents.

In: a directory that `unmask.corpus.build` has written:

    manifest.json                the `Manifest` below
    tokenizer/                   as `Tokenizer.save` writes it
    train-00000.tokens.npy       uint16 or uint32: the ids of the shard's tokens, without special tokens
    train-00000.sentences.npy    int64: the token with which each sentence starts, and the end
    train-00000.documents.npy    int64: the sentence with which each document starts, and the end

Out: the sentences of a document, by its number. Everything is checked when the corpus is opened.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.durable import sha256
from unmask.errors import UserError
from unmask.tokenizers.tokenizer import Ids, Tokenizer, load_tokenizer

VERSION = 1
ARRAYS = ("tokens", "sentences", "documents")

_MANIFEST = "manifest.json"
_BUILD_AGAIN = "build the corpus again"
_OPEN_SHARDS = 100  # each holds three file descriptors, of which a process often has 1,024


class TokenizerEntry(msgspec.Struct, frozen=True):
    """The tokenizer of a corpus: the checksum of its content and how many pieces it has."""

    sha256: str
    size: int


class FileEntry(msgspec.Struct, frozen=True):
    """What a file must be."""

    sha256: str
    bytes: int


class ShardEntry(msgspec.Struct, frozen=True):
    """A shard: its files by name, and what it counts."""

    name: str
    files: dict[str, FileEntry]
    documents: int
    sentences: int
    tokens: int


class PartEntry(msgspec.Struct, frozen=True):
    """A part, "train" or "heldout"."""

    documents: int
    sentences: int
    tokens: int
    shards: list[ShardEntry]


class SkippedEntry(msgspec.Struct, frozen=True):
    """The documents that could not be used, and the first ten places."""

    count: int
    places: list[str]


class FrequentToken(msgspec.Struct, frozen=True):
    """The token that is most frequent in the train part, and its share there."""

    id: int
    share: float


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a corpus is and consists of."""

    version: int
    tokenizer: TokenizerEntry
    dtype: str
    train: PartEntry
    heldout: PartEntry
    sources: list[str]
    skipped: SkippedEntry
    most_frequent_token: FrequentToken


class Documents:
    """The documents of one part, over all its shards. Cheap to pickle: files are mapped when they are first read.

    Args:
        directory: of the corpus.
        part: its entry in the manifest.
    """

    def __init__(self, directory: Path, part: PartEntry) -> None:
        self._directory = directory
        self._part = part
        self._starts = list(accumulate((shard.documents for shard in part.shards), initial=0))
        self._open: dict[int, tuple[npt.NDArray[Any], ...]] = {}

    def __reduce__(self) -> tuple[type[Documents], tuple[Path, PartEntry]]:
        return Documents, (self._directory, self._part)

    def __len__(self) -> int:
        return self._part.documents

    @property
    def num_sentences(self) -> int:
        """How many sentences all documents have together."""
        return self._part.sentences

    @property
    def num_tokens(self) -> int:
        """How many tokens all documents have together, without special tokens."""
        return self._part.tokens

    def sentences(self, index: int) -> list[Ids]:
        """Read one document.

        Args:
            index: its number in this part, from 0.

        Returns:
            The ids of each of its sentences, of which there is at least one, and none is empty.

        Raises:
            IndexError: there are not so many documents.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        shard = bisect_right(self._starts, index) - 1
        tokens, sentences, documents = self._arrays(shard)
        first, end = documents[index - self._starts[shard] :][:2].tolist()
        bounds = sentences[first : end + 1].tolist()
        ids = tokens[bounds[0] : bounds[-1]].astype(np.int32)
        return [ids[start - bounds[0] : stop - bounds[0]] for start, stop in pairwise(bounds)]

    def _arrays(self, shard: int) -> tuple[npt.NDArray[Any], ...]:
        if shard not in self._open:
            if len(self._open) == _OPEN_SHARDS:
                del self._open[next(iter(self._open))]
            name = self._part.shards[shard].name
            self._open[shard] = tuple(map_array(self._directory / f"{name}.{array}.npy") for array in ARRAYS)
        return self._open[shard]


class Corpus:
    """A corpus on disk.

    Attributes:
        directory: where it lies.
        manifest: what it consists of.
        train, heldout: the documents of its parts.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.train = Documents(directory, manifest.train)
        self.heldout = Documents(directory, manifest.heldout)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer with which it was built.

        Raises:
            UserError: it is damaged, or not the one that the manifest names.
        """
        tokenizer = load_tokenizer(self.directory / "tokenizer")
        _check_tokenizer(tokenizer, self.manifest, self.directory / "tokenizer", _BUILD_AGAIN)
        return tokenizer


def open_corpus(directory: str | Path, *, tokenizer: Tokenizer | None = None, verify: bool = True) -> Corpus:
    """Open a corpus and check it.

    Args:
        directory: where it lies.
        tokenizer: the one that it must have been built with.
        verify: read every file and check it; without, only the manifest and the sizes of the files are checked.

    Returns:
        The corpus.

    Raises:
        UserError: it is no corpus, it is damaged (the message names the file), or its tokenizer is another one.
    """
    directory = Path(directory)
    manifest = _read_manifest(directory / _MANIFEST)
    corpus = Corpus(directory, manifest)
    if tokenizer is not None:
        remedy = "build the corpus with the tokenizer of this model, or use the one of the corpus"
        _check_tokenizer(tokenizer, manifest, directory, remedy)
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        for shard in part.shards:
            _check_files(directory, shard, verify)
            if verify:
                _check_arrays(directory, shard, manifest)
        totals = [sum(getattr(shard, count) for shard in part.shards) for count in ("documents", "sentences", "tokens")]
        if totals != [part.documents, part.sentences, part.tokens]:
            raise UserError(
                f"the counts of '{name}' are not those of its shards", file=directory / _MANIFEST, remedy=_BUILD_AGAIN
            )
    return corpus


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map a file of numpy's format into memory, read-only.

    Raises:
        UserError: it is none.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"is no array ({error})", file=path, remedy=_BUILD_AGAIN) from error


def _read_manifest(path: Path) -> Manifest:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", file=path, remedy="is this the folder of a corpus?"
        ) from error
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no manifest of a corpus ({error})", file=path, remedy=_BUILD_AGAIN) from error
    if manifest.version != VERSION:
        raise UserError(f"has version {manifest.version}, not {VERSION}", file=path, remedy=_BUILD_AGAIN)
    return manifest


def _check_tokenizer(tokenizer: Tokenizer, manifest: Manifest, place: Path, remedy: str) -> None:
    if tokenizer.sha256 != manifest.tokenizer.sha256:
        raise UserError(
            f"the tokenizer ({tokenizer.size} pieces, sha256 {tokenizer.sha256[:12]}) is not the one that the corpus "
            f"was built with ({manifest.tokenizer.size} pieces, sha256 {manifest.tokenizer.sha256[:12]})",
            file=place,
            remedy=remedy,
        )


def _check_files(directory: Path, shard: ShardEntry, verify: bool) -> None:
    if set(shard.files) != {f"{shard.name}.{array}.npy" for array in ARRAYS} or Path(shard.name).name != shard.name:
        raise UserError(
            f"the files of shard '{shard.name}' are not its three", file=directory / _MANIFEST, remedy=_BUILD_AGAIN
        )
    for name, entry in shard.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError("is missing", file=path, remedy=_BUILD_AGAIN)
        if path.stat().st_size != entry.bytes:
            raise UserError(
                f"has {path.stat().st_size} bytes, not {entry.bytes}",
                file=path,
                remedy=f"copy it again or {_BUILD_AGAIN}",
            )
        if verify and sha256(path) != entry.sha256:
            raise UserError("is damaged: its sha256 differs", file=path, remedy=f"copy it again or {_BUILD_AGAIN}")


def _check_arrays(directory: Path, shard: ShardEntry, manifest: Manifest) -> None:
    """Check what checksums do not tell: that the files, once written, were right."""
    paths = [directory / f"{shard.name}.{array}.npy" for array in ARRAYS]
    tokens, sentences, documents = map(map_array, paths)
    if tokens.ndim != 1 or tokens.dtype != np.dtype(manifest.dtype) or len(tokens) != shard.tokens:
        raise UserError(f"does not hold {shard.tokens} ids of {manifest.dtype}", file=paths[0], remedy=_BUILD_AGAIN)
    _check_index(sentences, shard.sentences, shard.tokens, paths[1])
    _check_index(documents, shard.documents, shard.sentences, paths[2])
    if len(tokens) and (largest := int(tokens.max())) >= manifest.tokenizer.size:
        raise UserError(
            f"has the token id {largest}, but the vocabulary has {manifest.tokenizer.size} pieces",
            file=paths[0],
            remedy=_BUILD_AGAIN,
        )


def _check_index(index: npt.NDArray[Any], count: int, end: int, path: Path) -> None:
    """Check that an index cuts `end` things into `count` pieces, none of them empty."""
    if (
        index.dtype != np.dtype("<i8")
        or index.shape != (count + 1,)
        or index[0] != 0
        or index[-1] != end
        or (np.diff(index) <= 0).any()
    ):
        raise UserError(f"is no index of {count} pieces of {end}", file=path, remedy=_BUILD_AGAIN)
