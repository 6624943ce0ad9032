"""Writer of the shards of one part of a corpus.

Input: encoded documents, in order. Output: the arrays that `corpus.manifest` describes, and their entries in the
manifest. Only the current shard is in memory: 2 or 4 bytes per token, 8 per sentence and 16 per document.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.data.corpus.encode import EncodedDocument
from unmask.data.corpus.manifest import (
    ARRAYS,
    CHECKSUM,
    INDEX,
    FileEntry,
    FrequentToken,
    PartEntry,
    ShardEntry,
    count_tokens,
    map_array,
)
from unmask.support.arrays import save_array
from unmask.support.fingerprint import sha256


class WholeShard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard that is full and was written to disk.

    Attributes:
        entry: its entry in the manifest.
        seen: number of documents of its part up to the end of this shard, including those without tokens.
        digest: digest of the text of all these documents.
    """

    entry: ShardEntry
    seen: int
    digest: str


class ShardWriter:
    """Writer of the shards of one part; see the module.

    Args:
        directory: directory of the corpus.
        part: "train" or "heldout".
        dtype: data type of the tokens.
        vocabulary: size of the vocabulary.
        shard_tokens: number of tokens after which a shard is full, at the end of the current document.
        whole: the full shards that exist already; new ones are appended to this list.

    Attributes:
        whole: the same list.
    """

    def __init__(
        self,
        directory: Path,
        part: str,
        *,
        dtype: str,
        vocabulary: int,
        shard_tokens: int,
        whole: list[WholeShard],
    ) -> None:
        self.whole = whole
        self._directory = directory
        self._part = part
        self._dtype = np.dtype(dtype)
        self._shard_bytes = shard_tokens * self._dtype.itemsize
        self._counts = np.zeros(vocabulary, dtype=np.int64)
        for shard in whole:
            count_tokens(map_array(directory / f"{shard.entry.name}.tokens.npy"), self._counts)
        self._begin()

    def _begin(self) -> None:
        self._tokens = bytearray()
        self._lengths = bytearray()  # lengths of the sentences in tokens
        self._sizes = array("q")  # lengths of the documents in sentences
        self._checksums = array("I")

    def add(self, document: EncodedDocument, seen: int, digest: str) -> ShardEntry | None:
        """Add a document that has tokens.

        Args:
            document: the encoded document.
            seen, digest: number and digest of the documents of this part up to and including it, for `WholeShard`.

        Returns:
            The shard that was written, if this document has filled it.
        """
        self._tokens += document.ids
        self._lengths += document.lengths
        self._sizes.append(len(document.lengths) // INDEX.itemsize)
        self._checksums.append(document.checksum)
        if len(self._tokens) < self._shard_bytes:
            return None
        self.whole.append(WholeShard(self._write(), seen, digest))
        return self.whole[-1].entry

    def finish(self) -> PartEntry:
        """Write the last shard, and return the entry of the part."""
        shards = [shard.entry for shard in self.whole]
        if self._sizes:
            shards.append(self._write())
        return PartEntry.of(shards)

    def most_frequent(self) -> FrequentToken:
        """Return the most frequent token of all shards written so far."""
        return FrequentToken.of(self._counts)

    def _write(self) -> ShardEntry:
        name = f"{self._part}-{len(self.whole):05d}"
        tokens = np.frombuffer(self._tokens, self._dtype)
        arrays = {
            "tokens": tokens,
            "sentences": _ends(np.frombuffer(self._lengths, INDEX)),
            "documents": _ends(np.array(self._sizes, INDEX)),
            "checksums": np.array(self._checksums, CHECKSUM),
        }
        files = {}
        for kind in ARRAYS:
            path = self._directory / f"{name}.{kind}.npy"
            save_array(path, arrays[kind])
            files[path.name] = FileEntry(sha256(path), path.stat().st_size)
        count_tokens(tokens, self._counts)
        shard = ShardEntry(name, files, len(self._sizes), len(self._lengths) // INDEX.itemsize, len(tokens))
        self._begin()
        return shard


def _ends(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the starts of consecutive segments of these lengths, and the end of the last."""
    ends = np.zeros(len(lengths) + 1, INDEX)
    np.cumsum(lengths, out=ends[1:])
    return ends
