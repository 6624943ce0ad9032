"""A sample of the texts of a corpus, as they were before they became tokens, for people and reports.

Input: the documents of a corpus while it is built, in order. Output: the file `sample.jsonl` of the corpus: a uniform
sample of its training documents (reservoir sampling: Vitter 1985, algorithm R), an object with text and url on each
line, in the order of the documents. It depends on the documents alone, so that it is the same for any number of
processes, and after interruptions. Of long documents only the start is kept, so that memory and the file are bounded.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from unmask.data.text.documents import SourceText
from unmask.support.durable import replace_file
from unmask.support.errors import UserError

NAME = "sample.jsonl"
MOST = 1000
"""Number of documents in a sample."""
CHARACTERS, URL_CHARACTERS = 10_000, 1000
"""Maximum number of characters of a text, and of an address."""


class SampledText(msgspec.Struct, frozen=True):
    """A document of a sample.

    Attributes:
        text: its text, of which only the first `CHARACTERS` are kept.
        url: the address of its page; "" if that is not known.
    """

    text: str
    url: str = ""


class DocumentSampler:
    """Samples `MOST` of the documents that pass by."""

    def __init__(self) -> None:
        self._seen, self._rng = 0, random.Random(0)
        self._kept: list[tuple[int, SampledText]] = []

    def watch(self, documents: Iterable[tuple[str, SourceText]]) -> Iterator[tuple[str, str]]:
        """Yield the part and the text of each document, and sample those of the train part."""
        for part, document in documents:
            if part == "train":
                self._add(document)
            yield part, document.text

    def _add(self, document: SourceText) -> None:
        place, self._seen = self._seen, self._seen + 1
        if place >= MOST:
            place = self._rng.randrange(self._seen)
            if place >= MOST:
                return
        text = SampledText(document.text[:CHARACTERS], document.url[:URL_CHARACTERS])
        self._kept[place : place + 1] = [(self._seen, text)]

    def save(self, directory: Path) -> None:
        """Write the sample of a corpus."""
        lines = (msgspec.json.encode(text) + b"\n" for _, text in sorted(self._kept, key=lambda item: item[0]))
        replace_file(directory / NAME, b"".join(lines))


def mix_samples(directories: Sequence[Path], shares: Sequence[float], out: Path, seed: int) -> None:
    """Write the sample of a mixture of corpora, unless one of them has none.

    Args:
        directories: those of the corpora.
        shares: the share of each of the documents of the mixture.
        out: directory of the mixture.
        seed: of the choice among the texts of each.
    """
    samples = [read_sample(directory) for directory in directories]
    if not all(samples):
        return
    size = min(MOST, *(int(len(sample) / share) for sample, share in zip(samples, shares, strict=True) if share))
    rng, lines = random.Random(seed), []
    for sample, share in zip(samples, shares, strict=True):
        chosen = sorted(rng.sample(range(len(sample)), min(len(sample), round(size * share))))
        lines += [msgspec.json.encode(sample[index]) + b"\n" for index in chosen]
    replace_file(out / NAME, b"".join(lines))


def read_sample(directory: Path) -> list[SampledText]:
    """Read the sample of a corpus; empty, if it has none.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / NAME
    if not path.exists():
        return []
    try:
        return msgspec.json.Decoder(SampledText).decode_lines(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"is damaged ({error})", file=path, remedy="remove it") from error
