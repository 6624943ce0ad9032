"""Reading of a corpus: shards of token ids, divided into documents and sentences.

Input: a directory written by `unmask.data.corpus.build` (`corpus.manifest` describes its files). Output: the
sentences of a document, by index. Opening reads the manifest and checks the sizes of the files, so that a large corpus
opens as fast as a small one; each document is checked whenever it is read; `Corpus.verify` reads everything. Files are
read, not memory-mapped: the memory of a process does not grow with what it has read, and a file that is truncated
meanwhile causes an error that names it instead of killing the process.
"""

from __future__ import annotations

import os
import shutil
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from struct import Struct
from struct import error as StructError
from tempfile import mkdtemp
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from unmask.data.corpus.manifest import (
    BUILD_AGAIN,
    CLEANING,
    INDEX,
    NAME,
    CorpusManifest,
    PartEntry,
    Place,
    ShardEntry,
    check_files,
    check_tokenizer,
    checksum,
    copy_small_files,
    dtypes,
    file_at,
    lengths,
    open_shard_file,
    read_manifest,
    verify_shard,
)
from unmask.data.corpus.sample import NAME as SAMPLE
from unmask.data.corpus.sample import read_sample
from unmask.data.tokenizers.load import load_tokenizer
from unmask.data.tokenizers.tokenizer import ALL_FILES, Ids, Tokenizer
from unmask.data.tokenizers.words import split_array
from unmask.support.choices import as_url
from unmask.support.errors import UserError, rename
from unmask.support.urls import Url

SMALL_FILES = (NAME, CLEANING, SAMPLE, *(f"tokenizer/{name}" for name in ALL_FILES))
"""Files of a corpus beside its shards."""
BLOCK_TOKENS = 1 << 20
"""Number of tokens that `Documents.blocks` reads at a time, but for documents that are longer."""
COUNTED = 1_000_000
"""Number of tokens that `Documents.token_counts` reads."""
MOST_OPEN = 4096
"""Maximum number of shards that are open at once, each with four files."""
COPIES_OPEN = 2
"""Maximum number of shards of a corpus at a URL that are open at once: the cache has no room for others meanwhile."""
_TWO = Struct("<2q")
_T = TypeVar("_T")


def _max_open() -> int:
    """Return how many shards of a part are open at once: with four tenths of the files that a process may open."""
    try:
        import resource
    except ImportError:  # Windows
        return 100
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, soft // 10))


class _OpenShard:
    """The files of a shard, which are closed when the object is deleted."""

    def __init__(self, directory: Place, shard: ShardEntry, tokens: str) -> None:
        self.entry = shard
        self._arrays: dict[str, tuple[int, int, np.dtype[Any]]] = {}
        handles: list[int] = []
        weakref.finalize(self, _close, handles)
        for (kind, dtype), count in zip(dtypes(tokens).items(), lengths(shard).values(), strict=True):
            name = f"{shard.name}.{kind}.npy"
            entry = shard.files[name]
            handles.append(open_shard_file(directory, name, entry.bytes, entry.sha256))
            # The array is at the end of its file, after a header whose contents are known from the manifest.
            header = entry.bytes - count * dtype.itemsize
            self._arrays[kind] = handles[-1], header, dtype

    def read(self, kind: str, first: int, count: int) -> npt.NDArray[Any]:
        """Read `count` elements of an array, starting from `first`."""
        return np.frombuffer(self.content(kind, first, count), self._arrays[kind][2], count)

    def content(self, kind: str, first: int, count: int) -> bytes:
        """Read the bytes of `count` elements of an array, starting from `first`; fewer at the end of the file."""
        handle, start, dtype = self._arrays[kind]
        size = dtype.itemsize
        return _read_at(handle, count * size, start + first * size)


def _close(handles: list[int]) -> None:
    """Close files."""
    for handle in handles:
        os.close(handle)


def _seek_and_read(handle: int, count: int, offset: int) -> bytes:
    """Read bytes from an offset in a file."""
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, count)


_read_at = getattr(os, "pread", _seek_and_read)  # Windows has none


class DocumentBlock(NamedTuple):
    """Consecutive documents of a shard.

    Attributes:
        first: index of the first one.
        ids: ids of all tokens, (tokens,).
        sentences: the index of the first token of each sentence, and the end, (sentences + 1,).
        documents: the index of the first token of each document, and the end, (documents + 1,).
    """

    first: int
    ids: Ids
    sentences: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


