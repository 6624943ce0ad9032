"""Corpora made of others: mixtures of them, and all of several, one after the other.

**Mixtures**: each corpus has a share of the tokens, and its documents are read in part, once, or several times. Input:
corpora of one vocabulary, and their shares. Output: a corpus, which training reads as any other, so that the order,
several processes and resumed runs are exact. The documents that are read one time more than the others are chosen at
random, the same ones for the same corpora and settings, so that the tokens are as close to the share as whole documents
allow.

Shares by temperature are those of Devlin's multilingual BERT and of XLM (Conneau and Lample 2019, section 3.1):
proportional to the numbers of tokens to the power of 1 / temperature.

**Merging**: the shards of all, under new names. Input: the corpora that tasks have built from portions of a text.
Output: the corpus of all of it. Shards are linked, not copied, where the file system can do that, so that merging takes
no more room, and what was there stays until the whole is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.data.corpus.build import SHARD_TOKENS, check_out, report_leak, report_yield
from unmask.data.corpus.corpus import Corpus, Documents, open_corpus
from unmask.data.corpus.encode import EncodedDocument
from unmask.data.corpus.manifest import (
    CLEANING,
    NAME,
    CorpusManifest,
    FrequentToken,
    PartEntry,
    Place,
    ShardEntry,
    SkippedEntry,
    checksum,
    count_tokens,
    map_array,
)
from unmask.data.corpus.partial import PARTS, PartialCorpus
from unmask.data.corpus.sample import mix_samples
from unmask.data.text.documents import SHOWN
from unmask.support.durable import new_directory, replace_file
from unmask.support.errors import UserError
from unmask.support.fingerprint import sha256
from unmask.support.messages import argument

TOLERANCE = 0.1
"""Relative difference from a share from which on it is reported."""


def tempered(corpora: Sequence[Corpus], temperature: float) -> list[float]:
    """Return shares proportional to the numbers of tokens to the power of 1 / temperature; 1 keeps the proportions."""
    sizes = np.array([corpus.train.num_tokens for corpus in corpora], float) ** (1 / temperature)
    return [float(share) for share in sizes / sizes.sum()]


def write_mixture(
    corpora: Sequence[Corpus],
    shares: Sequence[float] | None,
    out: Path,
    *,
    tokens: float | None = None,
    most_repeats: float = 4.0,
    seed: int = 0,
    report: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """Write the mixture of corpora as a corpus, or resume one that was interrupted.

    Args:
        corpora: the corpora.
        shares: their shares of the tokens, which are divided by their sum; None: those of their sizes.
        out: the directory to write, which must be empty or not exist.
        tokens: number of tokens to train on; None: as many as there are if no document is read twice.
        most_repeats: maximum number of times that a document is read.
        seed: of the choice of documents.
        report: called with lines that say what is read how many times, and what was written.

    Raises:
        UserError: a corpus is given twice or damaged, the vocabularies differ, or a document would be read too often.
    """
    check_out(out)
    _check(corpora)
    first = corpora[0]
    lengths = {part: [getattr(corpus, part).lengths() for corpus in corpora] for part in PARTS}
    copies = {part: _copies(lengths[part], part, shares, tokens if part == "train" else None, seed) for part in PARTS}
    wanted = shares or tempered(corpora, 1.0)
    read = {part: np.array(list(map(np.dot, copies[part], lengths[part]))) for part in PARTS}  # tokens, (corpora,)
    resulting = [100 * read[part] / max(1, read[part].sum()) for part in PARTS]
    for corpus, number, share, *percentages in zip(corpora, read["train"], wanted, *resulting, strict=True):
        times = number / max(1, corpus.train.num_tokens)
        if times > most_repeats:
            raise UserError(
                f"would be read {times:.3g} times",
                file=corpus.place,
                remedy=f"lower its share or {argument('tokens')}, or raise {argument('max_repeats')}",
            )
        asked, note = 100 * share / sum(wanted), ""
        if abs(percentages[0] - asked) > TOLERANCE * asked:
            note = f" ({asked:.3g} % were asked for, but documents are read as a whole)"
        tokens_read, held_out = (f"{percentage:.3g} %" for percentage in percentages)
        report(
            f"{corpus.place}: {tokens_read} of the tokens{note}, {held_out} of those held out, read {times:.3g} times"
        )
    settings = {
        "corpora": " ".join(sha256(corpus.directory / NAME)[:16] for corpus in corpora),
        "shares": " ".join(f"{share:.6g}" for share in wanted),
        "tokens": f"{tokens}",
        "seed": f"{seed}",
        "tokens of a shard": f"{SHARD_TOKENS}",
    }
    with PartialCorpus(out.resolve(), settings, first.tokenizer, shard_tokens=SHARD_TOKENS, report=report) as partial:
        for document in partial.missing(_documents(copies)):
            number, index = map(int, document.text.split(":"))
            source: Documents = getattr(corpora[number], document.part)
            partial.add(document, _encoded(source.sentences(index), partial.dtype))
        sources = [source for corpus in corpora for source in corpus.manifest.sources]
        manifest = partial.finish(sources, SkippedEntry(0, []))
        numbers = [int(counts.sum()) for counts in copies["train"]]
        directories = [corpus.directory for corpus in corpora]
        mix_samples(directories, [number / max(1, sum(numbers)) for number in numbers], partial.corpus, seed)
        partial.publish(manifest)
    report_yield(manifest, report)
    mixture = open_corpus(out)
    report_leak(mixture, report)
    return mixture


def _check(corpora: Sequence[Corpus]) -> None:
    """Raise a UserError if a corpus is given twice, or has another vocabulary than the first one."""
    first, seen = corpora[0], set[Place]()
    for corpus in corpora:
        place = corpus.place.resolve() if isinstance(corpus.place, Path) else corpus.place
        if place in seen:
            raise UserError("is given twice", file=corpus.place, remedy="give each corpus once, with its share")
        if corpus.manifest.tokenizer != first.manifest.tokenizer:
            raise UserError(
                f"its vocabulary is not that of {first.place}", file=corpus.place, remedy="build it with that"
            )
        seen.add(place)


def _copies(
    lengths: Sequence[npt.NDArray[np.int64]],
    part: str,
    wanted: Sequence[float] | None,
    tokens: float | None,
    seed: int,
) -> list[npt.NDArray[np.int64]]:
    """Return how many times each document of a part of each corpus is read, given their lengths, (documents,) each."""
    sizes = np.array([length.sum() for length in lengths])
    if wanted is None and tokens is None:
        return [np.ones(len(length), np.int64) for length in lengths]
    shares = np.array(sizes if wanted is None else wanted, float)
    shares /= shares.sum()
    if tokens is None:  # a corpus without held-out documents does not limit the others
        tokens = float((sizes / shares)[sizes > 0].min()) if sizes.any() else 0.0
    copies = []
    for number, (length, share) in enumerate(zip(lengths, shares.tolist(), strict=True)):
        whole, rest = divmod(tokens * share, max(1, length.sum()))
        order = np.random.default_rng([seed, PARTS.index(part), number]).permutation(len(length))
        middle = np.cumsum(length[order]) - length[order] / 2
        more = np.zeros(len(length), np.int64)
        more[order] = middle <= rest  # to the nearest document
        if not whole and not more.any():
            more[order[:1]] = 1
        copies.append(int(whole) + more)
    return copies


def _documents(copies: dict[str, list[npt.NDArray[np.int64]]]) -> Iterator[tuple[str, str]]:
    """Yield the part of each document and where it is from, NUMBER:INDEX, as many times as it is read."""
    for part, counts in copies.items():
        for number, of_corpus in enumerate(counts):
            for index in np.repeat(np.arange(len(of_corpus)), of_corpus).tolist():
                yield part, f"{number}:{index}"


def _encoded(sentences: Sequence[npt.NDArray[np.int32]], dtype: str) -> EncodedDocument:
    """Return a document as the writer takes it."""
    ids, lengths = np.concatenate(sentences).astype(dtype), np.array([len(sentence) for sentence in sentences])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return EncodedDocument(ids.tobytes(), lengths.astype(np.int64).tobytes(), int(checksum(ids, ends)))


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
