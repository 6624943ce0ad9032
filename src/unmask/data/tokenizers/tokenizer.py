"""Conversion of text to ids and back, for any kind of vocabulary.

Input: a tokenizer of the `tokenizers` library and its kind (load.py reads directories). Output: the same ids as from
`transformers.AutoTokenizer` for the same directory, and directories that it can load. As in transformers, a special
token in raw text ("[MASK]", "</s>") is converted to its special id. There are two differences from transformers: with
`spiece.model` alone the ids are SentencePiece's; and with `vocab.json` and `merges.txt` alone a space before a `<mask>`
in the text is part of the mask token, as in RoBERTa's own `tokenizer.json`.

A `TokenizerKind` has the properties of a kind of vocabulary, and its files; each kind is a constant in a file of its
own (`bpe.py`, ...).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from unmask.data.text.whole_files import write_json
from unmask.data.tokenizers.counting import count_words
from unmask.support.choices import SummaryKind
from unmask.support.durable import replace_file
from unmask.support.errors import ShareNote

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
SPIECE = ("spiece.model", "30k-clean.model", "spm.model")
"""Names of the SentencePiece model in transformers, in ALBERT's own release, and of DeBERTa."""
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", *SPIECE)
ALL_FILES = (*FILES, "merges.txt", "vocab.bpe", CONFIG, SPECIAL, ADDED)
"""Names of all files that are read."""
Starts = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]
"""Maps the ids of a text to whether a word begins at each."""
Ids = npt.NDArray[np.int32]
GENERAL_CLASS = "PreTrainedTokenizerFast"
"""The class of transformers that takes `tokenizer.json` as it is; all others make normalizer and words anew."""
UNKNOWN = "tokens are unknown to the vocabulary, which reads all of them as the same"
UNKNOWN_SHARE, FEWEST_UNKNOWN = 0.1, 5
"""Share of unknown tokens, and their number, from which on users are told."""
PARTS = "tokens are parts of characters that the vocabulary lacks"
PARTS_SHARE, FEWEST_PARTS = 1 / 3, 50
"""Share of the tokens that are parts of characters, and their number, from which on users are told: more than those of
emoji, and fewer than in Arabic under RoBERTa's vocabulary (0.47)."""
DECOMPOSED = (
    "texts are in decomposed Unicode (NFD), for which the vocabulary needs more tokens, or has none: "
    "compose them (NFC), in Python by unicodedata.normalize('NFC', text)"
)
COMPOSING = 0.02
"""Share of the tokens that composing saves or makes known from which on users are told."""
MOST_COMPOSED = 100
"""Number of texts that are composed to measure it."""
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Roles of the special tokens, named as in Hugging Face's files."""
SPECIAL_TOKENS = dict(zip(ROLES, ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), strict=True))
BPE_SPECIAL_TOKENS = dict(zip(ROLES, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))
"""Names of the special tokens in BERT, and those in RoBERTa, whatever the kind of its vocabulary."""


BLOCK = 1 << 19
"""Number of characters that the library encodes at once, but at least a text: meanwhile, Ctrl-C has no effect."""


