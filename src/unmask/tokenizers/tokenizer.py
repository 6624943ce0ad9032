"""Text to ids and back: BERT's WordPiece, and the byte-level BPE of GPT-2 and RoBERTa.

In: a directory with `tokenizer.json`, a bare `vocab.txt` (WordPiece), or `vocab.json` and `merges.txt` (BPE), as
Hugging Face, Google and OpenAI publish them. Out: ids equal to those of `transformers.AutoTokenizer` on the same
directory, and directories that it loads.

Devlin et al. 2019, section 3; Wu et al. 2016, section 4.1; Radford et al. 2019, section 2.2. As in transformers, a
special token that stands written out in raw text ("[MASK]", "</s>") becomes its special id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from unmask.errors import UserError
from unmask.tokenizers.words import WordStarts

Ids = npt.NDArray[np.int32]

SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""What the special tokens are called in BERT, by their names in Hugging Face's files."""
BPE_SPECIAL_TOKENS = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
"""The same in RoBERTa."""

_BRACKETED = re.compile(r"\[.*\]", re.DOTALL)


class Tokenizer:
    """A tokenizer with special tokens for the beginning and the end of texts.

    Args:
        library: the tokenizer of the `tokenizers` library, which must know all of the special tokens. It is changed:
            no truncation, no padding, its family's template and decoder.
        special: the names of the special tokens, where they are not BERT's.

    Attributes:
        kind: "wordpiece" or "bpe".
        size: how many pieces the vocabulary has; ids run from 0 to size - 1.
        pad, unk, cls, sep, mask: the ids of the special tokens.
        special_ids: all five.
        lowercase: whether text is lower-cased.
        isolates_chinese: whether each Chinese character is a word of its own.
        ends_twice: whether the first text of a pair is followed by two separators, as in RoBERTa.
        extracts: whether it serves a model that reads from left to right, where a task's texts end with the mask's id
            (see batches/frame.py).
        added_tokens: what is looked for in the text before all else, the special tokens among it.
        mask_token: how the mask is written.
    """

    def __init__(self, library: tokenizers.Tokenizer, special: Mapping[str, str] = SPECIAL_TOKENS) -> None:
        self._library = library
        self._special = dict(special)
        self.kind = "wordpiece" if isinstance(library.model, models.WordPiece) else "bpe"
        words = self.kind == "wordpiece"
        registered = {token.content for token in library.get_added_tokens_decoder().values()}
        library.add_special_tokens(
            [
                # RoBERTa's mask takes the space before it, as words have it
                AddedToken(name, special=True, normalized=False, lstrip=not words and role == "mask_token")
                for role, name in special.items()
                if name not in registered
            ]
        )
        vocabulary = library.get_vocab()
        self.pad, self.unk, self.cls, self.sep, self.mask = (vocabulary[special[role]] for role in SPECIAL_TOKENS)
        self.special_ids = frozenset((self.pad, self.unk, self.cls, self.sep, self.mask))
        self.mask_token = special["mask_token"]
        self.size = library.get_vocab_size()
        self.lowercase: bool = words and library.normalizer.lowercase
        self.isolates_chinese: bool = words and library.normalizer.handle_chinese_chars
        self.ends_twice = not words
        self.extracts = False
        self.added_tokens: list[AddedToken] = list(library.get_added_tokens_decoder().values())
        library.no_truncation()
        library.no_padding()
        library.decoder = decoders.WordPiece() if words else decoders.ByteLevel()
        library.post_processor = self._frame(extracts=False)

    def _frame(self, extracts: bool) -> processors.PostProcessor:
        """Return what puts the special tokens around texts in transformers; here it is batches/frame.py that does."""
        words = self.kind == "wordpiece"
        cls, sep, mask = (self._special[role] for role in ("cls_token", "sep_token", "mask_token"))
        names = [(cls, self.cls), (sep, self.sep)]
        if extracts:
            single, pair = f"{cls}:0 $A:0 {mask}:0", f"{cls}:0 $A:0 {sep}:0 $B:0 {mask}:0"
            names.append((mask, self.mask))
        else:
            single = f"{cls}:0 $A:0 {sep}:0"
            pair = f"{single} {sep}:0 $B:0 {sep}:0" if self.ends_twice else f"{single} $B:1 {sep}:1"
        template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=names)
        if words:
            return template
        # offsets do not hold the space before a word
        return processors.Sequence([processors.ByteLevel(trim_offsets=True), template])

    @cached_property
    def sha256(self) -> str:
        """The checksum of all that the tokenizer consists of; equal tokenizers have equal ones, wherever they lie."""
        content = json.loads(self._library.to_str())
        del content["truncation"], content["padding"]
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
        return self.encode_many(words if self.kind == "wordpiece" else [f" {word}" for word in words])

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
    def _word_starts(self) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
        pieces = self.pieces(range(self.size))
        if self.kind == "wordpiece":
            return np.array([not piece.startswith("##") for piece in pieces]).__getitem__
        special = {token.content for token in self.added_tokens}
        return WordStarts(None if piece in special else to_bytes(piece) for piece in pieces)

    def save(self, directory: str | Path, *, length: int = 512, extracts: bool = False) -> None:
        """Write a directory that `load_tokenizer` and `transformers.AutoTokenizer` load.

        Args:
            directory: made where it is missing; other files in it stay.
            length: where transformers cuts a text, in tokens.
            extracts: it is for a model that reads from left to right; see `Frame`.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        frame = self._library.post_processor
        self._library.post_processor = self._frame(extracts)
        self._library.save(str(directory / "tokenizer.json"))
        self._library.post_processor = frame
        if self.kind == "wordpiece":
            lines = "".join(f"{piece}\n" for piece in self.pieces(range(self.size)))
            (directory / "vocab.txt").write_text(lines, encoding="utf-8", newline="\n")
            normalizer = self._library.normalizer
            config = {
                # transformers builds the tokenizer anew from the vocabulary and these settings; of its classes only
                # this one gives segment ids.
                "tokenizer_class": "BertTokenizerFast",
                "do_lower_case": normalizer.lowercase,
                "strip_accents": normalizer.strip_accents,
                "tokenize_chinese_chars": normalizer.handle_chinese_chars,
            }
        else:
            self._library.model.save(str(directory))  # vocab.json and merges.txt
            prefix = self._library.pre_tokenizer.add_prefix_space
            config = {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": prefix, "trim_offsets": True}
        if extracts:
            config = {  # of the classes only this one takes the frame as it is
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_input_names": ["input_ids", "attention_mask"],
            }
        config |= {"model_max_length": length, **self._special}
        _write_json(directory / "tokenizer_config.json", config)
        _write_json(directory / "special_tokens_map.json", self._special)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory.

    Args:
        directory: holds `tokenizer.json`, or else `vocab.txt`, or else `vocab.json` and `merges.txt` (of GPT-2 also
            `encoder.json` and `vocab.bpe`). `tokenizer_config.json` and `special_tokens_map.json` may name other
            special tokens than the family's and settings of the normaliser. Where nothing tells of a `vocab.txt`
            whether it lower-cases, it does unless a piece has an upper-case letter.

    Returns:
        The tokenizer.

    Raises:
        UserError: nothing is there, it is corrupt, or it is no tokenizer of these kinds.
    """
    directory = Path(directory)
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json")
    path = next((path for name in names if (path := directory / name).is_file()), None)
    if path is None:
        raise UserError(
            "holds neither tokenizer.json nor vocab.txt nor vocab.json",
            file=directory,
            remedy="is it the right folder?",
        )
    config = _read_json(directory / "tokenizer_config.json")
    # Like transformers: of the two files that may name the special tokens, the map has the last word.
    special = _special_names(config) | _special_names(_read_json(directory / "special_tokens_map.json"))
    match path.name:
        case "tokenizer.json":
            library = _read_library(path)
        case "vocab.txt":
            library = _read_vocabulary(path, SPECIAL_TOKENS | special)
        case _:
            library = _read_merges(path, config)
    if isinstance(library.model, models.BPE):
        special = BPE_SPECIAL_TOKENS | special
        _check_vocabulary(library.get_vocab(), special, path)
        return Tokenizer(library, special)
    special = SPECIAL_TOKENS | special
    _check_vocabulary(library.get_vocab(), special, path)
    library.model.unk_token = special["unk_token"]
    # As there, the configuration overrules tokenizer.json.
    normalizer = library.normalizer
    normalizer.lowercase = config.get("do_lower_case", normalizer.lowercase)
    normalizer.strip_accents = config.get("strip_accents", normalizer.strip_accents)
    normalizer.handle_chinese_chars = config.get("tokenize_chinese_chars", normalizer.handle_chinese_chars)
    return Tokenizer(library, special)


