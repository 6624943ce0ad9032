"""Text to ids and back, whichever kind of vocabulary there is.

In: a tokenizer of the `tokenizers` library and its kind (see load.py for directories). Out: ids equal to those of
`transformers.AutoTokenizer` on the same directory, and directories that it loads. As there, a special token that stands
written out in raw text ("[MASK]", "</s>") becomes its special id. Of two kinds transformers makes other ids: of a
`spiece.model` alone, whose ids are SentencePiece's here, and of a space before a written-out `<mask>`, which is a part
of it here where `vocab.json` and `merges.txt` stand alone, as it is in RoBERTa's own `tokenizer.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, processors

from unmask.tokenizers.kind import Kind, Starts, write_json

Ids = npt.NDArray[np.int32]
Summary = Literal["first", "extract", "last"]
"""Where a model reads a text's vector; see batches/frame.py."""

ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
"""Of the special tokens, as Hugging Face's files call them."""


class Tokenizer:
    """A tokenizer with special tokens for the beginning and the end of texts.

    Args:
        library: the tokenizer of the `tokenizers` library, which must know all of the special tokens unless the kind
            adds them. It is changed: no truncation, no padding, its kind's frame and decoder.
        kind: of its vocabulary.
        special: the names of the special tokens, where they are not the kind's.

    Attributes:
        kind: see `Kind`.
        size: how many pieces the vocabulary has; ids run from 0 to size - 1.
        added: how many of them, the last ones, are special tokens that the vocabulary itself has not.
        pad, unk, cls, sep, mask: the ids of the special tokens.
        special_ids: all five.
        lowercase: whether text is lower-cased.
        isolates_chinese: whether each Chinese character is a word of its own.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        summary: where the model that it serves reads a text's vector, and so how texts are framed (batches/frame.py).
        added_tokens: what is looked for in the text before all else, the special tokens among it.
        mask_token: how the mask is written.
    """

    def __init__(self, library: tokenizers.Tokenizer, kind: Kind, special: Mapping[str, str] | None = None) -> None:
        self._library = library
        self._special = special = {**kind.special, **(special or {})}
        self.kind = kind
        registered = {token.content for token in library.get_added_tokens_decoder().values()}
        library.add_special_tokens(
            [
                # the mask takes the space before it where words have it, as in RoBERTa
                AddedToken(name, special=True, normalized=False, lstrip=bool(kind.before) and role == "mask_token")
                for role, name in special.items()
                if name not in registered
            ]
        )
        vocabulary = library.get_vocab()
        self.pad, self.unk, self.cls, self.sep, self.mask = (vocabulary[special[role]] for role in ROLES)
        self.special_ids = frozenset((self.pad, self.unk, self.cls, self.sep, self.mask))
        self.mask_token = special["mask_token"]
        self.size = library.get_vocab_size()
        self.added = self.size - library.get_vocab_size(with_added_tokens=False)
        normal = library.normalizer
        self.lowercase = normal is not None and "a" in normal.normalize_str("A")
        self.isolates_chinese = normal is not None and " " in normal.normalize_str("中")
        self.ends_twice = kind.ends_twice
        self.summary: Summary = "first"
        self.added_tokens: list[AddedToken] = list(library.get_added_tokens_decoder().values())
        library.no_truncation()
        library.no_padding()
        library.decoder = kind.decoder()
        library.post_processor = self._frame("first", segments=not self.ends_twice)

    def _frame(self, summary: Summary, segments: bool) -> processors.PostProcessor:
        """Return what puts the special tokens around texts in transformers; here it is batches/frame.py that does."""
        cls, sep, mask = (self._special[role] for role in ("cls_token", "sep_token", "mask_token"))
        names = [(cls, self.cls), (sep, self.sep)]
        second = int(segments)
        if summary == "extract":
            single, pair = f"{cls}:0 $A:0 {mask}:0", f"{cls}:0 $A:0 {sep}:0 $B:0 {mask}:0"
            names.append((mask, self.mask))
        elif summary == "last":
            single, pair = f"$A:0 {sep}:0 {cls}:0", f"$A:0 {sep}:0 $B:{second} {sep}:{second} {cls}:{second}"
        else:
            single = f"{cls}:0 $A:0 {sep}:0"
            pair = f"{single} {f'{sep}:0 ' * self.ends_twice}$B:{second} {sep}:{second}"
        template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=names)
        if not self.kind.before:
            return template
        # offsets do not hold the space before a word
        return processors.Sequence([processors.ByteLevel(trim_offsets=True), template])

    @cached_property
    def sha256(self) -> str:
        """The checksum of all that the tokenizer consists of; equal tokenizers have equal ones, wherever they lie."""
        content = json.loads(self._library.to_str())
        del content["truncation"], content["padding"]
        model = content["model"]
        if isinstance(pieces := model["vocab"], list):  # with scores, which the library reads up to rounding
            model["vocab"] = [(piece, round(score, 6)) for piece, score in pieces]
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if name in model:
                model[name] = model[name] or None
        if content["normalizer"] is None:  # then it is the same whether a token is looked for before it or after
            content["added_tokens"] = [{**token, "normalized": False} for token in content["added_tokens"]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def encode(self, text: str) -> Ids:
        """Encode one text, without adding special tokens."""
        return np.array(self._library.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """Encode many texts on all cores, without adding special tokens."""
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def encode_apart(self, words: Sequence[str]) -> list[Ids]:
        """Encode words as they stand within a text, with a space before each where the vocabulary has words so."""
        return self.encode_many([self.kind.before + word for word in words])

    def encode_words(self, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        """Encode many texts; with the ids of each come the numbers of the words that its pieces are of."""
        encodings = self._library.encode_batch(list(texts), add_special_tokens=False)
        return [
            (np.array(encoding.ids, dtype=np.int32), np.array(encoding.word_ids, dtype=np.int32))
            for encoding in encodings
        ]

    def encode_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """Encode one text and say where each piece stands.

        Returns:
            The ids, and for each the place of its first character in the text and of the one after its last.
        """
        encoding = self._library.encode(text, add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int32), encoding.offsets

    def encode_offsets_many(self, texts: Sequence[str]) -> list[tuple[Ids, npt.NDArray[np.int64]]]:
        """Encode many texts on all cores and say where each piece stands; see `encode_offsets`.

        Returns:
            For each text the ids and, (pieces, 2), the places.
        """
        return [
            (np.array(encoding.ids, dtype=np.int32), np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2))
            for encoding in self._library.encode_batch(list(texts), add_special_tokens=False)
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Write ids as text; special tokens are written out."""
        return self._library.decode([int(id) for id in ids], skip_special_tokens=False)

    def piece(self, id: int) -> str:
        """Give the piece as it stands in the vocabulary.

        Raises:
            IndexError: no piece has this id.
        """
        piece = self._library.id_to_token(int(id)) if 0 <= id < self.size else None
        if piece is None:
            raise IndexError(f"no piece has the id {id}; the vocabulary has {self.size}")
        return piece

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Give the pieces as they stand in the vocabulary."""
        return [self.piece(id) for id in ids]

    def begins_word(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Say of each piece of a text whether a word begins with it."""
        return self._word_starts(ids)

    @cached_property
    def _word_starts(self) -> Starts:
        special = {token.content for token in self.added_tokens}
        pieces = [None if piece in special else piece for piece in self.pieces(range(self.size))]
        pieces[self.unk] = ""
        return self.kind.starts(pieces)

    def save(
        self, directory: str | Path, *, length: int = 512, summary: Summary = "first", segments: bool | None = None
    ) -> None:
        """Write a directory that `load_tokenizer` and `transformers.AutoTokenizer` load.

        Args:
            directory: made where it is missing; other files in it stay.
            length: where transformers cuts a text, in tokens.
            summary: where the model that it is for reads a text's vector; see `Frame`.
            segments: whether its model tells the second text of a pair by segment ids; None: as is usual with the kind.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        frame = self._library.post_processor
        usual = not self.ends_twice
        segments = usual if segments is None else segments and summary != "extract"
        self._library.post_processor = self._frame(summary, segments)
        self._library.save(str(directory / "tokenizer.json"))
        self._library.post_processor = frame
        config = self.kind.save(self._library, directory)
        if summary != "first" or segments != usual:
            config = {"tokenizer_class": "PreTrainedTokenizerFast"}  # of the classes only this takes the frame as it is
        inputs = ("input_ids", *(("token_type_ids",) if segments else ()), "attention_mask")
        config["model_input_names"] = list(inputs)
        config |= {"model_max_length": length, **self._special}
        write_json(directory / "tokenizer_config.json", config)
        write_json(directory / "special_tokens_map.json", self._special)
