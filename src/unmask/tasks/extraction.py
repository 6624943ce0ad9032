"""Base of the tasks whose answers are spans of a passage: their windows, and the search for the best spans.

Input: windows and their logits. Output: for each question the spans with the highest scores.

The windows and the search are those of BERT on SQuAD; see `question_answering`, which has the differences from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import torch

from unmask.data.batches.frame import Frame
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.question_files import Question, check_ids
from unmask.support.errors import UserError, check_unicode, refuse_idle
from unmask.support.messages import argument, call
from unmask.tasks.holding_out import choose_enough_units
from unmask.tasks.mistakes import Mark, Mistake, Passage
from unmask.tasks.passage_windows import PassageWindow, WindowSettings, best_spans
from unmask.tasks.routes import AnswerRequest, Route
from unmask.tasks.task import Columns, Notes, Paths, Reason, Refusals, Task


class Span(msgspec.Struct, frozen=True):
    """One possible answer.

    Attributes:
        answer: a span of the passage; "" for no answer.
        start, end: character offsets in the passage, `end` exclusive; None for no answer.
        probability: the probability, normalized over the listed answers.
    """

    answer: str
    start: int | None
    end: int | None
    probability: float


class Answered(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question with its answer, a span of the passage or another text.

    Attributes:
        id, question: the id and the question as given.
        answer, start, end, probability: the chosen answer; see `Span`.
        nbest: the most probable answers, with distinct texts; includes "" if the model may give no answer.
        cut: whether the question was truncated because it exceeds the task's `question`.
    """

    id: str
    question: str
    answer: str
    start: int | None
    end: int | None
    probability: float
    nbest: tuple[Span, ...]
    cut: bool = False

    @property
    def best_answer(self) -> str:
        """The best answer that is not "no answer"; "" if there is none."""
        return next((span.answer for span in self.nbest if span.start is not None), "")

    @property
    def margin(self) -> float:
        """Score of "no answer" minus that of the best answer, in logits; 0 if either is missing."""
        none = [span.probability for span in self.nbest if span.start is None]
        answered = [span.probability for span in self.nbest if span.start is not None]
        tiny = np.finfo(float).tiny
        return float(np.log(max(none[0], tiny)) - np.log(max(answered[0], tiny))) if none and answered else 0.0


Texts = str | Sequence[str] | Mapping[str, str]
"""A passage, several, or several with their titles."""
ANSWER = Route(
    "/answer",
    "Answer a question from a passage.",
    AnswerRequest,
    dict[str, Any],
    lambda task, request: [task.pose(request.question, request.passage, request.history)],
    lambda task, request, predictions, outputs: predictions[0],
    f"{argument('question')}, {argument('passage')} or {argument('history')}: a text is empty, or the model reads no "
    "history, or one passage without a title only",
    {"question": "Where did she live?", "passage": "Ada Lovelace lived in London."},
    view="answer",
)
"""The route of tasks whose answers are found in passages."""


@dataclass
class SearchResult:
    """What the windows of a question contain.

    Attributes:
        spans: the score of each span, given as start and end in characters of the passage.
        score: the score of the best span; minus infinity if there is none.
        null: the score of "no answer", the lowest of all windows; infinity if there is none.
        cut: whether the question was truncated.
        windows: the numbers of its windows.
        best: the number of the window with the best span; None if there is no span.
        empty: the number of the window with the lowest score of "no answer".
    """

    spans: dict[tuple[int, int], float] = field(default_factory=dict)
    score: float = -np.inf
    null: float = np.inf
    cut: bool = False
    windows: list[int] = field(default_factory=list)
    best: int | None = None
    empty: int | None = None


class Form(NamedTuple):
    """The published format of the files of a task.

    Attributes:
        name: its name.
        read: reads all questions of some files, with answers if `gold` is set.
        describe: returns what was repaired or left out in them, one line each.
    """

    name: str
    read: Callable[..., list[Any]]
    describe: Callable[[list[Any]], list[str]]


