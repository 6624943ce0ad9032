"""Several corpora of the same vocabulary as one: their shards under new names, one after the other.

Input: the corpora that tasks have built from portions of a text. Output: the corpus of all of it. Shards are linked,
not copied, where the file system can do that, so that merging takes no more room, and what was there stays until the
whole is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from unmask.data.corpus.corpus import Corpus, open_corpus
from unmask.data.corpus.manifest import (
    CLEANING,
    NAME,
    CorpusManifest,
    FrequentToken,
    PartEntry,
    ShardEntry,
    SkippedEntry,
    count_tokens,
    map_array,
)
from unmask.data.corpus.partial import PARTS
from unmask.data.corpus.sample import mix_samples
from unmask.data.text.documents import SHOWN
from unmask.support.durable import new_directory, replace_file


def merge_corpora(
    corpora: Sequence[Corpus],
    out: Path,
    *,
    skipped: SkippedEntry,
    cleaning: bytes,
    check: Callable[[CorpusManifest], None],
) -> Corpus:
    """Merge corpora.

    Args:
        corpora: the corpora, in the order in which their documents follow each other; they may have none.
        out: directory of the new corpus.
        skipped: documents that were skipped before, in addition to those of the corpora.
        cleaning: what was dropped before, as `cleaning.json` has it; empty: the text was not cleaned.
        check: called with the manifest, before the corpus appears.

    Raises:
        UserError: the directory is not empty.
    """
    first = corpora[0].manifest
    entries = [skipped, *(corpus.manifest.skipped for corpus in corpora)]
    places = [place for entry in entries for place in entry.places]
    with new_directory(out) as aside:
        parts = {part: _merged(corpora, part, aside) for part in PARTS}
        manifest = CorpusManifest(
            version=first.version,
            tokenizer=first.tokenizer,
            dtype=first.dtype,
            train=parts["train"],
            heldout=parts["heldout"],
            sources=[*dict.fromkeys(source for corpus in corpora for source in corpus.manifest.sources)],
            skipped=SkippedEntry(sum(entry.count for entry in entries), places[:SHOWN]),
            most_frequent_token=_most_frequent(aside, parts["train"], first.tokenizer.size),
        )
        check(manifest)
        if cleaning:
            replace_file(aside / CLEANING, cleaning)
        trained = [corpus for corpus in corpora if len(corpus.train)]
        shares = [len(corpus.train) / max(1, parts["train"].documents) for corpus in trained]
        if trained:
            mix_samples([corpus.directory for corpus in trained], shares, aside, seed=0)
        corpora[0].tokenizer.save(aside / "tokenizer")
        replace_file(aside / NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return open_corpus(out)


def _merged(corpora: Sequence[Corpus], part: str, aside: Path) -> PartEntry:
    """Link the shards of a part of all corpora; return its entry."""
    shards: list[ShardEntry] = []
    for corpus in corpora:
        for shard in getattr(corpus.manifest, part).shards:
            name = f"{part}-{len(shards):05d}"
            files = {}
            for file, entry in shard.files.items():
                renamed = name + file.removeprefix(shard.name)
                _link(corpus.directory / file, aside / renamed)
                files[renamed] = entry
            shards.append(msgspec.structs.replace(shard, name=name, files=files))
    return PartEntry.of(shards)


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:  # not every file system has links
        shutil.copyfile(path, target)


def _most_frequent(directory: Path, part: PartEntry, vocabulary: int) -> FrequentToken:
    counts = np.zeros(vocabulary, np.int64)
    for shard in part.shards:
        count_tokens(map_array(directory / f"{shard.name}.tokens.npy"), counts)
    return FrequentToken.of(counts)
