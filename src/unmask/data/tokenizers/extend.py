"""Extension of a vocabulary by tokens learned from a text, such as the words of a domain, and its reverse.

Input: a tokenizer and texts. Output: a tokenizer with further tokens, which have the last ids and encode the text in
fewer tokens. Old tokens keep their ids, and text in which no new token is found is encoded as before.

- WordPiece: the words whose occurrences in the text have the most tokens beyond the first one. A new token is also the
  beginning of longer words, as each word is split into the longest tokens from its start.
- Unigram: the same with the letters and digits at the start of each word. The score of a new token is the logarithm of
  its relative frequency in the text, or slightly above the score of its old tokens if that is higher, as it would
  otherwise never be used.
- BPE: training is continued with further merges, each of the most frequent pair of adjacent tokens (Sennrich et al.
  2016). As these follow the old merges, they change nothing that these did.

A word without letters, such as a number, is not learned from, nor is one that is rarer than a minimum count. Of words
with characters that the vocabulary lacks, which WordPiece and unigram read as unknown, these characters are learned.
BPE of characters is not extended by them, as no merge makes them.

The reverse compares two tokenizers: whether the second one has all tokens of the first one with the same ids, and
splits text without its further tokens in the same way; and the old tokens that each further token consists of.
"""

from __future__ import annotations

import heapq
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from tokenizers import models

from unmask.data.tokenizers.bpe import readable, to_bytes
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.data.tokenizers.wordpiece import PREFIX
from unmask.data.tokenizers.words import SPACE
from unmask.support.errors import UserError, counted


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
    first, other = (_first(definition, old.size, merges) for definition in (before, after))
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
            return _split_continuation(token.removeprefix(PREFIX), known) or [old.unk]
        return old.encode(token.replace(SPACE, " ")).tolist() or [old.unk]

    return [split(token) for token in new_tokens(old, new)]


def _split_continuation(continuation: str, known: Mapping[str, int]) -> list[int]:
    """Return the tokens of the rest of a word, each the longest WordPiece at its position; [] if there is none."""
    ids: list[int] = []
    while continuation:
        end = next((end for end in range(len(continuation), 0, -1) if PREFIX + continuation[:end] in known), 0)
        if not end:
            return []
        ids.append(known[PREFIX + continuation[:end]])
        continuation = continuation[end:]
    return ids


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


MIN_COUNT = 5
"""Default minimum number of occurrences from which a word (or for BPE a pair of tokens) is learned."""
MARGIN = 1e-3
"""By how much the score of a new unigram token exceeds that of its old tokens, at least."""


@dataclass(frozen=True)
class Extension:
    """An extended tokenizer.

    Attributes:
        tokenizer: the tokenizer.
        before, after: number of tokens of the text with the old and with the new tokenizer.
        unknown_before, unknown_after: number of those that are unknown.
        parts: the new tokens in the order of ids, each with the old tokens that it stands for.
    """

    tokenizer: Tokenizer
    before: int
    after: int
    unknown_before: int
    unknown_after: int
    parts: Mapping[str, Sequence[str]]

    def summary(self, wanted: int) -> list[str]:
        """Return lines for the user: the number of tokens of the text before and after, and examples.

        Args:
            wanted: the number of new tokens that were asked for.
        """
        change, direction = 1 - self.after / self.before, "fewer" if self.after <= self.before else "more"
        first = self.tokenizer.size - len(self.parts)
        byte_level = self.tokenizer.kind.name == "bpe"
        shown = []
        for number, (token, parts) in enumerate(list(self.parts.items())[:8]):
            text = readable(token) if byte_level else self.tokenizer.decode([first + number])
            written = map(readable, parts) if byte_level else parts
            shown.append(f"{text.strip()} ({' '.join(part.strip() for part in written)})")
        lost = self.unknown_before > 0
        fewer = [f"the text has only {counted(len(self.parts), 'new token')} to learn, not {wanted:,}"]
        return [
            *(fewer if len(self.parts) < wanted else ()),
            f"the text has {self.before:,} tokens before, {self.after:,} after ({abs(change):.1%} {direction})",
            *([f"of them {self.unknown_before:,} are unknown before, {self.unknown_after:,} after"] * lost),
            f"new tokens: {', '.join(shown)}{', …' * (len(self.parts) > len(shown))}",
        ]


