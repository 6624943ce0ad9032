"""Passages as overlapping windows of one length, and the exact search for the best spans in their logits.

Input: questions with passages. Output: windows, labeled with the position of the answer for training; given the logits
of starts and ends, the best spans of each passage.

A window is [CLS] question [SEP] window [SEP], or XLNet's window [SEP] question [SEP] [CLS] (run_squad.py of
zihangdai/xlnet). Devlin et al. 2019, section 4.2; the windows are those of `convert_examples_to_features` in
run_squad.py of google-research/bert: one starts every `stride` tokens, and the last one ends with the passage.

For the search the candidate tokens of a batch form a table with a row per window and a column per position: softmaxes
over the tokens of a window need it; heads and their outputs have one row per candidate.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.frame import Frame
from unmask.data.labelled.question_files import Question
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer


def best_spans(starts: np.ndarray, ends: np.ndarray, longest: int, number: int) -> list[tuple[float, int, int]]:
    """Return the spans of at most `longest` tokens with the highest sums of logits, unordered.

    Args:
        starts, ends: logits, each (tokens,).
        longest: maximum length of a span in tokens.
        number: maximum number of spans.

    Returns:
        The score, the first token and the last token of each span.
    """
    tokens = len(starts)
    if not tokens:
        return []
    width = min(longest, tokens)
    beyond = np.full(width - 1, -np.inf, ends.dtype)
    band = np.lib.stride_tricks.sliding_window_view(np.concatenate([ends, beyond]), width)  # (tokens, width)
    scores = (band + starts[:, None]).ravel()  # (tokens * width,): by start, then by end - start
    chosen = np.argpartition(-scores, min(number, scores.size) - 1)[:number]
    return [
        (float(scores[index]), int(index // width), int(index // width + index % width))
        for index in chosen
        if scores[index] > -np.inf
    ]


def sequences_of(batch: Batch) -> Tensor:
    """Return the sequence of each candidate, (candidates,)."""
    ends = batch.tokens.offsets[1:]
    return (batch.positions["passage"][:, None] >= ends).sum(1)  # not by bucketize, which is exported with wrong ends


class Candidates:
    """See the module. Windows without candidates have no row; with labels, all shapes are known on the host.

    Args:
        batch: its sequences are windows, and its positions "passage" the candidates.
        windows: number of windows with candidates; None: it is found.

    Attributes:
        row: (candidates,) window of each candidate.
        position: (candidates,) its position in its sequence.
        sequence: (windows,) sequence of each window in the batch.
    """

    def __init__(self, batch: Batch, windows: int | None = None) -> None:
        at, tokens, sequence = batch.positions["passage"], batch.tokens, sequences_of(batch)
        self.row = (sequence.diff(prepend=sequence[:1]) > 0).cumsum(0)
        self.windows = windows if windows is not None else (int(self.row[-1]) + 1 if len(self.row) else 0)
        self.longest = max(group.longest for group in tokens.groups)
        self.position = tokens.position_ids.index_select(0, at)
        self.sequence = sequence.new_zeros(self.windows).scatter(0, self.row, sequence)
        self._index = self.row * self.longest + self.position

    def table(self, values: Tensor) -> Tensor:
        """Return values of the candidates, (candidates, ...), as a table, (windows, longest, ...), -inf elsewhere."""
        empty = values.new_full((self.windows * self.longest, *values.shape[1:]), -torch.inf)
        return empty.index_copy(0, self._index, values).view(self.windows, self.longest, *values.shape[1:])

    def of_table(self, table: Tensor) -> Tensor:
        """Return the values of the candidates, (candidates,), from a table, (windows, longest)."""
        return table.reshape(-1).index_select(0, self._index)

    def find(self, positions: Tensor) -> Tensor:
        """Return the candidate at a position of each window, (windows,), given its position in the sequence."""
        numbers = self.row.new_zeros(self.windows * self.longest)
        numbers = numbers.index_copy(0, self._index, torch.arange(len(self.row), device=self.row.device))
        return numbers.view(self.windows, self.longest).gather(1, positions[:, None]).squeeze(1)


LABEL = "question_answering"
"""Name of the label that holds the positions in the window of the first and the last token of the answer."""


@dataclass(frozen=True)
class WindowSettings:
    """Settings of the windows.

    Attributes:
        length: maximum length of a window in tokens, including the question and special tokens.
        stride: number of passage tokens between the starts of two windows.
        question: maximum length of a question in tokens; longer ones are truncated.
        no_answer: whether [CLS] is a candidate that stands for "no answer" (in GPT the last token, the only one that
            has seen the whole sequence).
    """

    length: int
    stride: int
    question: int
    no_answer: bool


@dataclass(frozen=True)
class PassageWindow:
    """One window.

    Attributes:
        example: index of its question.
        offsets: start and end of each passage token in the passage, in characters, (tokens, 2).
        sample: the input of the encoder; its positions "passage" are those of the passage tokens, preceded by that of
            [CLS] if "no answer" is possible.
        cut: whether the question was truncated.
        answered: whether the gold answer is entirely inside.
    """

    example: int
    offsets: np.ndarray
    sample: Sample
    cut: bool = False
    answered: bool = False


class Asked(NamedTuple):
    """What is asked about a passage.

    Attributes:
        ids: the tokens of the question, with what precedes it.
        cut: whether it was truncated.
        marked: spans of the passage to be enclosed in [MASK] tokens, in characters.
    """

    ids: Ids
    cut: bool = False
    marked: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class _Passage:
    ids: Ids
    offsets: np.ndarray


def window_starts(tokens: int, capacity: int, stride: int) -> list[int]:
    """Return the start of each window of at most `capacity` tokens over a passage of `tokens` tokens."""
    starts = [0]
    while starts[-1] + capacity < tokens:
        starts.append(starts[-1] + min(capacity, stride))
    return starts


def token_span(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token that overlap a span of characters; None if no token does.

    Args:
        offsets: character offsets of the tokens, (tokens, 2).
        start, end: character offsets in the passage, `end` exclusive.
    """
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def extend_over_marks(text: str, offsets: np.ndarray) -> np.ndarray:
    """Extend each token over the combining marks that follow it and belong to no token; return the offsets.

    Uncased vocabularies drop combining marks; an answer that ends with such a letter must still include its mark.

    Shape:
        offsets: (tokens, 2); so is the result.
    """
    if text.isascii() or not len(offsets):
        return offsets
    offsets, following = offsets.copy(), [*offsets[1:, 0].tolist(), len(text)]
    for token, limit in enumerate(following):
        end = offsets[token, 1]
        while end < limit and unicodedata.category(text[end]).startswith("M"):
            end += 1
        offsets[token, 1] = end
    return offsets


