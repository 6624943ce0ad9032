"""Loading of a tokenizer of any kind from a directory.

Input: a directory in the layout of Hugging Face, Google or OpenAI. Output: a `Tokenizer`. The files beside the
vocabulary are read as transformers reads them (published.py): the class of the tokenizer decides whether
`tokenizer_config.json` takes precedence over `tokenizer.json`, and `special_tokens_map.json` takes precedence over both
for the names of the special tokens, unless `tokenizer_config.json` lists the added tokens.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from unmask.data.text.whole_files import read_json, read_text
from unmask.data.tokenizers.bounds import check_bounds, check_growth, check_ids, check_special
from unmask.data.tokenizers.bpe import BERT_BPE, BPE, END, FALLBACK_BPE, WORD_BPE, byte_bpe, keeps_spaces, word_bpe
from unmask.data.tokenizers.published import SHIFTED, Published, framing, read_published, rebuilt
from unmask.data.tokenizers.tokenizer import CONFIG, FILES, ROLES, SPECIAL_TOKENS, SPIECE, Kind, Tokenizer
from unmask.data.tokenizers.unigram import (
    DEBERTA_UNIGRAM,
    FAIRSEQ_UNIGRAM,
    UNIGRAM,
    albert_unigram,
    deberta_unigram,
    read_spiece,
)
from unmask.data.tokenizers.word_level import BILM_TOKENS, WORDS, WordTokenizer, word_level
from unmask.data.tokenizers.wordpiece import (
    MPNET_WORDPIECE,
    PREFIX,
    WORDPIECE,
    bert_wordpiece,
    is_lowercase,
    read_vocabulary,
)
from unmask.support.errors import UserError

SAMPLE = "A ½ ﬁ é 中 ي"
"""Text that is normalized to check that a normalizer's character table is intact."""
XLNET = "XLNetTokenizer"
"""The class of transformers that reads XLNet's vocabulary."""
XLNET_CLS = "<cls>"
"""A special token of XLNet's vocabulary, which also has those of RoBERTa."""
COPY = "copy the files of the tokenizer into it, such as those of the model that it was trained from"
END_OF_TEXT = "<|endoftext|>"
"""The only special token of GPT-2's vocabulary; it is used as the unknown token there."""


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load a tokenizer from a directory.

    Args:
        directory: contains the files of a tokenizer; see `unmask.load_tokenizer` (workflows/text.py).

    Returns:
        The tokenizer.

    Raises:
        UserError: there is no tokenizer, it is corrupt, of another kind, or has settings that are not implemented.
    """
    return _load(Path(directory), read_published(Path(directory)))


def load_plain_tokenizer(directory: Path) -> Tokenizer:
    """Load a `tokenizer.json` as it is, as programs do that do not know the classes of transformers.

    Of the files beside it only the names of special tokens are read. Errors are those of `load_tokenizer`.
    """
    return _load(directory, replace(read_published(directory), name="", config={}, extra=(), added={}))


def _load(directory: Path, published: Published) -> Tokenizer:
    path = _find(directory)
    config, special = published.config, published.roles(ROLES)
    match path.name:
        case "tokenizer.json":
            library = _read_library(path)
        case "vocab.txt":
            library = _read_vocabulary(path, special)
        case name if name in SPIECE:
            library = _read_spiece(path, published)
        case _:
            library = _read_merges(path, config, special)
    tokens = library.get_vocab()
    if not any(tokens):  # an empty file is read as one empty token
        raise UserError("the vocabulary is empty", file=path)
    if path.name not in SPIECE:
        library = rebuilt(published, library, path)
        tokens = library.get_vocab()
    kind = _with_special_tokens(_kind(library, path), tokens, special)
    check_special(special, path)
    if kind.name == "unigram" and json.loads(library.to_str())["model"]["unk_id"] is None:
        raise UserError("does not name the unknown token (unk_id)", file=path)
    if kind.adds_special_tokens and special.get("unk_token", kind.special["unk_token"]) not in tokens:
        special |= {"unk_token": END_OF_TEXT} if END_OF_TEXT in tokens else {}
    _check_vocabulary(tokens, {**kind.special, **special}, path, adds_special_tokens=kind.adds_special_tokens)
    if kind.name == "wordpiece":
        library.model.unk_token = special.get("unk_token", SPECIAL_TOKENS["unk_token"])
        if not published.name:
            _override_normalizer(library.normalizer, config, directory)
    model = library.model
    if isinstance(model, models.WordPiece | models.WordLevel) and model.token_to_id(model.unk_token) is None:
        raise UserError(f"the vocabulary lacks {model.unk_token}, which unknown words need", file=path)
    frame = None if path.name in SPIECE else framing(published, library)
    tokenizer = (WordTokenizer if kind is WORDS else Tokenizer)(library, kind, special)
    tokenizer.framing = frame
    return tokenizer


def _find(directory: Path) -> Path:
    """Return the file to read the tokenizer of a directory from.

    Raises:
        UserError: there is none.
    """
    path = next((path for name in FILES if (path := directory / name).is_file()), None)
    if path is None and (directory / SHIFTED).is_file():
        raise UserError(
            "is not read, as the ids of its models differ from those in it",
            file=directory / SHIFTED,
            remedy="add the tokenizer.json of the model, as transformers' AutoTokenizer saves it",
        )
    if path is None:
        raise UserError(f"contains none of {', '.join(FILES)}", file=directory, remedy=COPY)
    return path


def _override_normalizer(normalizer: Any, config: Mapping[str, Any], directory: Path) -> None:
    """Change the settings of BERT's normalizer to those in `tokenizer_config.json`.

    Raises:
        UserError: one is neither true nor false.
    """
    try:
        normalizer.lowercase = config.get("do_lower_case", normalizer.lowercase)
        normalizer.strip_accents = config.get("strip_accents", normalizer.strip_accents)
        normalizer.handle_chinese_chars = config.get("tokenize_chinese_chars", normalizer.handle_chinese_chars)
    except TypeError as error:
        raise UserError(
            "do_lower_case, strip_accents and tokenize_chinese_chars must be true or false",
            file=directory / "tokenizer_config.json",
        ) from error


def read_length(directory: Path) -> int:
    """Return the maximum length in the configuration of a directory's tokenizer, in tokens; 512 if there is none.

    Raises:
        UserError: the configuration is corrupt.
    """
    config = read_json(directory / CONFIG)
    length = config.get("model_max_length", config.get("max_len"))
    return length if isinstance(length, int) and 2 < length < 1_000_000 else 512


def _read_library(path: Path) -> tokenizers.Tokenizer:
    text = read_text(path)
    check_ids(text, path)
    with _refusing_damage(path, "tokenizer"):
        library = tokenizers.Tokenizer.from_str(text)
    check_bounds(library, path)
    with _refusing_damage(path, "tokenizer"):
        check_growth(library, path)
        if library.normalizer is not None:
            library.normalizer.normalize_str(SAMPLE)
    return library


@contextmanager
def _refusing_damage(path: Path, what: str) -> Iterator[None]:
    """Turn any error of the Rust library into a `UserError`; its panics do not derive from Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, UserError):
        raise
    except BaseException as error:
        raise UserError(f"is not a valid {what} ({error})", file=path, remedy="copy it again") from error