@dataclass(frozen=True)
class _Text:
    """What is known of the text.

    Attributes:
        words: the words to learn from, with their counts.
        num_tokens: number of its tokens.
        split: returns the old tokens of a word.
        least: minimum count.
    """

    words: Mapping[str, int]
    num_tokens: int
    split: Callable[[str], list[str]]
    least: int

    def rank(self, words: Mapping[str, int], lacking: Callable[[str], Collection[str]]) -> list[str]:
        """Return the words of several tokens that are frequent enough, and characters that the vocabulary lacks.

        Those that cost the most tokens come first; a word that is unknown costs as many as it has characters, to which
        each character that it lacks contributes the same.

        Args:
            words: the words, with their counts.
            lacking: returns the tokens of the characters of one of the text's words that the vocabulary lacks.
        """
        gains = {word: float(count * (len(self.split(word)) - 1)) for word, count in words.items()}
        counts, costs = Counter(words), defaultdict[str, float](float)
        for word, count in self.words.items():
            for token in (tokens := lacking(word)):
                counts[token] += count
                costs[token] += count * len(word) / len(tokens)
        gains |= costs
        ranked = (word for word, gain in gains.items() if gain and counts[word] >= self.least)
        return sorted(ranked, key=lambda word: (-gains[word], word))


def learn_tokens(
    tokenizer: Tokenizer, texts: Iterable[str], *, add: int, min_count: int = MIN_COUNT, progress: bool = False
) -> Extension:
    """Learn tokens from texts, and extend a vocabulary by them.

    Args:
        tokenizer: the tokenizer to extend; it is not changed.
        texts: the texts, which are iterated over once; only the counts of their words are kept in memory.
        add: maximum number of new tokens; a small text gives fewer.
        min_count: minimum number of occurrences of what is learned.
        progress: whether to show a progress bar on standard error.

    Raises:
        UserError: a number is below 1, the tokenizer cannot be extended, or the text has nothing to learn.
    """
    for number, what in ((add, "number of new tokens"), (min_count, "minimum count")):
        if number < 1:
            raise UserError(f"the {what} must be at least 1, not {number}")
    model = _extensible(tokenizer)
    words = tokenizer.count_words(texts, progress=progress)
    if not words:
        raise UserError("there is no text to learn new tokens from")
    before, unknown_before = _count(tokenizer, words)
    byte_level = tokenizer.kind.name == "bpe"
    lexical = {
        word: count
        for word, count in sorted(words.items())
        if any(map(str.isalpha, to_bytes(word).decode(errors="ignore") if byte_level else word))
    }
    text = _Text(lexical, before, tokenizer.split_word, min_count)
    new = tokenizer.with_model(_LEARN[tokenizer.kind.name](model, text, add))
    if new.size == tokenizer.size:
        raise UserError(
            f"there is nothing to learn: every word that occurs at least {min_count} times is a single token already",
            remedy="use the tokenizer as it is, or give more text",
        )
    after, unknown_after = _count(new, words)
    parts = [tokenizer.tokens(ids) for ids in old_ids(tokenizer, new)]
    return Extension(
        new, before, after, unknown_before, unknown_after, dict(zip(new_tokens(tokenizer, new), parts, strict=True))
    )


def _count(tokenizer: Tokenizer, words: Mapping[str, int]) -> tuple[int, int]:
    """Return the number of tokens of words, by their counts, and of those that are unknown."""
    known = {*tokenizer.tokens(range(tokenizer.size))} - {tokenizer.token(tokenizer.unk)}
    total = unknown = 0
    for word, count in words.items():
        tokens = tokenizer.split_word(word)
        total += count * len(tokens)
        unknown += count * sum(token not in known for token in tokens)
    return total, unknown