class Extraction(Task, frozen=True, kw_only=True):
    """Base class of tasks whose answers are spans of a passage; see `Task`.

    Attributes:
        length: maximum length of a window in tokens, including the question and special tokens.
        stride: number of passage tokens between the starts of two windows; 0: a third of `length`, at most 128.
        question: maximum length of a question in tokens, the rest is cut off; 0: a sixth of `length`, at most 64.
        answer: maximum length of an answer in tokens; 0: a twelfth of `length`, at most 30.
        best: number of answers to list.
        question_share: the divisor of `length`, and the maximum, of the default of `question`.
        form: the format of its files.
    """

    length: int = 384
    stride: int = 0
    question: int = 0
    answer: int = 0
    best: int = 20

    metric = "f1"
    route = ANSWER
    refusals: ClassVar[Refusals] = {
        "vocabulary": Reason(
            "answers are predicted as tokens", f"choose a student of its family: pass {argument('layers', 'N')}"
        )
    }
    question_share: ClassVar[tuple[int, int]] = (6, 64)
    form: ClassVar[Form]

    def __post_init__(self) -> None:
        super().__post_init__()
        # resolved here so that numbers are stored with a model, even if the rule changes later
        for name, divisor, most in (("stride", 3, 128), ("question", *self.question_share), ("answer", 12, 30)):
            if getattr(self, name) == 0:
                msgspec.structs.force_setattr(self, name, max(1, min(most, self.length // divisor)))
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.best < 1:
            raise ValueError("best must be at least 1")
        capacity = Frame(0, 0).capacity(self.length, texts=2) - self.question
        if capacity - self.stride < self.answer:
            raise ValueError(
                f"windows with {capacity} tokens of a passage, {self.stride} apart, do not hold every answer of "
                f"{self.answer} tokens: increase length, or decrease stride, question or answer"
            )

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Any]:
        """See `Task`."""
        refuse_idle(f": questions are read in {self.form.name} format (JSON)", columns=columns, format=kind)
        questions = self.form.read(paths, gold=gold)
        if notes is not None:
            notes += self.form.describe(questions)
        return questions

    def texts(self, example: Any) -> tuple[str, ...]:
        """See `Task`."""
        return example.question, example.passage

    def check_distinct(self, examples: Sequence[Question]) -> None:
        """See `Task`."""
        check_ids(examples)

    def choose_held(
        self, examples: Sequence[Any], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """See `Task`: a tenth of the passages, with all their questions."""
        return choose_passages(examples, seed)

    def pose(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> Question:
        """Return a question, asked from a program or a command line, as an example.

        Args:
            question: the question.
            passage: the passage; for tasks over several passages, these, or a mapping of titles to passages.
            history: the earlier questions of the dialogue and their answers, the oldest first.

        Raises:
            UserError: something is empty, or the task does not read several passages, or a history.
        """
        if history:
            raise UserError(
                f"models of {self.title} read no history",
                remedy=f"leave it out, or fine-tune a model on dialogues: {call('finetune', 'quac')}",
            )
        return Question("", question, only_passage(self, question, passage))

    def windows(self, *, none: bool) -> WindowSettings:
        """Return the settings of the windows; `none`: whether [CLS] is a candidate, which stands for "no answer"."""
        return WindowSettings(self.length, self.stride, self.question, none)

    def search(
        self,
        examples: Sequence[Question],
        windows: Sequence[PassageWindow],
        logits: Sequence[np.ndarray],
        *,
        none: bool,
        bonus: Sequence[float] | None = None,
    ) -> list[SearchResult]:
        """Return what the windows of each question contain: the best spans of each window.

        Args:
            examples: the questions.
            windows: their windows.
            logits: those of the start and the end of each candidate token of a window, (tokens, 2).
            none: whether the first candidate is [CLS].
            bonus: a number to add to the scores of all spans of each window.
        """
        results = [SearchResult() for _ in examples]
        for number, (window, values) in enumerate(zip(windows, logits, strict=True)):
            result, passage = results[window.example], examples[window.example].passage
            result.cut = window.cut
            result.windows.append(number)
            if none:
                if (null := float(values[0].sum())) < result.null:
                    result.null, result.empty = null, number
                values = values[1:]
            blank = [not passage[start:end].strip() for start, end in window.offsets.tolist()]
            values = np.where(np.array(blank, bool)[:, None], -np.inf, values)  # no answer starts or ends with a space
            more = 0.0 if bonus is None else bonus[number]
            for score, first, last in best_spans(values[:, 0], values[:, 1], self.answer, self.best):
                characters = int(window.offsets[first, 0]), int(window.offsets[last, 1])
                score += more
                if score > result.score:
                    result.score, result.best = score, number
                result.spans[characters] = max(score, result.spans.get(characters, -np.inf))
        return results

    def list_spans(
        self, example: Question, spans: Mapping[tuple[int, int], float], null: float = np.inf
    ) -> tuple[tuple[Span, ...], float]:
        """Return the best spans with distinct texts, the best first, and the score of the best.

        If `null`, the score of "no answer", is finite, "" is among them.
        """
        texts: dict[str, tuple[float, int | None, int | None]] = {}
        for (start, end), score in sorted(spans.items(), key=lambda item: (-item[1], item[0])):
            if start < end and len(texts) < self.best:
                texts.setdefault(example.passage[start:end], (score, start, end))
        best = max((score for score, _, _ in texts.values()), default=-np.inf)
        if null < np.inf:
            texts[""] = (null, None, None)
        rows = sorted(texts.items(), key=lambda item: -item[1][0])
        probabilities = torch.tensor([row[1][0] for row in rows], dtype=torch.float64).softmax(0).tolist()
        listed = [
            Span(text, start, end, probability)
            for (text, (_, start, end)), probability in zip(rows, probabilities, strict=True)
        ]
        return tuple(listed), best


def choose_passages(examples: Sequence[Any], seed: int) -> np.ndarray:
    """Choose a tenth of the questions, with all others about an equal passage; see `Task.choose_held`.

    Args:
        examples: examples with a `passage` and a `file`.
        seed: seed of the random choice.
    """
    passages = Identities.of((example.passage,) for example in examples)
    return choose_enough_units(examples, passages.firsts().tolist(), seed, what="passage")


def only_passage(task: Task, question: str, passage: Texts) -> str:
    """Return the one passage of a question.

    Raises:
        UserError: there are several, or one of the texts is empty or not valid Unicode.
    """
    if isinstance(passage, Sequence) and not isinstance(passage, str) and len(passage) == 1:
        passage = passage[0]
    if not isinstance(passage, str) and isinstance(passage, Mapping | Sequence):
        raise UserError(
            f"models of {task.title} read one passage, without a title",
            remedy=f"give one, or fine-tune a model on several: {call('finetune', 'hotpotqa')}",
        )
    check_asked(question, passage)
    return passage


def check_asked(question: str, *passages: str) -> None:
    """Check the texts of a question.

    Raises:
        UserError: one is empty or not valid Unicode.
    """
    check_unicode((question, *passages))
    if not question.strip() or not all(passage.strip() for passage in passages):
        raise UserError("the question or the passage is empty", remedy="give both")


def check_answers(examples: Sequence[Question]) -> None:
    """Check that each question with an answer can be trained on, and that there is one.

    Raises:
        UserError: the answer of a question occurs nowhere in its passage, or no question has an answer.
    """
    for example in examples:
        if not example.impossible and all(answer.start is None for answer in example.answers):
            raise UserError(
                f"{example.place}: the answer '{example.answers[0].text[:40]}' occurs nowhere in its passage",
                file=example.file,
                remedy="correct or remove the question",
            )
    if all(example.impossible for example in examples):
        raise UserError(f"none of the {len(examples)} questions has an answer", file=examples[0].file)


def span_mistake(example: Question, predicted: Answered, gold: Sequence[str], answer: str, before: str = "") -> Mistake:
    """Return the description of a wrong answer.

    Args:
        example: the question.
        predicted: the prediction.
        gold: the gold answers.
        answer: the prediction as text.
        before: the earlier turns of the dialogue.
    """
    spans = {(answer.start, answer.start + len(answer.text)) for answer in example.answers if answer.start is not None}
    marks = tuple(Mark(start, end) for start, end in sorted(spans))
    marked = () if predicted.start is None or predicted.end is None else (Mark(predicted.start, predicted.end),)
    texts = [Passage(before, "before")] if before else []
    texts += [Passage(example.question, "question"), Passage(example.passage, "passage", marks, marked)]
    wanted = " | ".join(dict.fromkeys(text or "no answer" for text in gold)) or "no answer"
    caption = f"{example.file}: {example.id}"
    return Mistake(tuple(texts), caption, predicted.probability, "probability", wanted, answer or "no answer")