def _kind(library: tokenizers.Tokenizer, path: Path) -> Kind:
    """Infer the kind of a tokenizer from its components."""
    model, normalizer, words = library.model, library.normalizer, library.pre_tokenizer
    bert = isinstance(normalizer, normalizers.BertNormalizer) and isinstance(words, pre_tokenizers.BertPreTokenizer)
    if isinstance(model, models.WordPiece) and bert:
        if model.continuing_subword_prefix != PREFIX:
            raise UserError(
                f"marks continuations of words by '{model.continuing_subword_prefix}', not by '{PREFIX}' as BERT does",
                file=path,
                remedy="rename the tokens",
            )
        return WORDPIECE
    whole = isinstance(model, models.WordLevel) and isinstance(words, pre_tokenizers.BertPreTokenizer)
    if whole and normalizer is None:
        return WORDS
    if isinstance(model, models.BPE) and bert and model.end_of_word_suffix == END:
        return WORD_BPE
    if isinstance(model, models.BPE) and isinstance(words, pre_tokenizers.ByteLevel):
        if _separates_once(library) and (normalizer is None or isinstance(normalizer, normalizers.NFC)):
            return BERT_BPE
        if normalizer is None:
            return BPE
    if isinstance(model, models.BPE) and keeps_spaces(library):
        return FALLBACK_BPE
    if isinstance(model, models.Unigram) and _cuts_at_spaces(library):
        return UNIGRAM
    raise UserError(
        "is of an unsupported kind",
        file=path,
        remedy="use WordPiece with BERT's normalizer, BPE (byte-level, Gemma's or GPT's), a unigram model, or words",
    )


