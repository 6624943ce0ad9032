"""Bounds on a tokenizer that was read from a file: on the time that a text takes, and on how much it may grow.

Input: the tokenizer as the library read it. A `tokenizer.json` is a small program: regular expressions that take
exponential time, replacements that lengthen a text without end, merges that are dropped at random. What published
tokenizers of the supported kinds do is accepted, and everything else is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tokenizers
from tokenizers import models, normalizers

from unmask.support.errors import UserError

MAX_WORD = 1000
"""Maximum number of characters of a word that WordPiece looks up, which takes time with their square; BERT has 100."""
MAX_PIECE = 128
"""Maximum number of characters of a piece of a unigram model, which looks up as many at each character of a text; those
that SentencePiece trains have 16."""
MAX_GROWTH = 32
"""Maximum number of characters for one after all steps of normalization; compatibility forms have up to 18."""
LONG_FORMS = "".join(map(chr, (*range(0xFDF0, 0xFDFD), *range(0x3300, 0x3400), 0x2057, 0xFB03)))
"""Characters with a compatibility form of several characters, which a table may lengthen further."""
MAX_STEPS = 16
"""Maximum number of normalization steps."""
NORMALIZERS = frozenset(
    "Sequence Replace Precompiled Prepend Strip StripAccents Lowercase NFC NFD NFKC NFKD Nmt BertNormalizer".split()  # noqa: SIM905
)
PATTERNS = frozenset({" {2,}", r"\s{2,}|[\n\r\t]", r"\s+", " +", r"\n", "``", "''"})
"""Regular expressions of replacements that published tokenizers have; each takes linear time."""


def check_bounds(library: tokenizers.Tokenizer, path: Path) -> None:
    """Check that a tokenizer takes bounded time and memory, and always splits a text in the same way.

    Raises:
        UserError: it does not.
    """
    model, normalizer = library.model, library.normalizer
    if getattr(model, "dropout", None):
        raise UserError("drops merges at random (dropout), so that a text is split differently each time", file=path)
    if (longest := getattr(model, "max_input_chars_per_word", None) or 0) > MAX_WORD:
        raise UserError(f"max_input_chars_per_word is {longest:,}, more than {MAX_WORD:,}", file=path)
    if isinstance(model, models.Unigram):
        longest = max(map(len, library.get_vocab(with_added_tokens=False)), default=0)
        if longest > MAX_PIECE:
            raise UserError(f"has a piece of {longest:,} characters, more than {MAX_PIECE}", file=path)
    steps = list(_steps(_settings(normalizer)))
    if len(steps) > MAX_STEPS:
        raise UserError(f"has {len(steps)} steps of normalization, more than {MAX_STEPS}", file=path)
    for step in steps:
        if why := _unbounded(step):
            raise UserError(f"its normalizer {why}", file=path, remedy="use another tokenizer")


def check_growth(library: tokenizers.Tokenizer, path: Path) -> None:
    """Check that the steps of normalization together, of which each is bounded, make few characters of one.

    A step lengthens a text by its table, or by Unicode's forms: what they contain is passed through all further steps.
    Damaged tables make the library panic.

    Raises:
        UserError: they do not.
    """
    settings = list(_steps(_settings(library.normalizer)))
    steps, added = list(map(_made, settings)), [(0, list(LONG_FORMS))]
    added += [(number, _table(step)) for number, step in enumerate(settings, 1) if step["type"] == "Precompiled"]
    if any(_is_lengthened(text, steps[number:]) for number, texts in added for text in texts):
        raise UserError(
            f"the steps of its normalizer together replace a character by more than {MAX_GROWTH}",
            file=path,
            remedy="use another tokenizer",
        )


def check_ids(text: str, path: Path) -> None:
    """Check the ids in a `tokenizer.json` before the library reads it, which allocates memory up to the largest one.

    Raises:
        UserError: an id is larger than the number of tokens, or the file is not JSON.
    """
    try:
        content = msgspec.json.decode(text)
        vocabulary, added = content["model"]["vocab"], content.get("added_tokens") or []
        scored = not isinstance(vocabulary, dict)  # a list of tokens with scores, whose ids are their indices
        ids = [[token["id"] for token in added], [] if scored else vocabulary.values()]
        largest, size = int(max(max(numbers, default=0) for numbers in ids)), len(vocabulary)
    except (ValueError, OverflowError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"is not a valid tokenizer ({error})", file=path, remedy="copy it again") from error
    if largest > size + len(ids[0]):
        raise UserError(f"has the id {largest}: the ids of the vocabulary are not 0 to {size - 1}", file=path)


def check_special(special: Mapping[str, str], path: Path) -> None:
    """Check that no special token is an ordinary word, which would then be taken for it wherever it occurs.

    Raises:
        UserError: one is.
    """
    for role, name in special.items():
        if name.isalpha():
            raise UserError(f"{role} is '{name}', which is an ordinary word", file=path, remedy="rename it")


def _settings(normalizer: normalizers.Normalizer | None) -> dict[str, Any] | None:
    settings: dict[str, Any] | None = (
        None if normalizer is None else json.loads(normalizer.__getstate__())
    )  # a pickle's
    return settings


def _steps(normalizer: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if normalizer is None:
        return
    if normalizer["type"] != "Sequence":
        yield normalizer
    for inner in normalizer.get("normalizers", ()):
        yield from _steps(inner)


def _made(step: Mapping[str, Any]) -> normalizers.Normalizer:
    """Return the normalizer with these settings, as it is unpickled."""
    normalizer = normalizers.NFC()
    normalizer.__setstate__(json.dumps(step).encode())
    return normalizer


def _is_lengthened(text: str, steps: Sequence[normalizers.Normalizer]) -> bool:
    for step in steps:
        text = step.normalize_str(text)
        if len(text) > MAX_GROWTH:
            return True
    return False


def _table(step: Mapping[str, Any]) -> list[str]:
    """Return what a step's table replaces characters by."""
    content = base64.b64decode(step["precompiled_charsmap"] or "")
    start = 4 + int.from_bytes(content[:4], "little")
    return [part.decode("utf8", "replace") for part in content[start:].split(b"\0")]


def _unbounded(step: Mapping[str, Any]) -> str:
    """Return what is not bounded in a step of normalization; "" if it is bounded."""
    kind = step["type"]
    if kind not in NORMALIZERS:
        return f"has a step of the unsupported type {kind}"
    if kind == "Replace":
        ((how, pattern),) = step["pattern"].items()
        if how == "Regex" and pattern not in PATTERNS:
            return f"replaces the regular expression {pattern[:40]!r}, which may take unbounded time"
        if not pattern or len(step["content"]) > (len(pattern) if how == "String" else 1):
            return f"replaces {pattern[:40]!r} by a longer text"
    if kind == "Prepend" and len(step["prepend"]) > 1:
        return "prepends a text"
    if kind == "Precompiled" and any(len(text) > MAX_GROWTH for text in _table(step)):
        return f"has a character table that replaces a character by more than {MAX_GROWTH}"
    return ""
