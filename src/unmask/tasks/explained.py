"""What an explanation of a prediction consists of: decisions, and what each word contributes to them.

Input: the texts of an example and its sample. Output: the words of the sample's tokens, and types of explanations.

A decision is one number that a head computed: the log-odds of a label, log(p / (1 - p)), or the number of a regression.
Log-odds have no ceiling as probabilities have, and unlike logits they do not change if a constant is added to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.labelled.tagged_sentence import UNSPACED, is_mark
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.errors import UserError

MARKED = 0.25
"""Share of the largest contribution from which on a word is marked in a line of text."""


class UnexplainedError(UserError):
    """The error that one text is not explained, though others may be.

    Args:
        message: what is said of such texts, with the noun.
        example: index of the example.
    """

    def __init__(self, message: str, example: int) -> None:
        super().__init__(message)
        self.example = example


class Contribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a word contributes to a decision.

    Attributes:
        start, end: offsets of the word in its text, in code points, `end` exclusive.
        contribution: in the unit of the decision; above 0: the word speaks for it.
        text: 0 for the first text, 1 for the second one of a pair.
    """

    start: int
    end: int
    contribution: float
    text: int = 0


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the words of an example contribute to a decision.

    Attributes:
        label: the label that is explained: the predicted one, or "score" of a regression.
        value: its log-odds, or the number of a regression.
        words: the words that the model read, in order.
        start, end: the word whose tag is explained, in code points; None: the decision is about the whole example.
        baseline: of integrated gradients, the value where all words are masked: the contributions sum to the
            difference from it; None: occlusion, whose contributions have no such sum.
    """

    label: str
    value: float
    words: list[Contribution]
    start: int | None = None
    end: int | None = None
    baseline: float | None = None


@dataclass(frozen=True)
class Decision:
    """A number of a head that is explained.

    Attributes:
        target: its row in the logits of a sample.
        output: its column.
        label: what it is the number of.
        exclusive: whether its probability is that of a softmax over the row; otherwise it is a sigmoid, or a number.
        temperature: what logits are divided by before they become probabilities.
        at: name of the positions at whose tokens the rows are read, if these are of words.
    """

    target: int
    output: int
    label: str
    exclusive: bool
    temperature: float = 1.0
    at: str | None = None

    def value(self, logits: Tensor) -> Tensor:
        """Return the log-odds, or the number of a regression, (...), of logits, (..., targets, outputs)."""
        row = logits[..., self.target, :] / self.temperature  # (..., outputs)
        if not self.exclusive:
            return row[..., self.output]
        others = torch.arange(row.shape[-1], device=row.device) != self.output
        return row[..., self.output] - row[..., others].logsumexp(-1)


class Word(msgspec.Struct, frozen=True):
    """A word of an example: its offsets in its text, in code points, and the text's number."""

    start: int
    end: int
    text: int = 0


@dataclass(frozen=True)
class SampleWords:
    """The words of a sample.

    Attributes:
        example: index of the example that the sample belongs to.
        words: the words that it has, in order.
        index: (tokens,) index of each token's word; -1 for special tokens.
    """

    example: int
    words: list[Word]
    index: np.ndarray


def split_words(tokenizer: Tokenizer, text: str) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Split a text into words.

    Words are those of the vocabulary's pre-tokenizer. Some do not split scripts that are written without spaces: there
    a token that begins with one of their characters, and not with a mark on it, also begins a word.

    Returns:
        Start and end of each word in the text, in code points, and for each token the index of its word, (tokens,).
    """
    (_, numbers), (_, offsets) = tokenizer.encode_words([text])[0], tokenizer.encode_offsets(text)
    spans, index = list[tuple[int, int]](), np.zeros(len(offsets), np.int64)
    for token, (start, end) in enumerate(offsets):
        begins = not token or numbers[token] != numbers[token - 1]
        if begins or (start >= spans[-1][1] and UNSPACED.match(text, start) and not is_mark(text[start])):
            spans.append((start, end))
        else:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        index[token] = len(spans) - 1
    return [_stripped(text, *span) for span in spans], index


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the white space around it, which some vocabularies count to a word."""
    inner = text[start:end]
    start = min(end, start + len(inner) - len(inner.lstrip()))
    return start, max(start, end - len(inner) + len(inner.rstrip()))


def describe(prediction: Any, explanation: Explanation) -> str:
    """Return an explanation of a prediction as a line: what is explained, and the texts with their words marked."""
    texts = [text for text in (prediction.text, getattr(prediction, "text_b", None)) if text is not None]
    word = "" if explanation.start is None else f" {texts[0][explanation.start : explanation.end]}"
    return f"{explanation.label}{word}: {mark_words(texts, explanation)}"


def mark_words(texts: Sequence[str], explanation: Explanation) -> str:
    """Return texts with the words marked that contribute most to a decision.

    {+word+} speaks for the decision, [-word-] against it, as in the output of wdiff. Marked are those with at least
    `MARKED` of the largest contribution.
    """
    least = MARKED * max((abs(word.contribution) for word in explanation.words), default=0.0)
    parts = []
    for number, text in enumerate(texts):
        end = 0
        for word in explanation.words:
            if word.text != number or not word.contribution or abs(word.contribution) < least:
                continue
            spelled = text[word.start : word.end]
            parts += [text[end : word.start], f"{{+{spelled}+}}" if word.contribution > 0 else f"[-{spelled}-]"]
            end = word.end
        parts += [text[end:], "\t"]
    return "".join(parts[:-1])