def ask(tokenizer: Tokenizer, examples: Sequence[Question], most: int) -> list[Asked]:
    """Return the first `most` tokens of each question."""
    questions = tokenizer.encode_many([example.question for example in examples])
    return [Asked(ids[:most], len(ids) > most) for ids in questions]


def cut_passages(
    tokenizer: Tokenizer,
    examples: Sequence[Question],
    settings: WindowSettings,
    *,
    gold: bool,
    asked: Sequence[Asked] | None = None,
) -> tuple[list[PassageWindow], tuple[str, ...]]:
    """Divide all passages into windows.

    Args:
        tokenizer: the tokenizer.
        examples: the questions.
        settings: the settings of the windows.
        gold: whether to label the windows and to leave out those that cannot be used for training.
        asked: what is asked in each example; None: the questions.

    Returns:
        The windows in the order of the questions, and messages for the user about what was truncated or left out.
    """
    texts = list(dict.fromkeys(example.passage for example in examples))
    encoded = tokenizer.encode_offsets_many(texts)
    passages = {
        text: _Passage(ids, extend_over_marks(text, offsets))
        for text, (ids, offsets) in zip(texts, encoded, strict=True)
    }
    frame = Frame.of(tokenizer)
    made: list[PassageWindow] = []
    counts: Counter[str] = Counter()
    asked = ask(tokenizer, examples, settings.question) if asked is None else asked
    for number, (example, (question, too_long, marked)) in enumerate(zip(examples, asked, strict=True)):
        counts[f"questions truncated to {settings.question} tokens"] += too_long
        passage = _mark(passages[example.passage], marked, tokenizer.mask)
        capacity = frame.capacity(settings.length, texts=2) - len(question)
        stride = max(1, settings.stride + 1 - frame.between)  # the settings assume one separator between the texts
        starts = window_starts(len(passage.ids), capacity, stride)
        answer = _answer(example, passage.offsets) if gold else None
        if gold and (reason := _unusable(example, answer, capacity, settings.no_answer)):
            counts[f"questions left out of the loss because {reason}"] += 1
            continue
        if answer and not any(start <= answer[0] and answer[1] < start + capacity for start in starts):
            starts.append(_around(answer, capacity, len(passage.ids)))
        for start in starts:
            window = _window(frame, number, question, passage, slice(start, start + capacity), settings)
            if gold:
                span = _within(answer, start, len(window.offsets))
                if span is None and not settings.no_answer:
                    counts["windows left out of the loss because they do not contain the answer"] += 1
                    continue
                shift = _first_token(frame, question)
                none = int(window.sample.positions["summary"][0])
                label = (none, none) if span is None else (span[0] + shift, span[1] + shift)
                window = replace(window, sample=window.sample.add(labels={LABEL: np.array(label)}))
                window = replace(window, answered=span is not None)
            made.append(replace(window, sample=window.sample.named((0, len(made))), cut=too_long))
    read = [*(passage.ids for passage in passages.values()), *(question for question, *_ in asked)]
    notes = tokenizer.notes(read, (*texts, *(example.question for example in examples)))
    return made, (*(f"{what}: {count:,}" for what, count in counts.items() if count), *notes)


