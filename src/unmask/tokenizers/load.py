"""Which kind of tokenizer lies in a directory, and how it is read.

In: a directory as Hugging Face, Google or OpenAI publish them. Out: a `Tokenizer`. As in transformers,
`tokenizer_config.json` overrules `tokenizer.json`, and of the two files that may name the special tokens,
`special_tokens_map.json` has the last word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from unmask.errors import UserError
from unmask.tokenizers.bpe import BPE, byte_bpe
from unmask.tokenizers.kind import Kind, read_json, read_text
from unmask.tokenizers.spiece import read_spiece
from unmask.tokenizers.tokenizer import ROLES, Tokenizer
from unmask.tokenizers.unigram import UNIGRAM, albert_unigram
from unmask.tokenizers.word_bpe import END, WORD_BPE, word_bpe
from unmask.tokenizers.wordpiece import PREFIX, SPECIAL_TOKENS, WORDPIECE, read_vocabulary

SPIECE = ("spiece.model", "30k-clean.model")
"""SentencePiece's model, as transformers and as ALBERT's own release call it."""
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "encoder.json", *SPIECE)
SAMPLE = "A ½ ﬁ é 中 ي"
"""Is normalised to see whether a table of characters is damaged."""
END_OF_TEXT = "<|endoftext|>"
"""What GPT-2's vocabulary has in place of all special tokens; it serves as the unknown one there."""


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory.

    Args:
        directory: holds `tokenizer.json`, or else `vocab.txt`, or else `vocab.json` and `merges.txt` (of GPT-2 also
            `encoder.json` and `vocab.bpe`), or else `spiece.model` (`30k-clean.model`). `tokenizer_config.json` and
            `special_tokens_map.json` may name other special tokens than the family's and settings of the normaliser.
            Where nothing tells of a `vocab.txt` whether it lower-cases, it does unless a piece has a capital letter.

    Returns:
        The tokenizer.

    Raises:
        UserError: nothing is there, it is corrupt, or it is no tokenizer of these kinds.
    """
    directory = Path(directory)
    path = next((path for name in FILES if (path := directory / name).is_file()), None)
    if path is None:
        raise UserError(
            f"holds none of {', '.join(FILES)}",
            file=directory,
            remedy="is it the right folder?",
        )
    config = read_json(directory / "tokenizer_config.json")
    special = _special_names(config) | _special_names(read_json(directory / "special_tokens_map.json"))
    match path.name:
        case "tokenizer.json":
            library = _read_library(path)
        case "vocab.txt":
            library = read_vocabulary(path, SPECIAL_TOKENS | special)
        case name if name in SPIECE:
            library = _read_spiece(path, config)
        case _:
            library = _read_merges(path, config, special)
    kind = _kind(library, path)
    if kind is UNIGRAM and json.loads(library.to_str())["model"]["unk_id"] is None:
        raise UserError("says not which piece stands for what the others cannot write (unk_id)", file=path)
    if kind.grows and special.get("unk_token", kind.special["unk_token"]) not in (pieces := library.get_vocab()):
        special |= {"unk_token": END_OF_TEXT} if END_OF_TEXT in pieces else {}
    _check_vocabulary(library.get_vocab(), {**kind.special, **special}, path, grows=kind.grows)
    if kind is WORDPIECE:
        library.model.unk_token = special.get("unk_token", SPECIAL_TOKENS["unk_token"])
        normalizer = library.normalizer
        try:
            normalizer.lowercase = config.get("do_lower_case", normalizer.lowercase)
            normalizer.strip_accents = config.get("strip_accents", normalizer.strip_accents)
            normalizer.handle_chinese_chars = config.get("tokenize_chinese_chars", normalizer.handle_chinese_chars)
        except TypeError as error:
            raise UserError(
                "do_lower_case, strip_accents and tokenize_chinese_chars are true or false",
                file=directory / "tokenizer_config.json",
            ) from error
    return Tokenizer(library, kind, special)


def read_length(directory: Path) -> int:
    """Return where a directory's tokenizer says that texts are cut, in tokens; 512 where it does not say.

    Raises:
        UserError: its configuration is corrupt.
    """
    length = read_json(directory / "tokenizer_config.json").get("model_max_length")
    return length if isinstance(length, int) and 2 < length < 1_000_000 else 512


def _special_names(content: Mapping[str, Any]) -> dict[str, str]:
    """Take the special tokens' names, which are strings or objects, out of a configuration."""
    names = {}
    for role in ROLES:
        name = content.get(role)
        name = name.get("content") if isinstance(name, dict) else name
        if isinstance(name, str) and name:
            names[role] = name
    return names


