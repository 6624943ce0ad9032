"""Overlap with test files: documents that contain what a model will be evaluated on are dropped.

In: documents, and the passages of files: lines, cells of tables, texts in JSON, sentences of tagged files. Out: the
documents that share no `ngram` words in a row with any of them; of a passage of fewer words, but at least `shortest`,
all of it counts. Words are compared without case, punctuation and invisible characters such as soft hyphens, and in
Unicode's compatibility form (NFKC), in which ligatures and full-width letters are ordinary ones; in scripts without
spaces, each character is a word, as in rule.py. Brown et al. 2020 (arXiv 2005.14165), appendix C, from which 13 and 8
are; there the passage is cut out of the document, here all of it is dropped.

Words and n-grams are compared by hashes of 64 bits, the same in every process.

`count_seen` tells how many test examples occur in a text: a model that is trained on it has seen what it is tested on.
Texts are compared there by n-grams of eight words, as evaluations of large language models do (Brown et al. 2020,
appendix C, with 13; Touvron et al. 2023, section A.6, with 10); shorter texts by all of their words, if they have five
or more.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict
from unmask.data.labelled.delimited import DelimitedFile
from unmask.data.text.files import decode_line, display_name, pages_of, read_text_lines
from unmask.data.text.pages import read_pages
from unmask.data.text.record_files import has_reader, read_file
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.support.scripts import UNSPACED, mark_class

_INVISIBLE = (
    "\xad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
"""Characters that only tell how others are displayed: soft hyphens, joiners, directions, byte-order marks."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_JSON = (".jsonl", ".ndjson", ".json")
_NUMBERED = re.compile(r"\d+(?:[-.]\d+)?\s+\S")
_MOST_TAGS = 12
"""Maximum number of columns of a tagged file whose sentences have lines of several numbers of columns."""
LONGEST, SHORTEST = 8, 5
"""Number of words of an n-gram, and of the shortest text that is looked for."""
SHARE = 0.8
"""Share of an example's n-grams from which on it has been seen."""