def _mark(passage: _Passage, marked: Sequence[tuple[int, int]], marker: int) -> _Passage:
    """Return a passage with a marker, an empty span of characters, before and after each of some spans."""
    spans = [span for place in marked if (span := token_span(passage.offsets, *place))]
    if not spans:
        return passage
    at = [edge for first, last in spans for edge in (first, last + 1)]
    borders = [edge for first, last in spans for edge in (passage.offsets[first, 0], passage.offsets[last, 1])]
    empty = np.stack([borders, borders], 1)  # (markers, 2)
    return _Passage(np.insert(passage.ids, at, marker), np.insert(passage.offsets, at, empty, 0))


def _window(
    frame: Frame, number: int, question: Ids, passage: _Passage, part: slice, settings: WindowSettings
) -> PassageWindow:
    ids = passage.ids[part]
    sample = frame.wrap(ids, question) if frame.last else frame.wrap(question, ids)
    positions = _first_token(frame, question) + np.arange(len(ids))
    if settings.no_answer:
        positions = np.concatenate([sample.positions["summary"], positions])
    return PassageWindow(number, passage.offsets[part], sample.add(positions={"passage": positions}))


def _first_token(frame: Frame, question: Ids) -> int:
    """Return the position of the passage's first token; where [CLS] is last, the passage comes before the question."""
    return frame.start if frame.last else frame.start + len(question) + frame.between


def _answer(example: Question, offsets: np.ndarray) -> tuple[int, int] | None:
    """Return the first and the last token of the first gold answer that occurs in the passage."""
    for answer in example.answers:
        if answer.start is not None and (span := token_span(offsets, answer.start, answer.start + len(answer.text))):
            return span
    return None


def _unusable(example: Question, answer: tuple[int, int] | None, capacity: int, no_answer: bool) -> str:
    """Return why a question cannot be used for training; "" if it can."""
    if example.impossible:
        return "" if no_answer else "they have no answer, but the model always gives one"
    if answer is None:
        return "no gold answer occurs in the passage"
    return "" if answer[1] - answer[0] < capacity else "the answer is longer than a window"


def _around(answer: tuple[int, int], capacity: int, tokens: int) -> int:
    """Return the start of a window with the answer in its middle, for an answer that lies in no regular window."""
    return max(0, min(tokens - capacity, (answer[0] + answer[1] + 1 - capacity) // 2))


def _within(answer: tuple[int, int] | None, start: int, tokens: int) -> tuple[int, int] | None:
    """Return the answer's first and last token relative to the window's start; None if it is not entirely inside."""
    if answer is None or answer[0] < start or answer[1] >= start + tokens:
        return None
    return answer[0] - start, answer[1] - start