def _with_special_tokens(kind: Kind, tokens: Container[str], special: Mapping[str, str]) -> Kind:
    """Return the kind with the same structure whose special tokens the vocabulary has; `special` names some of them."""
    variants = {"wordpiece": [MPNET_WORDPIECE], "unigram": [FAIRSEQ_UNIGRAM, DEBERTA_UNIGRAM]}.get(kind.name, [])
    for variant in variants if XLNET_CLS not in tokens else []:
        required = (name for role, name in variant.special.items() if role != "mask_token")
        if special.items() <= variant.special.items() and all(name in tokens for name in required):
            return variant
    return kind


def _separates_once(library: tokenizers.Tokenizer) -> bool:
    """Return whether pairs are framed as [CLS] A [SEP] B [SEP], whatever these tokens are called."""
    post = json.loads(library.to_str())["post_processor"] or {}
    for part in post.get("processors", [post]):
        if part.get("type") == "TemplateProcessing":
            names = [next(iter(item.values()))["id"] for item in part["pair"]]
            return len(names) == 5 and names[1:5:2] == ["A", "B"] and names[2] == names[4]
    return False


def _cuts_at_spaces(library: tokenizers.Tokenizer) -> bool:
    """Return whether words are separated by spaces only, as in SentencePiece."""
    words = json.loads(library.to_str())["pre_tokenizer"] or {}
    kinds = [part["type"] for part in words.get("pretokenizers", [words]) if "type" in part]
    return kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"], ["Punctuation", "Metaspace"])


def _read_vocabulary(path: Path, special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Read a vocabulary with one token per line: of whole words if it has the special tokens of bilm-tf."""
    vocabulary = read_vocabulary(path)
    if vocabulary.keys() >= BILM_TOKENS:
        return word_level(vocabulary)
    return bert_wordpiece(vocabulary, lowercase=is_lowercase(vocabulary, {**SPECIAL_TOKENS, **special}.values()))


def _read_merges(path: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Read the vocabulary and the merges of a BPE, byte-level or GPT's."""
    merges = path.with_name("merges.txt" if path.name == "vocab.json" else "vocab.bpe")
    pairs = []
    for number, line in enumerate(read_text(merges).removeprefix("\ufeff").splitlines(), start=1):
        if line.startswith("#version") or not line:
            continue
        if len(pair := line.split(" ")) != 2:
            raise UserError("not two tokens separated by a space", file=merges, line=number)
        pairs.append((pair[0], pair[1]))
    vocabulary = read_json(path)
    try:
        tokens = {str(token): int(id) for token, id in vocabulary.items()}
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise UserError(f"is not a table of ids ({error})", file=path) from error
    _check_range(tokens, path)  # the library allocates memory up to the largest id
    try:
        if any(second.endswith(END) for _, second in pairs):
            return word_bpe(tokens, pairs, special.get("unk_token", WORD_BPE.special["unk_token"]))
        return byte_bpe(tokens, pairs, prefix=bool(config.get("add_prefix_space")))
    except Exception as error:  # the Rust library raises nothing narrower
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"does not match {merges.name} ({reason})", file=path) from error


def _read_spiece(path: Path, published: Published) -> tokenizers.Tokenizer:
    """Read a SentencePiece model; as in transformers, ALBERT's lower-cases and strips accents by default.

    XLNet's, which has the same name, keeps the case by default, and strips accents always.
    """
    model, config, xlnet = read_spiece(path), published.config, published.name == XLNET
    parts = model.pieces, model.unknown, model.charsmap
    with _refusing_damage(path, "SentencePiece model"):
        if path.name == "spm.model":
            lowercase, splits = (bool(config.get(name)) for name in ("do_lower_case", "split_by_punct"))
            library = deberta_unigram(*parts, lowercase=lowercase, splits=splits)
        else:
            lowercase = bool(config.get("do_lower_case", not xlnet))
            accents = bool(config.get("keep_accents", False)) and not xlnet
            library = albert_unigram(*parts, lowercase=lowercase, accents=accents)
    check_bounds(library, path)
    with _refusing_damage(path, "SentencePiece model"):
        check_growth(library, path)
        library.normalizer.normalize_str(SAMPLE)
    return library


def _check_vocabulary(
    vocabulary: Mapping[str, int], special: Mapping[str, str], path: Path, *, adds_special_tokens: bool
) -> None:
    missing = [name for name in special.values() if name not in vocabulary]
    if missing and not adds_special_tokens:
        raise UserError(f"the vocabulary lacks {', '.join(missing)}", file=path)
    _check_range(vocabulary, path)


def _check_range(vocabulary: Mapping[str, int], path: Path) -> None:
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise UserError(f"the ids of the vocabulary are not 0 to {len(vocabulary) - 1}", file=path)