def in_blocks(encode: Callable[..., list[tokenizers.Encoding]], texts: Sequence[str]) -> Iterator[tokenizers.Encoding]:
    """Yield what a method of the library makes of each text, without special tokens; see `BLOCK`."""
    start = size = 0
    for stop, text in enumerate(texts, 1):
        size += len(text)
        if size >= BLOCK or stop == len(texts):
            yield from encode(list(texts[start:stop]), add_special_tokens=False)
            start, size = stop, 0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of tokenizer: what is not part of the library's own tokenizer (vocabulary, normalizer, pre-tokenizer).

    Attributes:
        name: "wordpiece", "bpe", "unigram", "word_bpe" or "fallback_bpe".
        special: default names of the special tokens, by role.
        decoder: converts tokens to text.
        starts: takes the tokens in the order of ids, with None for special tokens and "" for the unknown token, and
            returns a function that finds where words begin.
        save: writes the files beside tokenizer.json, and returns the tokenizer class and settings for transformers.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        word_prefix: what precedes a word within a text.
        adds_special_tokens: whether special tokens that the vocabulary lacks are appended to it; otherwise such a
            vocabulary is an error.
        has_bytes: whether tokens may be bytes, of which characters without a token consist.
    """

    name: str
    special: Mapping[str, str]
    decoder: decoders.Decoder = field(compare=False)  # the library does not compare them
    starts: Callable[[Sequence[str | None]], Starts]
    save: Callable[[tokenizers.Tokenizer, Path], dict[str, Any]]
    ends_twice: bool = False
    word_prefix: str = ""
    adds_special_tokens: bool = False
    has_bytes: bool = False


def write_vocabulary(library: tokenizers.Tokenizer, directory: Path) -> None:
    """Write vocab.txt, one token per line in the order of their ids."""
    tokens = sorted(library.get_vocab().items(), key=lambda item: item[1])
    replace_file(directory / "vocab.txt", "".join(f"{token}\n" for token, _ in tokens).encode())


def write_no_vocabulary(library: tokenizers.Tokenizer, directory: Path) -> dict[str, Any]:
    """Return the settings of a tokenizer that is tokenizer.json alone: other files lack its normalizer or tokens."""
    return {"tokenizer_class": GENERAL_CLASS}


def write_model(library: tokenizers.Tokenizer, directory: Path) -> None:
    """Write the files of the library's model, vocab.json and merges.txt.

    Raises:
        OSError: they cannot be written; the library raises an `Exception` of its own.
    """
    try:
        library.model.save(str(directory))
    except Exception as error:
        code = re.search(r"os error (\d+)", str(error))
        if not code:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(directory)) from error


@dataclass(frozen=True)
class Framing:
    """What transformers puts around a text, shown on a short one.

    Attributes:
        text: ids of the text, without special tokens.
        single, pair: ids of it, and of a pair of it with itself, with special tokens.
        segments: whether it marks the second text of a pair by segment ids.
    """

    text: Sequence[int]
    single: Sequence[int]
    pair: Sequence[int]
    segments: bool


class Tokenizer:
    """A tokenizer with special tokens for the beginning and the end of texts.

    Args:
        library: the tokenizer of the `tokenizers` library. Its vocabulary must contain all special tokens, unless the
            kind adds them. It is modified: truncation and padding are disabled, and the post-processor and decoder of
            its kind are set.
        kind: the kind of the vocabulary.
        special: names of special tokens that differ from the kind's default, by role.

    Attributes:
        kind: see `Kind`.
        size: size of the vocabulary, including added tokens; ids run from 0 to size - 1.
        added: number of added tokens, which have the last ids: special tokens missing from the vocabulary itself.
        pad, unk, cls, sep, mask: ids of the special tokens.
        special_ids: all five of them.
        lowercase: whether text is lower-cased.
        isolates_chinese: whether each Chinese character is a separate word.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        summary: the position from which the model takes the vector of a text, which determines where special tokens are
            added (data/batches/frame.py).
        added_tokens: tokens that are matched in the text before it is split, including the special tokens.
        mask_token: the mask token as a string.
        segments: whether the second text of a pair is marked by segment ids, for models that have them.
        framing: what transformers puts around texts, if the tokenizer is that of a directory which it reads.
    """

    def __init__(self, library: tokenizers.Tokenizer, kind: Kind, special: Mapping[str, str] | None = None) -> None:
        self._library = library
        self._special = special = {**kind.special, **(special or {})}
        self.kind = kind
        registered = {token.content for token in library.get_added_tokens_decoder().values()}
        library.add_special_tokens(
            [
                # the mask includes the space before it if words do, as in RoBERTa
                AddedToken(name, special=True, normalized=False, lstrip=bool(kind.word_prefix) and role == "mask_token")
                for role, name in special.items()
                if name not in registered
            ]
        )
        roles = (cast(int, library.token_to_id(special[role])) for role in ROLES)
        self.pad, self.unk, self.cls, self.sep, self.mask = roles
        self.special_ids = frozenset((self.pad, self.unk, self.cls, self.sep, self.mask))
        self.mask_token = special["mask_token"]
        self.size = library.get_vocab_size()
        self.added = self.size - library.get_vocab_size(with_added_tokens=False)
        self.lowercase = "a" in self.normalize("A")
        self.isolates_chinese = " " in self.normalize("中")
        self.ends_twice = kind.ends_twice
        self.summary: SummaryKind = "first"
        self.segments = True
        self.framing: Framing | None = None
        self.added_tokens: list[AddedToken] = list(library.get_added_tokens_decoder().values())
        library.no_truncation()
        library.no_padding()
        library.decoder = kind.decoder
        library.post_processor = self._frame("first", segments=not self.ends_twice)

    def _frame(self, summary: SummaryKind, segments: bool) -> processors.PostProcessor:
        """Return the post-processor that adds special tokens in transformers; in unmask, batches/frame.py adds them."""
        cls, sep, mask = (self._special[role] for role in ("cls_token", "sep_token", "mask_token"))
        names = [(cls, self.cls), (sep, self.sep)]
        second = int(segments)
        if summary == "extract":
            single, pair = f"{cls}:0 $A:0 {mask}:0", f"{cls}:0 $A:0 {sep}:0 $B:0 {mask}:0"
            names.append((mask, self.mask))
        elif summary == "last":
            end = f"{cls}:{2 * second}"
            single, pair = f"$A:0 {sep}:0 {end}", f"$A:0 {sep}:0 $B:{second} {sep}:{second} {end}"
        else:
            single = f"{cls}:0 $A:0 {sep}:0"
            pair = f"{single} {f'{sep}:0 ' * self.ends_twice}$B:{second} {sep}:{second}"
        template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=names)
        words = self._library.pre_tokenizer
        if not isinstance(words, pre_tokenizers.ByteLevel):
            return template
        # offsets exclude the space before a word
        spaces = processors.ByteLevel(add_prefix_space=words.add_prefix_space, trim_offsets=True)
        return processors.Sequence([spaces, template])

    @property
    def definition(self) -> dict[str, Any]:
        """All that defines the tokenizer, as the library writes it; the same for equal tokenizers in any directory."""
        content = json.loads(self._library.to_str())
        del content["truncation"], content["padding"]
        model = content["model"]
        if isinstance(tokens := model["vocab"], list):  # with scores, which the library reads with rounding errors
            model["vocab"] = [(token, round(score, 6)) for token, score in tokens]
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if name in model:
                model[name] = model[name] or None
        if (processor := content["post_processor"])["type"] == "Sequence":  # its spaces concern offsets, not ids
            processor["processors"][0]["add_prefix_space"] = True
        if content["normalizer"] is None:  # then it makes no difference whether tokens are matched in normalized text
            content["added_tokens"] = [{**token, "normalized": False} for token in content["added_tokens"]]
        return content

    @cached_property
    def sha256(self) -> str:
        """The checksum of `definition`."""
        return hashlib.sha256(json.dumps(self.definition, sort_keys=True).encode()).hexdigest()

    def with_model(self, model: Mapping[str, Any]) -> Tokenizer:
        """Return the same tokenizer with another vocabulary.

        Args:
            model: the library's model with its vocabulary, as in `definition`.
        """
        content = {**json.loads(self._library.to_str()), "model": model}
        new = type(self)(tokenizers.Tokenizer.from_str(json.dumps(content)), self.kind, self._special)
        return new.framed_as(self)

    def with_tokens(self, tokens: Sequence[str]) -> Tokenizer:
        """Return the same tokenizer with further special tokens, which get the next ids."""
        library = tokenizers.Tokenizer.from_str(self._library.to_str())
        library.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
        return type(self)(library, self.kind, self._special).framed_as(self)

    def framed_as(self, other: Tokenizer) -> Tokenizer:
        """Return the same tokenizer, with special tokens and segment ids where another one has them."""
        new = copy(self)
        new.summary, new.segments = other.summary, other.segments
        new.ends_twice, new.framing = other.ends_twice, other.framing
        return new

    @property
    def closed(self) -> Tokenizer:
        """The same tokenizer, all of whose ids are below `size`, as a corpus needs them."""
        return self

    def spell(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what models read of tokens: their ids, (tokens,), or the characters of words, (tokens, any number)."""
        return ids

    def notes(self, encoded: Iterable[Ids], texts: Iterable[str] = ()) -> list[str]:
        """Return sentences on what models do not read of texts, or read badly; none if they read nearly everything.

        Args:
            encoded: the ids of the texts, or of their words.
            texts: the texts.
        """
        ids = np.concatenate([np.zeros(0, np.int32), *encoded])
        unknown, parts = (int(each.sum()) for each in (ids == self.unk, self.parts_of_characters[ids]))
        return [*_unread(len(ids), unknown, parts), *self.decomposition_note(texts)]

    def count_notes(self, counts: npt.NDArray[np.int64]) -> list[str]:
        """Return sentences on unknown tokens and parts of characters; none if they are few.

        Args:
            counts: how often each token occurs, (size,).
        """
        return _unread(int(counts.sum()), int(counts[self.unk]), int(counts[self.parts_of_characters].sum()))

    def decomposition_note(self, texts: Iterable[str]) -> list[str]:
        """Return a sentence on texts that this vocabulary reads worse for their decomposed characters (NFD); see
        `COMPOSING`.
        """
        texts = list(texts)
        decomposed = [text for text in texts if not unicodedata.is_normalized("NFC", text)]
        if not decomposed:
            return []
        some = decomposed[:: -(-len(decomposed) // MOST_COMPOSED)]
        before, after = (
            np.concatenate(self.encode_many(each))
            for each in (some, [unicodedata.normalize("NFC", text) for text in some])
        )
        known = int((before == self.unk).sum() - (after == self.unk).sum())
        gain = max(len(before) - len(after), known) if known >= 0 else 0
        return [ShareNote(len(decomposed), len(texts), DECOMPOSED)] if gain > COMPOSING * len(before) else []

    @cached_property
    def parts_of_characters(self) -> npt.NDArray[np.bool_]:
        """Which tokens are parts of characters, as those of bytes are, (size,)."""
        if not self.kind.has_bytes:
            return np.zeros(self.size, bool)
        decoded = self._library.decode_batch([[id] for id in range(self.size)], skip_special_tokens=False)
        return np.array(["\ufffd" in text for text in decoded])

    def normalize(self, text: str) -> str:
        """Return what is left of a text before it is split into tokens: for example without case and accents."""
        normalizer = self._library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def count_words(self, texts: Iterable[str], *, progress: bool = False) -> dict[str, int]:
        """Count the words of texts, normalized and split as in encoding, which `split_word` takes."""
        library = tokenizers.Tokenizer(models.WordPiece())
        if self._library.normalizer is not None:
            library.normalizer = self._library.normalizer
        library.pre_tokenizer = self._library.pre_tokenizer
        return count_words(library, texts, progress=progress)

    def split_word(self, word: str) -> list[str]:
        """Return the tokens of a word that `count_words` returned."""
        return [token.value for token in self._library.model.tokenize(word)]

    def encode(self, text: str) -> Ids:
        """Encode a text, without adding special tokens."""
        return self._ids(self._library.encode(text, add_special_tokens=False), text)

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """Encode several texts on all cores, without adding special tokens."""
        if len(texts) == 1:  # waking the library's threads would take longer
            return [self.encode(texts[0])]
        encodings = in_blocks(self._library.encode_batch_fast, texts)
        return [self._ids(encoding, text) for encoding, text in zip(encodings, texts, strict=True)]

    def encode_separately(self, words: Sequence[str]) -> list[Ids]:
        """Encode words separately, each as within a text: with a leading space if tokens include it."""
        return self.encode_many([self.kind.word_prefix + word for word in words])

    def encode_words(self, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        """Encode several texts; return the ids of each, and for each id the index of its word in the text."""
        encodings = in_blocks(self._library.encode_batch, texts)
        return [
            (self._ids(encoding, text), np.array(encoding.word_ids, dtype=np.int32))
            for encoding, text in zip(encodings, texts, strict=True)
        ]

    def encode_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """Encode a text with the offsets of its tokens.

        Returns:
            The ids, and for each the start and end (exclusive) of its token in the text, in characters.
        """
        encoding = self._library.encode(text, add_special_tokens=False)
        return self._ids(encoding, text), encoding.offsets

    def encode_offsets_many(self, texts: Sequence[str]) -> list[tuple[Ids, npt.NDArray[np.int64]]]:
        """Encode several texts on all cores with the offsets of their tokens; see `encode_offsets`.

        Returns:
            For each text the ids and the offsets, (tokens, 2).
        """
        encodings = in_blocks(self._library.encode_batch, texts)
        return [
            (self._ids(encoding, text), np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2))
            for encoding, text in zip(encodings, texts, strict=True)
        ]

    def _ids(self, encoding: tokenizers.Encoding, text: str) -> Ids:
        """Return the ids of a text that the library encoded."""
        return np.array(encoding.ids, dtype=np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Convert ids to text, including special tokens."""
        return self._library.decode([int(id) for id in ids], skip_special_tokens=False)

    def token(self, id: int) -> str:
        """Return the token with an id, as it is written in the vocabulary.

        Raises:
            IndexError: no token has this id.
        """
        token = self._library.id_to_token(int(id)) if 0 <= id < self.size else None
        if token is None:
            raise IndexError(f"no token has the id {id}; the vocabulary has {self.size} tokens")
        return token

    def find(self, token: str) -> int | None:
        """Return the id of a token, as it is written in the vocabulary; None: it is not there."""
        return self._library.token_to_id(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens with these ids, as they are written in the vocabulary."""
        return [self.token(id) for id in ids]

    def begins_word(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return for each token of a text whether a word begins with it."""
        return self._word_starts(ids)

    @cached_property
    def _word_starts(self) -> Starts:
        special = {token.content for token in self.added_tokens}
        tokens = [None if token in special else token for token in self.tokens(range(self.size))]
        tokens[self.unk] = ""
        return self.kind.starts(tokens)

    def save(
        self,
        directory: str | Path,
        *,
        length: int = 512,
        summary: SummaryKind = "first",
        segments: bool | None = None,
        pads_end: bool = False,
    ) -> None:
        """Write a directory that `load_tokenizer` and `transformers.AutoTokenizer` can load.

        Args:
            directory: created if it does not exist; other files in it are kept.
            length: the length to which transformers truncates a text, in tokens.
            summary: the position from which the model takes the vector of a text; see `Frame`.
            segments: whether the model marks the second text of a pair by segment ids; None: the default of the kind.
            pads_end: whether transformers pads texts at their end, also where that moves the vector of a text.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        frame = self._library.post_processor
        usual = not self.ends_twice
        segments = usual if segments is None else segments and self.segments and summary != "extract"
        self._library.post_processor = self._frame(summary, segments)
        replace_file(directory / "tokenizer.json", self._library.to_str(pretty=True).encode())
        self._library.post_processor = frame
        config = self.kind.save(self._library, directory)
        if summary != "first" or segments != usual or self.ends_twice != self.kind.ends_twice:
            config = {"tokenizer_class": GENERAL_CLASS}  # the only class that keeps the post-processor
        if summary == "last" and not pads_end:  # where transformers reads the vector of a text, in a padded batch too
            config["padding_side"] = "left"
        inputs = ("input_ids", *(("token_type_ids",) if segments else ()), "attention_mask")
        config["model_input_names"] = list(inputs)
        config |= {"model_max_length": length, **self._special}
        write_json(directory / "tokenizer_config.json", config)
        write_json(directory / "special_tokens_map.json", self._special)


def _unread(total: int, unknown: int, parts: int) -> list[str]:
    """Return sentences on the unknown tokens and the parts of characters among all tokens; none if they are few."""
    notes: list[str] = []
    if unknown >= max(FEWEST_UNKNOWN, UNKNOWN_SHARE * total):
        notes.append(ShareNote(unknown, total, UNKNOWN))
    if parts >= max(FEWEST_PARTS, PARTS_SHARE * total):
        notes.append(ShareNote(parts, total, PARTS))
    return notes