class Documents:
    """The documents of a part, across all its shards. It is cheap to pickle: files are opened when first read.

    Args:
        directory: directory or URL of the corpus.
        manifest: manifest of the corpus.
        part: entry of the part in the manifest.
    """

    def __init__(self, directory: Place, manifest: CorpusManifest, part: PartEntry) -> None:
        self._directory = directory
        self._part = part
        self._dtype = manifest.dtype
        self._vocabulary = manifest.tokenizer.size
        self._starts = list(accumulate((shard.documents for shard in part.shards), initial=0))
        self._most_open = _max_open() if isinstance(directory, Path) else COPIES_OPEN
        self._open: dict[int, _OpenShard] = {}  # the last one is that which was used last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __len__(self) -> int:
        return self._part.documents

    @property
    def num_sentences(self) -> int:
        """Number of sentences in all documents."""
        return self._part.sentences

    @property
    def num_tokens(self) -> int:
        """Number of tokens in all documents, without special tokens."""
        return self._part.tokens

    def sentences(self, index: int) -> list[Ids]:
        """Read and check a document.

        Args:
            index: index of the document in this part.

        Returns:
            The ids of each of its sentences. There is at least one sentence, and none is empty.

        Raises:
            IndexError: the index is out of range.
            UserError: the document is damaged (the message names the file).
        """
        ((ids, ends),) = self._of_documents([index], self._read)
        return [ids[start:stop] for start, stop in pairwise(ends.tolist())]

    def tokens(self, indices: Sequence[int]) -> list[Ids]:
        """Read and check some documents, as `sentences` does; return the ids of all tokens of each, (tokens,)."""
        return [ids for ids, _ in self._of_documents(indices, self._read)]

    def sentence_lengths(self, indices: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        """Read the lengths of the sentences of some documents, (sentences,) each; only the index is read.

        The checksums of documents are not compared: that of each document is when its text is read.

        Args:
            indices: indices of the documents, in any order; each of their shards is opened once.

        Raises:
            IndexError: an index is out of range.
            UserError: the index of documents is damaged (the message names the file).
        """
        return self._of_documents(indices, self._sentence_lengths)

    def lengths(self) -> npt.NDArray[np.int64]:
        """Read the lengths of all documents in tokens, (documents,), without special tokens; only the index is read.

        Raises:
            UserError: the index is damaged (the message names the file).
        """
        return self._sizes()[0]

    def token_counts(self) -> npt.NDArray[np.int64]:
        """Count the tokens of documents at equal distances, (vocabulary,), which have about `COUNTED` tokens together.

        Raises:
            UserError: a document is damaged (the message names the file).
        """
        every = max(1, self.num_tokens // COUNTED)
        documents = self.tokens(range(0, len(self), every))
        return np.bincount(np.concatenate([np.zeros(0, np.int32), *documents]), minlength=self._vocabulary)

    def blocks(self, enough: int | None = None) -> Iterator[DocumentBlock]:
        """Read and check documents in blocks of about `BLOCK_TOKENS` tokens, which is faster than one at a time.

        Args:
            enough: number of tokens; if there are more, blocks at equal distances are read that have about so many.

        Raises:
            UserError: a document is damaged (the message names the file).
        """
        every = 1 if enough is None else max(1, -(-self.num_tokens // enough))
        number = 0
        for shard, first in enumerate(self._starts[:-1]):
            entry = self._part.shards[shard]
            try:
                opened = self._shard(shard)
                bounds = opened.read("sentences", 0, entry.sentences + 1)
                index = opened.read("documents", 0, entry.documents + 1)
                if (np.diff(index) < 1).any() or (np.diff(bounds) < 1).any():
                    raise ValueError("the index is wrong")
                ends, start = bounds[index], 0
                while start < entry.documents:
                    end = max(start + 1, int(np.searchsorted(ends, ends[start] + BLOCK_TOKENS, side="right")) - 1)
                    if number % every == 0:
                        yield self._block(opened, first, index[start : end + 1], bounds, start)
                    start, number = end, number + 1
            except (OSError, ValueError, IndexError) as error:
                raise self._unreadable("a block", entry, error) from error

    def _block(
        self,
        shard: _OpenShard,
        first: int,
        index: npt.NDArray[np.int64],
        bounds: npt.NDArray[np.int64],
        start: int,
    ) -> DocumentBlock:
        """Read and check documents.

        Args:
            shard: their shard.
            first: index of its first document.
            index: the index of the first sentence of each document, and the end, (documents + 1,).
            bounds: the index of the first token of each sentence of the shard.
            start: index of the first document in the shard.
        """
        sentences = bounds[index[0] : index[-1] + 1] - bounds[index[0]]
        places = index - index[0]
        tokens = shard.read("tokens", int(bounds[index[0]]), int(sentences[-1]))
        if tokens.max() >= self._vocabulary:
            raise ValueError("a token id is not in the vocabulary")
        checksums = shard.read("checksums", start, len(index) - 1).tolist()
        for known, (low, high) in zip(checksums, pairwise(places.tolist()), strict=True):
            ends = sentences[low : high + 1] - sentences[low]
            if checksum(tokens[sentences[low] : sentences[high]], ends) != known:
                raise ValueError("the checksum of a document differs")
        return DocumentBlock(first + start, tokens.astype(np.int32), sentences, sentences[places])

    def sentence_counts(self) -> npt.NDArray[np.int64]:
        """Read the number of sentences of all documents, (documents,); see `lengths`."""
        return self._sizes()[1]

    def _sizes(self) -> npt.NDArray[np.int64]:
        """Read the number of tokens and of sentences of all documents, (2, documents)."""
        return np.concatenate([np.zeros((2, 0), np.int64), *(np.stack(sizes) for *sizes, _ in self.index())], 1)

    def index(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint32]]]:
        """Read the numbers of tokens and of sentences of all documents, and their checksums, a shard at a time.

        Raises:
            UserError: the index is damaged (the message names the file).
        """
        for number, shard in enumerate(self._part.shards):
            try:
                opened = self._shard(number)
                documents = opened.read("documents", 0, shard.documents + 1).astype(np.int64)
                bounds = opened.read("sentences", 0, shard.sentences + 1).astype(np.int64)
                tokens, sentences = np.diff(bounds[documents]), np.diff(documents)
                if (tokens < 1).any() or (sentences < 1).any():
                    raise ValueError("the index of documents is wrong")
                checksums = opened.read("checksums", 0, shard.documents)
            except (OSError, ValueError, IndexError) as error:
                raise self._unreadable("the index", shard, error) from error
            yield tokens, sentences, checksums

    def _unreadable(self, what: str, shard: ShardEntry, error: Exception) -> UserError:
        """Return the error for a part of the corpus that cannot be read.

        Raises:
            UserError: the shard is damaged; names the file.
        """
        verify_shard(self._directory, shard, self._dtype, self._vocabulary)
        return UserError(
            f"{what} of the corpus cannot be read ({error})",
            file=file_at(self._directory, shard.name),
            remedy=BUILD_AGAIN,
        )

    def _shard(self, number: int) -> _OpenShard:
        """Return a shard; of those that are open, the one that was used least recently may be closed."""
        shard = self._open.pop(number, None) or _OpenShard(self._directory, self._part.shards[number], self._dtype)
        self._open[number] = shard
        if len(self._open) > self._most_open:
            self._open.pop(next(iter(self._open)), None)
        return shard

    def _shard_of(self, index: int) -> int:
        """Return the number of the shard of a document."""
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        return bisect_right(self._starts, index) - 1

    def _of_documents(self, indices: Sequence[int], read: Callable[[_OpenShard, list[int]], list[_T]]) -> list[_T]:
        """Return what is read of each document, given a shard and the indices of documents there."""
        found: dict[int, _T] = {}
        for number, group in groupby(sorted({*indices}), self._shard_of):
            documents = list(group)
            found |= zip(documents, self._of_shard(number, documents, read), strict=True)
        return [found[index] for index in indices]

    def _of_shard(
        self, number: int, indices: Sequence[int], read: Callable[[_OpenShard, list[int]], list[_T]]
    ) -> list[_T]:
        """Return what is read of documents of a shard; see `_of_documents`."""
        first = self._starts[number]
        try:
            return read(self._shard(number), [index - first for index in indices])
        except (OSError, ValueError, StructError) as error:
            if len(indices) == 1:
                raise self._unreadable(f"document {indices[0]}", self._part.shards[number], error) from error
            return [part for index in indices for part in self._of_shard(number, [index], read)]  # which one it is

    def _bounds(self, shard: _OpenShard, documents: list[int]) -> tuple[npt.NDArray[np.int64], list[int]]:
        """Read the first token of each sentence of some documents in their shard, and the end of each document.

        Returns:
            Those of all documents, (bounds,), and how many each has, (documents,).
        """
        contents, counts = [], []
        for index in documents:
            first, end = _TWO.unpack(shard.content("documents", index, 2))
            if not 0 <= first < end <= shard.entry.sentences:
                raise ValueError("the index of documents is wrong")
            contents.append(shard.content("sentences", first, end - first + 1))
            counts.append(end - first + 1)
        bounds = np.frombuffer(b"".join(contents), INDEX, sum(counts))
        if bounds.view(np.uint64).max() > shard.entry.tokens:  # or negative
            raise ValueError("the index of sentences is wrong")
        return bounds, counts

    def _sentence_lengths(self, shard: _OpenShard, documents: list[int]) -> list[npt.NDArray[np.int64]]:
        """Read the lengths of the sentences of some documents, (sentences,) each."""
        bounds, counts = self._bounds(shard, documents)
        lengths, ends = bounds[1:] - bounds[:-1], list(accumulate(counts))
        for end in ends[:-1]:
            lengths[end - 1] = 1  # from a document to the next one
        if lengths.min() < 1:
            raise ValueError("the index of sentences is wrong")
        return [lengths[end - count : end - 1] for count, end in zip(counts, ends, strict=True)]

    def _read(self, shard: _OpenShard, documents: list[int]) -> list[tuple[Ids, npt.NDArray[np.int64]]]:
        """Read and check some documents; return of each the ids, (tokens,), and where sentences begin, and the end."""
        bounds, counts = self._bounds(shard, documents)
        numbers, last = np.array(counts), np.cumsum(counts)
        starts = bounds[last - numbers]
        if (bounds[last - 1] <= starts).any():
            raise ValueError("the index of sentences is wrong")
        sizes, ends = bounds[last - 1] - starts, split_array(bounds - np.repeat(starts, numbers), numbers)
        contents = [shard.content("tokens", *place) for place in zip(starts.tolist(), sizes.tolist(), strict=True)]
        tokens = np.frombuffer(b"".join(contents), self._dtype, sizes.sum())
        for index, ids, of_sentences in zip(documents, split_array(tokens, sizes), ends, strict=True):
            if checksum(ids, of_sentences) != shard.read("checksums", index, 1)[0]:
                raise ValueError("its checksum differs")
        if tokens.max() >= self._vocabulary:
            raise ValueError("a token id is not in the vocabulary")
        return list(zip(split_array(tokens.astype(np.int32), sizes), ends, strict=True))


class Corpus:
    """A corpus on disk.

    Attributes:
        directory: directory of the corpus; of one at a URL, a temporary one with all files but the shards.
        place: directory of the corpus, or its URL.
        manifest: its manifest.
        train, heldout: the documents of its parts.
    """

    def __init__(self, directory: Path, manifest: CorpusManifest, place: Place | None = None) -> None:
        self.directory = directory
        self.place = place or directory
        self.manifest = manifest
        self.train = Documents(self.place, manifest, manifest.train)
        self.heldout = Documents(self.place, manifest, manifest.heldout)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the corpus was built with.

        Raises:
            UserError: it is damaged, or not the one recorded in the manifest.
        """
        tokenizer = load_tokenizer(self.directory / "tokenizer")
        check_tokenizer(tokenizer, self.manifest, self.directory / "tokenizer", BUILD_AGAIN)
        return tokenizer

    def notes(self, remedy: str) -> list[str]:
        """Return sentences on the text that the vocabulary does not read, or reads badly; none if it is little.

        Args:
            remedy: what to do about tokens that are unknown, or parts of characters.

        Raises:
            UserError: a document is damaged (the message names the file).
        """
        unread = self.tokenizer.count_notes(self.train.token_counts())
        texts = (sampled.text for sampled in read_sample(self.directory))
        return [*(f"{note}: {remedy}" for note in unread), *self.tokenizer.decomposition_note(texts)]

    def verify(self) -> None:
        """Read and check every file.

        Raises:
            UserError: a file is damaged (the message names it).
        """
        for part in (self.manifest.train, self.manifest.heldout):
            for shard in part.shards:
                verify_shard(self.place, shard, self.manifest.dtype, self.manifest.tokenizer.size)
        _ = self.tokenizer


def open_corpus(directory: str | Path) -> Corpus:
    """Open a corpus; check the manifest and the sizes of all files.

    Args:
        directory: directory of the corpus, or its URL.

    Returns:
        The corpus.

    Raises:
        UserError: it is not a corpus, or files are missing or truncated (the message names the first one).
        UnmaskError: the store at a URL fails.
    """
    place = as_url(directory)
    if isinstance(place, Url):
        copied = Path(mkdtemp(prefix="unmask-corpus-"))
        try:
            copy_small_files(place, SMALL_FILES, copied)
            corpus = _opened(copied, place)
            _ = corpus.tokenizer
        except BaseException as error:
            shutil.rmtree(copied, ignore_errors=True)
            if isinstance(error, UserError):
                rename(error, copied, place)
            raise
        weakref.finalize(corpus, shutil.rmtree, copied, ignore_errors=True)
        return corpus
    return _opened(Path(place), Path(place))


def _opened(directory: Path, place: Place) -> Corpus:
    """Return a corpus; see `open_corpus`."""
    manifest = read_manifest(directory / NAME)
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        for shard in part.shards:
            check_files(place, shard)
        totals = [sum(getattr(shard, count) for shard in part.shards) for count in ("documents", "sentences", "tokens")]
        if totals != [part.documents, part.sentences, part.tokens]:
            raise UserError(
                f"the counts of '{name}' do not match those of its shards", file=directory / NAME, remedy=BUILD_AGAIN
            )
    return Corpus(directory, manifest, place)
