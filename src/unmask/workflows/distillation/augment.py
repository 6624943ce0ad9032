"""Variants of training examples, in which some words are replaced by others that a language model finds likely.

Input: examples, a model whose token embeddings are word vectors, and if it has a masked-LM head, that head. Output:
further examples, whose labels are those of the original: the words of entities and answers stay, and their offsets are
those in the new text.

Jiao et al. 2020 (TinyBERT), section 3.2 and algorithm 1: of each word the K = 15 best candidates are taken, from a
masked language model if the word is a single token, and otherwise from the nearest word vectors; each of N variants
replaces a word with probability 0.4. Differences: the vectors are token embeddings of the model (of a word of several
tokens, their mean) instead of GloVe's, which also serve all words if there is no masked-LM head; the word itself is not
a candidate; the model reads at most 64 tokens on each side of the word. The authors' code also feeds it the unmasked
text, replaces no stop words of English, and changes the second text of a pair in variants of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import islice
from typing import Any, cast

import msgspec
import numpy as np
import torch
from torch.nn.functional import normalize

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.labelled.tagged_sentence import TaggedSentence, split_text
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.inference.backend import TorchBackend
from unmask.model.model import Model
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS, WithTokenEmbeddings
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.training.machine import Machine
from unmask.training.runs.display import Display

REPLACED = 0.4
"""Probability that a word is replaced (p_t in the paper)."""
CANDIDATES = 15
"""Number of candidates of a word (K in the paper)."""
CONTEXT = 64
"""Maximum number of tokens that the language model reads on each side of a word."""
AT_ONCE, MASKED_AT_ONCE = 256, 512
"""Numbers of examples, and of masked texts whose logits are in memory, that are processed at once."""


@dataclass(frozen=True)
class TextWords:
    """The words of a text.

    Attributes:
        text: the text.
        starts, stops: their offsets in it; stops are exclusive.
        protected: spans of the text whose words must not be replaced.
    """

    text: str
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    protected: tuple[tuple[int, int], ...] = ()

    def replaceable(self) -> Iterator[int]:
        """Yield the numbers of the words that may be replaced: of letters, and in no protected span."""
        for number, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            inside = any(start < end and begin < stop for begin, end in self.protected)
            if not inside and self.text[start:stop].isalpha():
                yield number

    def with_words(self, words: dict[int, str]) -> tuple[str, Callable[[int], int]]:
        """Return the text with some words replaced, and a function that maps offsets outside of them to new ones."""
        parts, ends, shifts, at = [], [0], [0], 0
        for number, word in sorted(words.items()):
            start, stop = self.starts[number], self.stops[number]
            parts += [self.text[at:start], word]
            at = stop
            ends.append(stop)
            shifts.append(shifts[-1] + len(word) - (stop - start))
        shift = np.array(shifts)
        return "".join([*parts, self.text[at:]]), lambda old: old + int(shift[np.searchsorted(ends, old, "right") - 1])


class Proposer:
    """Proposes words for others in their context.

    Args:
        model: its token embeddings and, if it has one, its masked-LM head propose words.
        machine: device and precision.

    Raises:
        UserError: the model has no token embeddings, or its vocabulary no whole words.
    """

    def __init__(self, model: Model, machine: Machine) -> None:
        self.tokenizer = model.tokenizer
        self.reach = min(CONTEXT, (model.encoder.longest - 3) // 2)
        self.ids, self.words = _whole_words(model.tokenizer)
        if TOKEN_EMBEDDINGS not in model.encoder.provides or not self.words:
            raise UserError(
                "no words can be proposed: the model has no embeddings of whole words",
                remedy=f"pass {argument('masked_lm', 'MODEL')} with another model, or omit {argument('augment')}",
            )
        self.table = cast(WithTokenEmbeddings, model.encoder).words.weight.detach().cpu().float()
        self.vectors = normalize(self.table[self.ids])  # (whole words, width)
        self.backend = TorchBackend(model, machine) if "masked_lm" in model.heads else None
        self._nearest: dict[tuple[int, ...], list[str]] = {}

    def propose(self, texts: Sequence[TextWords]) -> list[dict[int, list[str]]]:
        """Return for each text the candidates of its words, by the number of the word."""
        proposals: list[dict[int, list[str]]] = [{} for _ in texts]
        masked: list[tuple[int, int, Sample]] = []
        encoded = self.tokenizer.encode_offsets_many([words.text for words in texts])
        for number, (words, (ids, offsets)) in enumerate(zip(texts, encoded, strict=True)):
            for word in words.replaceable():
                start, stop = words.starts[word], words.stops[word]
                tokens = np.flatnonzero((offsets[:, 0] < stop) & (start < offsets[:, 1]))
                if len(tokens) == 1 and self.backend is not None:
                    masked.append((number, word, self._mask(ids, int(tokens[0]))))
                elif len(tokens):
                    proposals[number][word] = self._near(ids[tokens])
        for part in _chunks(masked, MASKED_AT_ONCE):
            assert self.backend is not None
            logits = np.concatenate(self.backend.logits("masked_lm", [sample for *_, sample in part]))
            best = torch.from_numpy(logits[:, self.ids]).topk(min(CANDIDATES + 1, len(self.words)), dim=1).indices
            for (number, word, _), row in zip(part, best.tolist(), strict=True):
                proposals[number][word] = [self.words[index] for index in row]
        return [
            {
                word: differing
                for word, proposed in sorted(candidates.items())
                if (differing := _others(words, word, proposed))
            }
            for words, candidates in zip(texts, proposals, strict=True)
        ]

    def _mask(self, ids: Ids, token: int) -> Sample:
        """Return the context of a token as a sample in which it is masked."""
        begin = max(0, token - self.reach)
        context = ids[begin : token + self.reach + 1].copy()
        context[token - begin] = self.tokenizer.mask
        frame = Frame.of(self.tokenizer)
        return frame.wrap(context).add(positions={"masked": np.array([frame.start + token - begin])})

    def _near(self, ids: Ids) -> list[str]:
        """Return the words whose vectors are nearest to the mean of those of some tokens."""
        key = tuple(ids.tolist())
        if key not in self._nearest:
            mean = normalize(self.table[list(key)].mean(0), dim=0)  # (width,)
            best = (self.vectors @ mean).topk(min(CANDIDATES + 1, len(self.words))).indices
            self._nearest[key] = [self.words[index] for index in best.tolist()]
        return self._nearest[key]


def augment(examples: Sequence[Any], number: int, proposer: Proposer, seed: int, display: Display) -> list[list[Any]]:
    """Return variants of each example, at most `number`, all different from each other and from the example.

    Raises:
        UserError: no word of any example has a candidate.
    """
    made: list[list[Any]] = [[] for _ in examples]
    replaceable = False
    numbered = [(index, texts_of(example)) for index, example in enumerate(examples)]
    for chunk in display.count(list(_chunks(numbered, AT_ONCE)), _count_words):
        proposals = iter(proposer.propose([words for _, texts in chunk for words in texts]))
        for index, texts in chunk:
            candidates, rng = list(islice(proposals, len(texts))), derive_rng(seed, "augment", index)
            replaceable |= any(candidates)
            seen = {_key([{} for _ in texts])}
            for _ in range(number):
                chosen = [_draw(proposed, rng) for proposed in candidates]
                if (key := _key(chosen)) not in seen:
                    seen.add(key)
                    new = [words.with_words(replacements) for words, replacements in zip(texts, chosen, strict=True)]
                    made[index].append(rebuild(examples[index], new))
    if not replaceable:
        raise UserError(
            "no word of the examples can be replaced: none consists of letters, or all belong to entities or answers",
            remedy=f"omit {argument('augment')}",
        )
    return made


def _key(chosen: Sequence[dict[int, str]]) -> tuple[tuple[tuple[int, str], ...], ...]:
    """Return what identifies a variant among those of an example."""
    return tuple(tuple(words.items()) for words in chosen)


def _count_words(chunk: Sequence[tuple[int, list[TextWords]]]) -> int:
    return sum(len(words.starts) for _, texts in chunk for words in texts)


@singledispatch
def texts_of(example: Any) -> list[TextWords]:
    """Return the texts of an example as words."""
    raise UserError(
        f"examples of the type {type(example).__name__} cannot be augmented", remedy=f"omit {argument('augment')}"
    )


@singledispatch
def rebuild(example: Any, texts: Sequence[tuple[str, Callable[[int], int]]]) -> Any:
    """Return an example with other texts, each with a function that maps old offsets in it to new ones."""
    raise NotImplementedError


@texts_of.register
def _(example: Row) -> list[TextWords]:
    return [_split(example.values[name]) for name in ("text", "text_b") if name in example.values]


@rebuild.register
def _(example: Row, texts: Sequence[tuple[str, Callable[[int], int]]]) -> Row:
    new = {name: text for name, (text, _) in zip(("text", "text_b"), texts, strict=False)}
    return msgspec.structs.replace(example, values={**example.values, **new})


@texts_of.register
def _(example: TaggedSentence) -> list[TextWords]:
    spans = tuple((start, end) for _, start, end in example.entities)
    return [TextWords(example.text, example.starts, example.stops, spans)]


@rebuild.register
def _(example: TaggedSentence, texts: Sequence[tuple[str, Callable[[int], int]]]) -> TaggedSentence:
    ((text, moved),) = texts
    return replace(example, text=text, starts=tuple(map(moved, example.starts)), stops=tuple(map(moved, example.stops)))


@texts_of.register
def _(example: Question) -> list[TextWords]:
    answers = (
        (answer.start, answer.start + len(answer.text)) for answer in example.answers if answer.start is not None
    )
    return [_split(example.question), replace(_split(example.passage), protected=tuple(answers))]


@rebuild.register
def _(example: Question, texts: Sequence[tuple[str, Callable[[int], int]]]) -> Question:
    (question, _), (passage, moved) = texts
    answers = tuple(
        Answer(answer.text, None if answer.start is None else moved(answer.start), answer.moved)
        for answer in example.answers
    )
    return msgspec.structs.replace(example, question=question, passage=passage, answers=answers)


def _split(text: str) -> TextWords:
    words = split_text(text)
    return TextWords(text, words.starts, words.stops)


def _others(words: TextWords, word: int, proposed: Sequence[str]) -> list[str]:
    """Return the candidates of a word that differ from it, with its capitalization."""
    original = words.text[words.starts[word] : words.stops[word]]
    others = [candidate for candidate in proposed if candidate.lower() != original.lower()][:CANDIDATES]
    return [candidate.capitalize() for candidate in others] if original.istitle() else others


def _draw(proposed: dict[int, list[str]], rng: np.random.Generator) -> dict[int, str]:
    """Return the words that replace others in a variant, by the number of the word."""
    return {
        word: candidates[rng.integers(len(candidates))]
        for word, candidates in proposed.items()
        if rng.random() < REPLACED
    }


def _whole_words(tokenizer: Tokenizer) -> tuple[list[int], list[str]]:
    """Return the ids of tokens that are whole words of letters, and their texts."""
    begins = np.flatnonzero(tokenizer.begins_word(np.arange(tokenizer.size)))
    texts = {int(id): tokenizer.decode([int(id)]).strip() for id in begins if int(id) not in tokenizer.special_ids}
    words = {id: text for id, text in texts.items() if text.isalpha()}
    return list(words), list(words.values())


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