def _extensible(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the library's model, with a vocabulary that has all tokens.

    Raises:
        UserError: new tokens cannot have the last ids.
    """
    if tokenizer.kind.name not in _LEARN:
        raise UserError(f"a vocabulary of the kind {tokenizer.kind.name} cannot be extended")
    definition = tokenizer.definition
    model = with_special_tokens(definition["model"], definition["added_tokens"])
    if len(model["vocab"]) != tokenizer.size:
        names = [token["content"] for token in definition["added_tokens"] if not token["special"]]
        raise UserError(
            f"tokens were added after the vocabulary, which therefore cannot be extended: {', '.join(names[:5])}",
            remedy="use the tokenizer without them",
        )
    return model


def _learn_words(model: Mapping[str, Any], text: _Text, add: int) -> dict[str, Any]:
    """Return a WordPiece model with further words.

    The first token of a longer word may be a new one, and what remains of the word may contain a character that has no
    token within words. New tokens by which a word of the text would become unknown are therefore not used.
    """
    known = [word for word in text.words if text.split(word) != [model["unk_token"]]]

    def lacking(word: str) -> set[str]:
        return {token for token in (word[:1], *(PREFIX + after for after in word[1:])) if token not in model["vocab"]}

    words = {word: count for word, count in text.words.items() if word not in model["vocab"]}
    unknown = text.words.keys() - set(known)
    ranked = text.rank(words, lambda word: lacking(word) if word in unknown else ())
    settings = {name: value for name, value in model.items() if name not in ("type", "vocab")}
    while True:
        vocabulary = {**model["vocab"], **{word: len(model["vocab"]) + at for at, word in enumerate(ranked[:add])}}
        new = models.WordPiece(vocabulary, **settings)
        lost = [word for word in known if new.tokenize(word)[0].value == model["unk_token"]]
        if not lost:
            return {**model, "vocab": vocabulary}
        ranked = [word for word in ranked if not any(other.startswith(word) for other in lost)]


def _learn_scored(model: Mapping[str, Any], text: _Text, add: int) -> dict[str, Any]:
    """Return a unigram model with further tokens, each the start of a word up to its first other character."""
    scores = dict(model["vocab"])
    starts: Counter[str] = Counter()
    for word, count in text.words.items():
        start = "".join(takewhile(lambda character: unicodedata.category(character)[0] in "LMN", word[1:]))
        if any(map(str.isalpha, start)):
            starts[SPACE + start] += count
    known = {word: count for word, count in starts.items() if scores.keys() >= set(text.split(word))}
    characters = Counter[str]()
    for word, count in text.words.items():
        for character in word:
            if character not in scores:
                characters[character] += count
    added = []
    for word in text.rank(known, lambda word: {*word} & characters.keys())[:add]:
        usual = math.log((known.get(word) or characters[word]) / text.num_tokens)
        old = sum(scores[token] for token in text.split(word)) + MARGIN if word in known else usual
        added.append((word, max(usual, old)))
    return {**model, "vocab": [*model["vocab"], *added]}


def _learn_merges(model: Mapping[str, Any], text: _Text, add: int) -> dict[str, Any]:
    """Return a BPE model with further merges.

    A pair that would be merged into an old token, or into a new one in a second way, is not merged: that token's other
    merges come first, which changes what follows.
    """
    split = [(text.split(word), count) for word, count in text.words.items()]
    words = [tokens for tokens, _ in split if model["unk_token"] not in tokens]
    counts = [count for tokens, count in split if model["unk_token"] not in tokens]
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in pairwise(word):
            pairs[pair] += counts[index]
            where[pair].add(index)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    vocabulary, merges = dict(model["vocab"]), list(model["merges"])
    size = len(vocabulary) + add
    while heap and len(vocabulary) < size:
        count, pair = heapq.heappop(heap)
        if -count != pairs[pair] or -count < text.least or pair[0] + pair[1] in vocabulary:
            continue  # its count has changed, in which case it is also elsewhere in the heap
        vocabulary[pair[0] + pair[1]] = len(vocabulary)
        merges.append(pair)
        changed = set()
        for index in sorted(where.pop(pair)):
            merged = _merge(words[index], pair)
            for old in pairwise(words[index]):
                pairs[old] -= counts[index]
            for new in pairwise(merged):
                pairs[new] += counts[index]
                where[new].add(index)
            changed |= {*pairwise(words[index]), *pairwise(merged)}
            words[index] = merged
        for merged_pair in changed:
            heapq.heappush(heap, (-pairs[merged_pair], merged_pair))
    return {**model, "vocab": vocabulary, "merges": merges}


def _merge(word: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Return the tokens of a word with each occurrence of a pair merged, from left to right."""
    merged: list[str] = []
    for token in word:
        # the last token is itself merged only if it is the pair's concatenation, which no word contains yet
        if merged and (merged[-1], token) == pair:
            merged[-1] += token
        else:
            merged.append(token)
    return merged


_LEARN: Mapping[str, Callable[[Mapping[str, Any], _Text, int], dict[str, Any]]] = {
    "wordpiece": _learn_words,
    "unigram": _learn_scored,
    "bpe": _learn_merges,
    "word_bpe": _learn_merges,
}
