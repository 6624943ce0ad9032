"""Vocabularies of whole words, for models that read characters (ELMo): a word that it lacks is not unknown.

Input: the words of a text, by frequency. Output: a tokenizer whose tokens are words, and the characters of each. Words
that the vocabulary lacks get ids of their own beyond its size, which only this tokenizer knows: what a model reads is
the characters, and ids merely stand for them. Corpora store only ids of the vocabulary.

Text is split at spaces and punctuation, and case is kept. Published ELMo models were trained on text in which words
were split as in the Penn Treebank ("do n't"); text that is split so already remains so, except for "'" itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import Encoding, decoders, models, pre_tokenizers

from unmask.data.tokenizers.counting import count_words, no_text
from unmask.data.tokenizers.tokenizer import (
    GENERAL_CLASS,
    ROLES,
    Ids,
    Kind,
    Starts,
    Tokenizer,
    in_blocks,
    write_vocabulary,
)
from unmask.data.tokenizers.words import BEGIN_SENTENCE, END_SENTENCE, LONGEST, Spelling, is_cut, spell
from unmask.support.errors import ShareNote, UserError, counted
from unmask.support.scripts import IDEOGRAPHS, KANA, UNSPACED

SPECIAL_TOKENS = dict(zip(ROLES, ("<PAD>", "<UNK>", "<S>", "</S>", "<MASK>"), strict=True))
"""Names of the special tokens."""
BILM_TOKENS = {"<S>", "</S>", "<UNK>"}
"""Those that every vocabulary of bilm-tf has."""
FIRST = ("<S>", "</S>", "<PAD>", "<MASK>")
UNKNOWN = "<UNK>"
"""The first tokens of a trained vocabulary, and its last: unknown words are the rarest."""
OPENING = Lock()
"""Held while a word gets an id: a server tokenizes in several threads."""
MAX_OTHERS = 1 << 20
"""Maximum number of words beyond the vocabulary that are known at a time; a new one then replaces the oldest."""
CLAUSES = (
    "words in scripts without spaces are whole clauses, which are read as words: "
    "write spaces between their words, as a segmenter of the language does"
)
CLAUSES_SHARE = 0.1
"""Share of words in these scripts that are clauses from which on users are told."""
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_CLAUSE = re.compile(f"[{UNSPACED}]{{9,}}|[{KANA}{IDEOGRAPHS}]{{6,}}")
"""Letters in a row that are rarely one word; those of Thai and the like include vowels."""


def _starts(tokens: Sequence[str | None]) -> Starts:
    return np.ones(len(tokens), bool).__getitem__


def _save(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    write_vocabulary(library, directory)
    return {"tokenizer_class": GENERAL_CLASS}


WORDS = Kind(
    name="words",
    special=SPECIAL_TOKENS,
    decoder=decoders.WordPiece(prefix="\0", cleanup=False),  # joins words by spaces
    starts=_starts,
    save=_save,
    adds_special_tokens=True,
)


class WordTokenizer(Tokenizer):
    """A tokenizer of the kind `WORDS`; see the module.

    Args:
        library: the tokenizer of the `tokenizers` library.
        kind: `WORDS`.
        special: names of special tokens that differ from the kind's default, by role.
    """

    def __init__(self, library: tokenizers.Tokenizer, kind: Kind, special: Mapping[str, str] | None = None) -> None:
        super().__init__(library, kind, special)
        self._others: dict[str, int] = {}
        self._names: list[str] = []
        self._spelled = np.zeros((0, LONGEST), np.int16)  # of the vocabulary
        self._is_spelled = np.zeros(0, bool)

    @property
    def closed(self) -> Tokenizer:
        """See `Tokenizer`."""
        return Tokenizer(self._library, self.kind, self._special)

    def notes(self, encoded: Iterable[Ids], texts: Iterable[str] = ()) -> list[str]:
        """See `Tokenizer`: the number of words with more bytes than are read."""
        ids, counts = np.unique(np.concatenate([np.zeros(0, np.int32), *encoded]), return_counts=True)
        cut = sum(count for id, count in zip(ids, counts.tolist(), strict=True) if is_cut(self.token(id)))
        notes = [f"{counted(cut, 'word')} longer than {LONGEST - 2} bytes, of which no more are read"] if cut else []
        return [*notes, *self._describe_clauses(ids, counts)]

    def count_notes(self, counts: npt.NDArray[np.int64]) -> list[str]:
        """See `Tokenizer`: clauses alone, as the characters of unknown words are read."""
        ids = np.flatnonzero(counts)
        return self._describe_clauses(ids, counts[ids])

    def _describe_clauses(self, ids: npt.NDArray[Any], counts: npt.NDArray[Any]) -> list[str]:
        """Return a sentence on clauses that are read as words, given distinct tokens and how often each occurs."""
        words = [(self.token(id), count) for id, count in zip(ids.tolist(), counts.tolist(), strict=True)]
        unspaced = [(word, count) for word, count in words if _UNSPACED_LETTER.search(word)]
        total = sum(count for _, count in unspaced)
        clauses = sum(count for word, count in unspaced if _CLAUSE.search(word))
        return [ShareNote(clauses, total, CLAUSES)] if 0 < clauses >= CLAUSES_SHARE * total else []

    def encode_separately(self, words: Sequence[str]) -> list[Ids]:
        """See `Tokenizer`; each word is one token, whatever its characters."""
        known = self._library.token_to_id
        return [np.array([self._open(word) if (id := known(word)) is None else id], np.int32) for word in words]

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """See `Tokenizer`."""
        encodings = in_blocks(self._library.encode_batch, texts)
        return [self._ids(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]

    def decode(self, ids: Iterable[int]) -> str:
        """See `Tokenizer`."""
        return " ".join(self.tokens(ids))

    def token(self, id: int) -> str:
        """See `Tokenizer`."""
        other = int(id) - self.size
        return self._names[other] if 0 <= other < len(self._names) else super().token(id)

    def spell(self, ids: npt.NDArray[Any]) -> Spelling:
        """See `Tokenizer`: the characters, (tokens, `LONGEST`)."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        if not len(self._spelled):
            self._spelled = np.zeros((self.size, LONGEST), np.int16)
            self._is_spelled = np.zeros(self.size, bool)
        known = distinct[distinct < self.size]
        for id in known[~self._is_spelled[known]].tolist():
            self._spelled[id], self._is_spelled[id] = self._spell(id), True
        others = [self._spell(id) for id in distinct[len(known) :].tolist()]
        return np.concatenate([self._spelled[known], *(row[None] for row in others)])[inverse]

    def _spell(self, id: int) -> Spelling:
        marks = {self.cls: BEGIN_SENTENCE, self.sep: END_SENTENCE}
        return spell([marks[id]] if id in marks else self.token(id).encode())

    def _ids(self, encoding: Encoding, text: str) -> Ids:
        """See `Tokenizer`: a word that is unknown gets an id of its own."""
        ids = super()._ids(encoding, text)
        for index in np.flatnonzero(ids == self.unk).tolist():
            start, stop = encoding.offsets[index]
            if (word := text[start:stop]) != self._special["unk_token"]:
                ids[index] = self._open(word)
        return ids

    def _open(self, word: str) -> int:
        """Return the id of a word that is not in the vocabulary; of a long one, what is read of it is kept."""
        word = word[:LONGEST]
        with OPENING:
            if (id := self._others.get(word)) is not None:
                return id
            if len(self._names) < MAX_OTHERS:
                self._names.append(word)
                number = len(self._names) - 1
            else:
                oldest = next(iter(self._others))
                number = self._others.pop(oldest) - self.size
                self._names[number] = word
            self._others[word] = self.size + number
            return self.size + number