def _read_library(path: Path) -> tokenizers.Tokenizer:
    text = read_text(path)
    with _damaged(path, "tokenizer"):
        library = tokenizers.Tokenizer.from_str(text)
        if library.normalizer is not None:
            library.normalizer.normalize_str(SAMPLE)
    return library


@contextmanager
def _damaged(path: Path, what: str) -> Iterator[None]:
    """Turn whatever the Rust library raises, its panics among it, which are no Exception, into a clear error."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UserError(f"is no {what} ({error})", file=path, remedy="copy it again") from error


def _kind(library: tokenizers.Tokenizer, path: Path) -> Kind:
    """Return the kind by what a tokenizer consists of."""
    model, normalizer, words = library.model, library.normalizer, library.pre_tokenizer
    bert = isinstance(normalizer, normalizers.BertNormalizer) and isinstance(words, pre_tokenizers.BertPreTokenizer)
    if isinstance(model, models.WordPiece) and bert:
        if model.continuing_subword_prefix != PREFIX:
            raise UserError(
                f"goes on with words by '{model.continuing_subword_prefix}', which BERT's tokenizers call '{PREFIX}'",
                file=path,
                remedy="rename the pieces",
            )
        return WORDPIECE
    if isinstance(model, models.BPE) and bert and model.end_of_word_suffix == END:
        return WORD_BPE
    if isinstance(model, models.BPE) and normalizer is None and isinstance(words, pre_tokenizers.ByteLevel):
        return BPE
    if isinstance(model, models.Unigram) and _cuts_at_spaces(library):
        return UNIGRAM
    raise UserError(
        "is neither a WordPiece tokenizer with BERT's normaliser, nor a byte-level BPE, nor GPT's BPE, nor a unigram "
        "model of SentencePiece's, the kinds known here",
        file=path,
    )


def _cuts_at_spaces(library: tokenizers.Tokenizer) -> bool:
    """Say whether words are what stands between spaces, as SentencePiece's pieces have them."""
    words = json.loads(library.to_str())["pre_tokenizer"] or {}
    kinds = [part["type"] for part in words.get("pretokenizers", [words]) if "type" in part]
    return kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"])


def _read_merges(path: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Read the vocabulary and the merges of a BPE, byte-level or GPT's."""
    merges = path.with_name("merges.txt" if path.name == "vocab.json" else "vocab.bpe")
    pairs = []
    for number, line in enumerate(read_text(merges).removeprefix("\ufeff").splitlines(), start=1):
        if line.startswith("#version") or not line:
            continue
        if len(pair := line.split(" ")) != 2:
            raise UserError("not two pieces with a space between", file=merges, line=number)
        pairs.append((pair[0], pair[1]))
    vocabulary = read_json(path)
    try:
        pieces = {str(piece): int(id) for piece, id in vocabulary.items()}
        if any(second.endswith(END) for _, second in pairs):
            return word_bpe(pieces, pairs, special.get("unk_token", WORD_BPE.special["unk_token"]))
        return byte_bpe(pieces, pairs, prefix=bool(config.get("add_prefix_space")))
    except Exception as error:  # the Rust library raises nothing narrower
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"does not go with {merges.name} ({said})", file=path) from error


def _read_spiece(path: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Read a model of SentencePiece's; as in transformers, case and accents go unless it is said that they stay."""
    model = read_spiece(path)
    with _damaged(path, "model of SentencePiece"):
        library = albert_unigram(
            model.pieces,
            model.unknown,
            model.charsmap,
            lowercase=bool(config.get("do_lower_case", True)),
            accents=bool(config.get("keep_accents", False)),
        )
        library.normalizer.normalize_str(SAMPLE)
    return library


def _check_vocabulary(vocabulary: Mapping[str, int], special: Mapping[str, str], path: Path, *, grows: bool) -> None:
    if not any(vocabulary):  # a file without lines reads as one empty piece
        raise UserError("the vocabulary is empty", file=path)
    missing = [name for name in special.values() if name not in vocabulary]
    if missing and not grows:
        raise UserError(f"the vocabulary lacks {', '.join(missing)}", file=path)
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise UserError(f"the ids of the vocabulary are not 0 to {len(vocabulary) - 1}", file=path)