def read_length(directory: Path) -> int:
    """Return where a directory's tokenizer says that texts are cut, in tokens; 512 where it does not say.

    Raises:
        UserError: its configuration is corrupt.
    """
    length = _read_json(directory / "tokenizer_config.json").get("model_max_length")
    return length if isinstance(length, int) and 2 < length < 1_000_000 else 512


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8", file=path) from error


def _read_json(path: Path) -> dict[str, Any]:
    """Read an optional file that holds a JSON object."""
    if not path.exists():
        return {}
    try:
        content = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no JSON ({error})", file=path) from error
    if not isinstance(content, dict):
        raise UserError("holds no JSON object", file=path)
    return content


def _special_names(content: Mapping[str, Any]) -> dict[str, str]:
    """Take the special tokens' names, which are strings or objects, out of a configuration."""
    names = {}
    for role in SPECIAL_TOKENS:
        name = content.get(role)
        name = name.get("content") if isinstance(name, dict) else name
        if isinstance(name, str):
            names[role] = name
    return names


def _read_library(path: Path) -> tokenizers.Tokenizer:
    text = _read_text(path)
    try:
        library = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the Rust library raises nothing narrower
        raise UserError(f"is no tokenizer ({error})", file=path, remedy="copy it again") from error
    parts = (library.model, library.normalizer, library.pre_tokenizer)
    wordpiece = (models.WordPiece, normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer)
    bpe = (models.BPE, type(None), pre_tokenizers.ByteLevel)
    if not any(all(map(isinstance, parts, kinds)) for kinds in (wordpiece, bpe)):
        raise UserError(
            "is neither a WordPiece tokenizer with BERT's normaliser nor a byte-level BPE, the kinds known here so far",
            file=path,
        )
    return library


