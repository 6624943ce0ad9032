"""Comparison of a vocabulary with one that extends it.

Input: two tokenizers. Output: whether the second one has all tokens of the first one with the same ids, and splits text
without its further tokens in the same way; and the old tokens that each further token consists of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.unigram import SPACE
from unmask.data.tokenizers.wordpiece import PREFIX


def difference(old: Tokenizer, new: Tokenizer) -> str:
    """Return why a tokenizer neither equals nor extends another one; "" if it does."""
    if new.kind is not old.kind:
        return f"its kind is {new.kind.name}, not {old.kind.name}"
    if new.size < old.size:
        return f"it has {new.size:,} tokens instead of {old.size:,}"
    ids = range(old.size)
    for id, token, its in zip(ids, old.tokens(ids), new.tokens(ids), strict=True):
        if token != its:
            return f"token {id} is '{its}' instead of '{token}'"
    before, after = old.definition, new.definition
    merges = len(before["model"].get("merges", []))
    first, other = (_first(one, old.size, merges) for one in (before, after))
    if part := next((part for part in first if first[part] != other[part]), ""):
        name = {"model": "merges or scores of the old tokens", "added_tokens": "special tokens"}
        return f"it has other {name[part]}" if part in name else f"it has another {part}"
    more = set(new_tokens(old, new))
    for left, right in after["model"].get("merges", [])[merges:]:
        if left + right not in more:
            return f"it merges '{left}' and '{right}' into an old token"
    return ""


def new_tokens(old: Tokenizer, new: Tokenizer) -> list[str]:
    """Return the tokens that an extended tokenizer has in addition, in the order of ids."""
    return new.tokens(range(old.size, new.size))


def old_ids(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return for each further token the ids of the old tokens that it stands for, at least one.

    For a token that BPE merges these are its parts; for any other one, the old tokens of its text.
    """
    known = {token: id for id, token in enumerate(old.tokens(range(old.size)))}
    parts = {first + second: (first, second) for first, second in new.definition["model"].get("merges", [])}

    def split(token: str) -> list[int]:
        if token in known:
            return [known[token]]
        if token in parts:
            return [id for part in parts[token] for id in split(part)]
        if old.kind.name == "wordpiece" and token.startswith(PREFIX):
            return _split_rest(token.removeprefix(PREFIX), known) or [old.unk]
        return old.encode(token.replace(SPACE, " ")).tolist() or [old.unk]

    return [split(token) for token in new_tokens(old, new)]


def _split_rest(rest: str, known: Mapping[str, int]) -> list[int]:
    """Return the tokens of the rest of a word, each the longest WordPiece at its position; [] if there is none."""
    found: list[int] = []
    while rest:
        end = next((end for end in range(len(rest), 0, -1) if PREFIX + rest[:end] in known), 0)
        if not end:
            return []
        found.append(known[PREFIX + rest[:end]])
        rest = rest[end:]
    return found


def with_special_tokens(model: Mapping[str, Any], added: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a model whose vocabulary includes the special tokens that were added after it, with the same ids.

    This changes no encoding, as special tokens are matched in the text before it is split.
    """
    vocabulary = model["vocab"]
    size = len(vocabulary)
    after = sorted((token["id"], token["content"]) for token in added if token["special"] and token["id"] >= size)
    if isinstance(vocabulary, dict):
        return {**model, "vocab": vocabulary | {content: id for id, content in after}}
    return {**model, "vocab": [*vocabulary, *((content, 0.0) for _, content in after)]}


def _first(definition: Mapping[str, Any], size: int, merges: int) -> dict[str, Any]:
    """Return the definition of a tokenizer without the tokens and merges after the first ones."""
    added = [token for token in definition["added_tokens"] if token["id"] < size]
    model = with_special_tokens(definition["model"], added)
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {token: id for token, id in vocabulary.items() if id < size}
    else:
        model["vocab"] = [tuple(entry) for entry in vocabulary[:size]]
    if "merges" in model:
        model["merges"] = [tuple(pair) for pair in model["merges"][:merges]]
    return {**definition, "added_tokens": added, "model": model}