class Overlap(RuleSettings, frozen=True, kw_only=True):
    """The table [overlap].

    Attributes:
        files: the test files.
        ngram: number of words in a row.
        shortest: number of words of the shortest passages that are compared.
    """

    files: tuple[str, ...] = ()
    ngram: int = 13
    shortest: int = 8

    def build(self) -> Judge:
        """See `RuleSettings`."""
        if not 1 <= self.shortest <= self.ngram:
            raise UserError("overlap.shortest must be at least 1 and at most overlap.ngram")
        known = self.index()

        def judge(document: Document) -> Verdict:
            for n, own in all_ngrams(word_hashes(document.text), self.ngram):
                if n not in known:
                    continue
                ngrams, files = known[n]
                places = np.minimum(np.searchsorted(ngrams, own), len(ngrams) - 1)
                if (hits := np.flatnonzero(ngrams[places] == own)).size:
                    return Verdict(document, f"overlap with {self.files[files[places[hits[0]]]]}")
            return Verdict(document)

        return judge

    def index(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return the n-grams of the files by n: hashes in order, and the number of the file of each.

        Raises:
            UserError: a file cannot be read, or has no passage that is long enough.
        """
        found: dict[int, dict[int, int]] = {}
        for number, path in enumerate(self.files):
            is_long = False
            for passage in read_passages(path):
                hashes = word_hashes(passage)
                n = min(self.ngram, len(hashes))
                if n >= self.shortest:
                    is_long = True
                    ngrams = found.setdefault(n, {})
                    *_, (_, last) = all_ngrams(hashes, n)
                    for value in last.tolist():
                        ngrams.setdefault(value, number)
            if not is_long:
                problem = f"has no passage of {self.shortest} words or more, so that no overlap can be found"
                remedy = f"leave it out of {argument('exclude_overlap')}, or set overlap.shortest"
                raise UserError(problem, file=path, remedy=remedy)
        return {n: _sorted(ngrams) for n, ngrams in found.items()}


def _sorted(ngrams: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    hashes = np.fromiter(ngrams, np.uint64, len(ngrams))
    order = np.argsort(hashes)
    return hashes[order], np.fromiter(ngrams.values(), np.int64, len(ngrams))[order]


def split_words(text: str) -> list[str]:
    """Return the words of a text in Unicode's composed form; see the module."""
    return _words().findall(unicodedata.normalize("NFC", text))


def comparable_words(text: str) -> list[str]:
    """Return the words of a text without what people hardly see; see the module."""
    if text.isascii():
        return split_words(text.lower())
    text = unicodedata.normalize("NFKC", text).casefold()
    for character in _INVISIBLE:
        text = text.replace(character, "")
    return split_words(text)


def word_hashes(text: str) -> np.ndarray:
    """Return a hash of each of the comparable words, (words,) uint64."""
    words = comparable_words(text)
    return np.fromiter(map(_word_hash, words), np.uint64, len(words))


@cache
def _words() -> re.Pattern[str]:
    """Return the pattern of a word; `\\w` lacks marks."""
    letters, inside = rf"[^\W_{UNSPACED}]", mark_class()
    return re.compile(rf"[{UNSPACED}](?:{inside})*|{letters}+(?:{inside}+{letters}*)*")


@lru_cache(1 << 17)
def _word_hash(word: str) -> int:
    return zlib.crc32(word.encode("utf8", "surrogatepass"))


def all_ngrams(hashes: np.ndarray, most: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each n up to `most`, and a hash of each n-gram, (words - n + 1,) uint64, given those of the words."""
    ngrams = hashes
    for n in range(1, min(most, len(hashes)) + 1):
        if n > 1:
            ngrams = ngrams[:-1] * _FACTOR + hashes[n - 1 :]
            ngrams ^= ngrams >> np.uint64(31)
        yield n, ngrams


def read_passages(path: str | Path) -> Iterator[str]:
    """Yield the passages of a file.

    Raises:
        UserError: it cannot be read.
    """
    if form := pages_of(path):
        yield from (line for page in read_pages(path, form) for line in page.text.splitlines())
    elif has_reader(path):
        yield from (text for _, record in read_file(path) for text in _texts(record))
    elif any(suffix.lower() in _JSON for suffix in Path(path).suffixes[-2:]):
        yield from _json_texts(path)
    elif ".csv" in map(str.lower, Path(path).suffixes[-2:]):
        file = DelimitedFile(path, "csv", lambda cells: len(cells) > 1, header=False)
        yield from (cell for _, cells in file.rows() for cell in cells)
    else:
        yield from _line_texts([line for _, line in read_text_lines(path)])


def _line_texts(lines: Sequence[str]) -> Iterator[str]:
    """Yield the cells of lines, and paragraphs of several lines.

    Of a tagged file, whose lines are words with tags, each column of each sentence is a passage, too. In CoNLL-U and
    CoNLL-X, a number precedes each word, and comments begin with `#`.
    """
    filled = [line for line in lines if line.strip()]
    is_numbered = all(_NUMBERED.match(line) for line in filled if not line.startswith("#"))
    rows = [line for line in lines if not (is_numbered and line.startswith("#"))]
    longest = max((len(line.split()) for line in rows), default=0)
    for is_filled, group in groupby(rows, key=lambda line: bool(line.strip())) if len(filled) < len(lines) else ():
        sentence = [line.split() for line in group]
        if not is_filled:
            continue
        if is_numbered:
            yield " ".join(_forms(sentence))
            continue
        if len(sentence) > 1:
            yield " ".join(chain.from_iterable(sentence))
        if longest <= _MOST_TAGS or len(set(map(len, sentence))) == 1:
            columns = zip(*sentence, strict=False)  # whichever is that of the words, which are not all numbers
            yield from (" ".join(column) for column in columns if not all(map(str.isdecimal, column)))
    for line in filled:
        yield from line.split("\t")


def _forms(sentence: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the words of a sentence in CoNLL-U as they are written: of `3-4`, not its parts 3 and 4."""
    last = 0
    for cells in sentence:
        first, _, end = cells[0].partition("-")
        if first.isdecimal() and int(first) > last:  # no empty node, such as 5.1
            yield cells[1]
            last = int(end or first)


def _json_texts(path: str | Path) -> Iterator[str]:
    """Yield the texts in a file of JSON Lines, or of a single value in JSON."""
    lines = list(read_text_lines(path))
    try:
        for number, line in lines:
            if line.strip():
                yield from _texts(decode_line(line, display_name(path), number))
    except UserError:
        try:
            yield from _texts(msgspec.json.decode("\n".join(line for _, line in lines)))
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return
        raise


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        singles = sum(isinstance(inner, str) and len(inner.split()) <= 1 for inner in value)
        is_sentence = 2 * singles > len(value) and all(isinstance(inner, str) for inner in value)
        if is_sentence:  # of words, some of which may be spaces or have some
            yield " ".join(value)
        for inner in value:
            if not is_sentence or len(inner.split()) > 1:
                yield from _texts(inner)


def count_seen(documents: Iterable[str], examples: Sequence[Sequence[str]]) -> int:
    """Return the number of examples of which nearly all n-grams are in the documents.

    Args:
        documents: the text, read once.
        examples: the texts of each example, such as a pair; texts that are too short are not looked for.
    """
    owners: dict[tuple[str, ...], list[int]] = defaultdict(list)
    totals: list[int] = []
    for number, texts in enumerate(examples):
        grams = {gram for text in texts for gram in _grams(comparable_words(text))}
        totals.append(len(grams))
        for gram in grams:
            owners[gram].append(number)
    sizes = sorted({len(gram) for gram in owners})
    found: list[int] = [0] * len(totals)
    for document in documents:
        words = comparable_words(document)
        for size in sizes:
            for start in range(len(words) - size + 1):
                if owned := owners.pop(tuple(words[start : start + size]), None):
                    for number in owned:
                        found[number] += 1
    return sum(total > 0 and count >= SHARE * total for count, total in zip(found, totals, strict=True))


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the n-grams of a text: the text itself if it is short, none if it is too short."""
    if len(words) >= SHORTEST:
        size = min(LONGEST, len(words))
        for start in range(len(words) - size + 1):
            yield tuple(words[start : start + size])