def _read_merges(path: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Read the vocabulary and the merges of a byte-level BPE."""
    merges = path.with_name("merges.txt" if path.name == "vocab.json" else "vocab.bpe")
    pairs = []
    for number, line in enumerate(_read_text(merges).removeprefix("\ufeff").splitlines(), start=1):
        if line.startswith("#version") or not line:
            continue
        if len(pair := line.split(" ")) != 2:
            raise UserError("not two pieces with a space between", file=merges, line=number)
        pairs.append((pair[0], pair[1]))
    vocabulary = _read_json(path)
    try:
        library = byte_bpe({str(piece): int(id) for piece, id in vocabulary.items()}, pairs)
    except Exception as error:  # the Rust library raises nothing narrower
        raise UserError(f"does not go with {merges.name} ({error})", file=path) from error
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    return library


def byte_bpe(vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> tokenizers.Tokenizer:
    """Put GPT-2's pre-tokeniser, which cuts words and writes bytes as characters, before a vocabulary."""
    library = tokenizers.Tokenizer(models.BPE(dict(vocabulary), list(merges)))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


def to_bytes(piece: str) -> bytes:
    """Return the bytes that a piece of a byte-level BPE is written for."""
    return bytes(_BYTES.get(character, 0x20) for character in piece)


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character that GPT-2 writes bytes as (encoder.py of openai/gpt-2)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTES = _byte_characters()


def _read_vocabulary(path: Path, special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Read a vocabulary of one piece a line."""
    # No splitlines: pieces may be characters that it takes for line ends.
    pieces = _read_text(path).removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for id, piece in enumerate(pieces):
        if piece in vocabulary:
            raise UserError(f"'{piece}' stands in line {vocabulary[piece] + 1} too", file=path, line=id + 1)
        vocabulary[piece] = id
    ordinary = (piece for piece in pieces if not _BRACKETED.fullmatch(piece) and piece not in special.values())
    return bert_wordpiece(vocabulary, lowercase=all(piece == piece.lower() for piece in ordinary))


def bert_wordpiece(vocabulary: Mapping[str, int], *, lowercase: bool) -> tokenizers.Tokenizer:
    """Put BERT's normaliser and pre-tokeniser before a vocabulary."""
    library = tokenizers.Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk_token"]))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def _check_vocabulary(vocabulary: Mapping[str, int], special: Mapping[str, str], path: Path) -> None:
    if not any(vocabulary):  # a file without lines reads as one empty piece
        raise UserError("the vocabulary is empty", file=path)
    if missing := [name for name in special.values() if name not in vocabulary]:
        raise UserError(f"the vocabulary lacks {', '.join(missing)}", file=path)
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise UserError(f"the ids of the vocabulary are not 0 to {len(vocabulary) - 1}", file=path)
