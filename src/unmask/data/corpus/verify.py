"""Checks of the files of a corpus against its manifest; every error names the file and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.data.corpus.manifest import ARRAYS, BUILD_AGAIN, INDEX, NAME, CorpusManifest, ShardEntry, dtypes, lengths
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256


def verify_shard(directory: Path, shard: ShardEntry, dtype: str, vocabulary: int) -> None:
    """Read the files of a shard; check their checksums, and that their contents are consistent.

    Args:
        directory: directory of the corpus.
        shard: entry of the shard in the manifest.
        dtype: data type of the tokens.
        vocabulary: size of the vocabulary.

    Raises:
        UserError: a file is missing or damaged.
    """
    check_files(directory, shard)
    for name, entry in shard.files.items():
        if sha256(directory / name) != entry.sha256:
            raise UserError(
                "is damaged: its sha256 differs", file=directory / name, remedy=f"copy it again or {BUILD_AGAIN}"
            )
    paths = {kind: directory / f"{shard.name}.{kind}.npy" for kind in ARRAYS}
    arrays = {kind: map_array(path) for kind, path in paths.items()}
    for kind in ("tokens", "checksums"):
        want, count = dtypes(dtype)[kind], lengths(shard)[kind]
        if arrays[kind].dtype != want or arrays[kind].shape != (count,):
            raise UserError(f"does not contain {count} values of type {want.str}", file=paths[kind], remedy=BUILD_AGAIN)
    _check_index(arrays["sentences"], shard.sentences, shard.tokens, paths["sentences"])
    _check_index(arrays["documents"], shard.documents, shard.sentences, paths["documents"])
    if (largest := int(arrays["tokens"].max(initial=0))) >= vocabulary:
        raise UserError(
            f"has the token id {largest}, but the vocabulary has {vocabulary} tokens",
            file=paths["tokens"],
            remedy=BUILD_AGAIN,
        )


def map_array(path: Path) -> npt.NDArray[Any]:
    """Memory-map a file in NumPy's format, read-only.

    Raises:
        UserError: the file is not in this format.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"is not an array ({error})", file=path, remedy=BUILD_AGAIN) from error


def check_tokenizer(tokenizer: Tokenizer, manifest: CorpusManifest, path: Path, remedy: str) -> None:
    """Check that a tokenizer is the one that a corpus was built with.

    Raises:
        UserError: it is another tokenizer.
    """
    if tokenizer.sha256 != manifest.tokenizer.sha256:
        raise UserError(
            f"the tokenizer ({tokenizer.size} tokens, sha256 {tokenizer.sha256[:12]}) is not the one that the corpus "
            f"was built with ({manifest.tokenizer.size} tokens, sha256 {manifest.tokenizer.sha256[:12]})",
            file=path,
            remedy=remedy,
        )


def check_files(directory: Path, shard: ShardEntry) -> None:
    """Check that the files of a shard exist and have the right size.

    Raises:
        UserError: a file is missing or truncated.
    """
    if set(shard.files) != {f"{shard.name}.{kind}.npy" for kind in ARRAYS} or Path(shard.name).name != shard.name:
        raise UserError(
            f"the files of shard '{shard.name}' are not those of a shard ({', '.join(ARRAYS)})",
            file=directory / NAME,
            remedy=BUILD_AGAIN,
        )
    for name, entry in shard.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError("is missing", file=path, remedy=BUILD_AGAIN)
        if path.stat().st_size != entry.bytes:
            raise UserError(
                f"has {path.stat().st_size} bytes, not {entry.bytes}",
                file=path,
                remedy=f"copy it again or {BUILD_AGAIN}",
            )


def _check_index(index: npt.NDArray[Any], count: int, end: int, path: Path) -> None:
    """Check that an index divides `end` elements into `count` segments, none of them empty."""
    if (
        index.dtype != INDEX
        or index.shape != (count + 1,)
        or index[0] != 0
        or index[-1] != end
        or (np.diff(index) <= 0).any()
    ):
        raise UserError(f"is not an index of {count} segments of {end} elements", file=path, remedy=BUILD_AGAIN)
