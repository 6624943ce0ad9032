"""Cut passages into overlapping windows of one length, each behind its question: [CLS] question [SEP] window [SEP].

In: questions with passages. Out: windows, and for training in each the place of the answer.

Devlin et al. 2019, section 4.2; `convert_examples_to_features` of run_squad.py in google-research/bert, whose windows
these are: they start every `stride` tokens, and the last one ends with the passage.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.labelled.squad_file import Question
from unmask.tokenizers.tokenizer import Ids, Tokenizer

LABEL = "question_answering"
"""Under this name a window says at which of its tokens the answer starts and ends."""


@dataclass(frozen=True)
class Cut:
    """How passages are cut.

    Attributes:
        length: of a window in tokens, the question and special tokens included.
        stride: by how many tokens of the passage the next window starts later.
        question: the longest question, in tokens; what is longer is cut at its end.
        no_answer: whether [CLS] may be pointed at, as the place of "no answer" (in GPT the last token, which has seen
            all).
    """

    length: int
    stride: int
    question: int
    no_answer: bool


@dataclass(frozen=True)
class Window:
    """One window.

    Attributes:
        example: number of its question.
        offsets: characters of the passage where each of its passage tokens begins and ends, (tokens, 2).
        sample: what the encoder reads; the position "passage" is that of the passage's tokens, after that of [CLS]
            where no answer is possible.
        cut: whether its question was cut.
    """

    example: int
    offsets: np.ndarray
    sample: Sample
    cut: bool = False


@dataclass(frozen=True)
class _Passage:
    ids: Ids
    offsets: np.ndarray


def starts(tokens: int, room: int, stride: int) -> list[int]:
    """Return where windows of at most `room` of so many tokens begin."""
    found = [0]
    while found[-1] + room < tokens:
        found.append(found[-1] + min(room, stride))
    return found


def span_of(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token that has one of these characters; None: no token has.

    Args:
        offsets: of the tokens, (tokens, 2).
        start, end: characters of the passage, the end exclusive.
    """
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def with_marks(text: str, offsets: np.ndarray) -> np.ndarray:
    """Return places of tokens of which each also has the accents behind it that no token has.

    Uncased vocabularies drop what combines with a letter; an answer that ends there is to have it nevertheless.

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


def cut(
    tokenizer: Tokenizer, examples: Sequence[Question], how: Cut, *, gold: bool
) -> tuple[list[Window], tuple[str, ...]]:
    """Cut all passages.

    Args:
        tokenizer: makes the tokens.
        examples: the questions.
        how: settings.
        gold: whether to label the windows, and to leave out those that have nothing to learn from.

    Returns:
        The windows, in the order of the questions, and what the user should know of what was cut or left out.
    """
    texts = list(dict.fromkeys(example.passage for example in examples))
    encoded = tokenizer.encode_offsets_many(texts)
    passages = {
        text: _Passage(ids, with_marks(text, offsets)) for text, (ids, offsets) in zip(texts, encoded, strict=True)
    }
    questions = tokenizer.encode_many([example.question for example in examples])
    frame = Frame.of(tokenizer)
    made: list[Window] = []
    counts: Counter[str] = Counter()
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        too_long = len(question) > how.question
        counts[f"questions cut after {how.question} tokens"] += too_long
        question = question[: how.question]
        passage = passages[example.passage]
        room = frame.capacity(how.length, texts=2) - len(question)
        begins = starts(len(passage.ids), room, max(1, how.stride + 1 - frame.between))  # settings reckon with one
        answer = _answer(example, passage.offsets) if gold else None
        if gold and (reason := _nothing_to_learn(example, answer, room, how.no_answer)):
            counts[f"questions left out of the loss, as {reason}"] += 1
            continue
        if answer and not any(begin <= answer[0] and answer[1] < begin + room for begin in begins):
            begins.append(_around(answer, room, len(passage.ids)))
        for begin in begins:
            window = _window(frame, number, question, passage, slice(begin, begin + room), how)
            if gold:
                place = _place(answer, begin, len(window.offsets))
                if place is None and not how.no_answer:
                    counts["windows left out of the loss, as the answer is not in them"] += 1
                    continue
                shift = frame.start + len(question) + frame.between
                none = int(window.sample.positions["summary"][0])
                label = (none, none) if place is None else (place[0] + shift, place[1] + shift)
                window = Window(number, window.offsets, window.sample.add(labels={LABEL: np.array(label)}))
            made.append(Window(number, window.offsets, window.sample.named((0, len(made))), too_long))
    return made, tuple(f"{what}: {count:,}" for what, count in counts.items() if count)


def _window(frame: Frame, number: int, question: Ids, passage: _Passage, part: slice, how: Cut) -> Window:
    ids, first = passage.ids[part], frame.start + len(question) + frame.between
    sample, places = frame.wrap(question, ids), np.arange(first, first + len(ids))
    if how.no_answer:
        places = np.concatenate([sample.positions["summary"], places])
    return Window(number, passage.offsets[part], sample.add(positions={"passage": places}))


def _answer(example: Question, offsets: np.ndarray) -> tuple[int, int] | None:
    """Return first and last token of the first gold answer that the passage has."""
    for answer in example.answers:
        if answer.start is not None and (span := span_of(offsets, answer.start, answer.start + len(answer.text))):
            return span
    return None


def _nothing_to_learn(example: Question, answer: tuple[int, int] | None, room: int, no_answer: bool) -> str:
    """Say why a question cannot serve for training; "" where it can."""
    if example.impossible:
        return "" if no_answer else "they have no answer, and the model always gives one"
    if answer is None:
        return "no gold answer stands in the passage"
    return "" if answer[1] - answer[0] < room else "the answer is longer than a window"


def _around(answer: tuple[int, int], room: int, tokens: int) -> int:
    """Return where a window begins that has an answer, which no other window has, in its middle."""
    return max(0, min(tokens - room, (answer[0] + answer[1] + 1 - room) // 2))


def _place(answer: tuple[int, int] | None, begin: int, tokens: int) -> tuple[int, int] | None:
    """Return the answer's first and last token, counted from the window's begin; None where not all of it is there."""
    if answer is None or answer[0] < begin or answer[1] >= begin + tokens:
        return None
    return answer[0] - begin, answer[1] - begin