def word_level(vocabulary: Mapping[str, int]) -> tokenizers.Tokenizer:
    """Return a tokenizer of the library whose tokens are these words."""
    library = tokenizers.Tokenizer(models.WordLevel(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk_token"]))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def without_words() -> WordTokenizer:
    """Return a vocabulary of special tokens alone, for a model that comes without one: every word is beyond it."""
    return WordTokenizer(word_level({word: id for id, word in enumerate((*FIRST, UNKNOWN))}), WORDS)


def train_words(texts: Iterable[str], *, size: int, progress: bool = False) -> WordTokenizer:
    """Return the vocabulary of the words of texts, the most frequent first.

    Args:
        texts: the texts, which are iterated over once; only the counts of their words are kept in memory.
        size: maximum size of the vocabulary; rarer words are unknown in a corpus.
        progress: whether to show a progress bar on standard error.

    Raises:
        UserError: there is no text, or `size` is too small for a word.
    """
    library = tokenizers.Tokenizer(models.WordPiece())
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = count_words(library, texts, progress=progress)
    if not counts:
        raise no_text()
    if (most := size - len(FIRST) - 1) < 1:
        raise UserError(f"a vocabulary of {size} is too small", remedy=f"it needs at least {len(FIRST) + 2} tokens")
    ranked = sorted(counts.keys() - {*FIRST, UNKNOWN}, key=lambda word: (-counts[word], word))
    vocabulary = {word: id for id, word in enumerate([*FIRST, *ranked[:most], UNKNOWN])}
    return WordTokenizer(word_level(vocabulary), WORDS)
