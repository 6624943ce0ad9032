"""How a task is asked by the server: its route, what a request holds, which examples it is, and what is answered.

Requests are msgspec types: they decode, check and document. A field that is unknown is refused rather than ignored.
`/predict` is that of Text Embeddings Inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import Meta

from unmask.support.choices import PromptName
from unmask.support.errors import UserError
from unmask.support.messages import argument

Name = Annotated[str, Meta(max_length=200, description="Name of the model; by default the first one that can do it.")]
Texts = Annotated[str | list[str], Meta(description="One text or several.")]
TextsOrIds = Annotated[
    str | list[str | int | list[int]],
    Meta(description="A text or several, or the token ids of one or several texts, special tokens included."),
]
Direction = Literal["right", "left", "Right", "Left"]
"""The end at which texts that are too long are truncated; Text Embeddings Inference spells it in both ways."""


class Truncation(NamedTuple):
    """What is done with texts that are too long.

    Attributes:
        wanted: whether they are truncated; otherwise they are refused.
        left: whether they are truncated at their beginning.
    """

    wanted: bool
    left: bool = False

    @classmethod
    def of(cls, request: Any) -> Truncation:
        """Return what a request wants in its fields `truncate` and `truncation_direction`."""
        return cls(bool(request.truncate), request.truncation_direction.lower() == "left")


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base class of requests."""

    model: Name | None = None


class TaskRequest(Request):
    """Base class of requests that a task answers."""

    def texts(self) -> list[list[str]]:
        """Return the texts of each input; their number and lengths are checked before they are tokenized.

        Raises:
            UserError: the inputs are not as described.
        """
        raise NotImplementedError

    @property
    def left(self) -> bool:
        """Whether texts are truncated at their beginning."""
        return False

    def truncated(self, characters: int) -> Self | None:
        """Return the request with at most so many characters of each text; None: it refuses to be truncated."""
        return self


class VectorsRequest(TaskRequest):
    """Texts whose vectors are wanted, as Text Embeddings Inference is asked for those of tokens and for sparse ones.

    Attributes:
        inputs: one text or several, or token ids with special ones, as `/tokenize` returns them.
        truncate: whether texts that are too long are truncated; otherwise they are refused.
        truncation_direction: the end at which they are truncated, "right" or "left".
        prompt_name: the prompt of the model that texts begin with, "query" or "document"; None: the default one.
    """

    inputs: TextsOrIds
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: PromptName | None = None

    @property
    def left(self) -> bool:
        """See `TaskRequest`."""
        return Truncation.of(self).left


class PredictRequest(TaskRequest):
    """Texts to classify, or to predict a number for.

    Attributes:
        inputs: a text; a pair `[text, text]`; or a batch of them, `[[text], [text, text], ...]`.
        truncate: whether texts that are too long are truncated; otherwise they are refused.
        truncation_direction: the end at which they are truncated, "right" or "left".
        raw_scores: whether to return logits instead of probabilities.
    """

    inputs: str | Annotated[list[str | Annotated[list[str], Meta(min_length=1, max_length=2)]], Meta(min_length=1)]
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    raw_scores: bool = False

    @property
    def left(self) -> bool:
        """See `TaskRequest`."""
        return Truncation.of(self).left

    @property
    def single(self) -> bool:
        """Whether this is one text or pair, not a batch."""
        return isinstance(self.inputs, str) or isinstance(self.inputs[0], str)

    def texts(self) -> list[list[str]]:
        """See `TaskRequest`: texts or pairs."""
        if isinstance(self.inputs, str):
            return [[self.inputs]]
        flat = [text for text in self.inputs if isinstance(text, str)]
        nested = [texts for texts in self.inputs if not isinstance(texts, str)]
        if (flat and nested) or len(flat) > 2 or len(set(map(len, nested))) > 1:
            raise UserError("the inputs are not of one kind")
        return nested or [flat]

    def truncated(self, characters: int) -> Self | None:
        """See `TaskRequest`."""
        if not self.truncate:
            return None
        kept = slice(-characters, None) if self.left else slice(characters)
        inputs: list[str | list[str]] = [[text[kept] for text in texts] for texts in self.texts()]
        return msgspec.structs.replace(self, inputs=inputs[0] if self.single else inputs)


class Scored(msgspec.Struct, omit_defaults=True):
    """A label with its probability, or its logit; the number of a regression has the label "score".

    Attributes:
        score: the probability.
        label: the label.
        predicted: whether the label is predicted, if that is not the one with the highest score alone.
    """

    score: float
    label: str
    predicted: bool | None = None


class TagRequest(TaskRequest):
    """Texts whose entities are wanted; long texts are read in windows."""

    inputs: Texts

    def texts(self) -> list[list[str]]:
        """See `TaskRequest`."""
        return [[text] for text in ([self.inputs] if isinstance(self.inputs, str) else self.inputs)]


class MarkedSpan(msgspec.Struct, forbid_unknown_fields=True):
    """A span of a text: its offsets in code points, `end` exclusive, and its label."""

    start: int
    end: int
    label: str


class RelateRequest(TaskRequest):
    """A text with the spans whose relations are wanted.

    Attributes:
        text: the text.
        spans: two or more spans.
    """

    text: str
    spans: Annotated[list[MarkedSpan], Meta(min_length=2, max_length=100)]

    def texts(self) -> list[list[str]]:
        """See `TaskRequest`."""
        return [[self.text]]


class AnswerRequest(TaskRequest):
    """A question about a passage.

    Attributes:
        question: the question.
        passage: the text with the answer; for models that read several passages, these, or a mapping of titles to them.
        history: for models of dialogues, the earlier questions and their answers.
    """

    question: str
    passage: str | list[str] | dict[str, str]
    history: list[tuple[str, str]] = []

    def texts(self) -> list[list[str]]:
        """See `TaskRequest`: the question, the passages with their titles, and the history."""
        passages: Sequence[str]
        if isinstance(self.passage, dict):
            passages = [*self.passage, *self.passage.values()]
        else:
            passages = [self.passage] if isinstance(self.passage, str) else self.passage
        return [
            [text] for text in (self.question, *passages, *(text for turn in self.history for text in turn if text))
        ]


class ChooseRequest(TaskRequest):
    """Texts of which the one that fits a passage best is wanted.

    Attributes:
        passage: what the choices are about.
        choices: two or more texts.
        question: a question that they answer, or the begun sentence that they continue.
    """

    passage: str
    choices: Annotated[list[str], Meta(min_length=2)]
    question: str = ""

    def texts(self) -> list[list[str]]:
        """See `TaskRequest`."""
        return [[text] for text in (self.passage, *filter(None, [self.question]), *self.choices)]


Answer = Callable[[Any, Any, list[Any], "np.ndarray | None"], Any]
"""See `Route.answer`."""


@dataclass(frozen=True)
class Route:
    """A route by which tasks are asked; several tasks can share one.

    Attributes:
        path: the path of the URL.
        summary: what it does.
        request: type of its request.
        response: type of its response.
        examples: returns the examples that a request asks about, given the task and the request; None: they are single
            texts or their token ids, and the request is a `VectorsRequest`.
        answer: returns the response, given the task, the request, the predictions of the examples, and the outputs of
            the head for each example, (examples, outputs), or None; see `Framed.outputs`.
        needs: what a request or a model lacks if it is refused for another reason than a limit, with references to
            the fields (`support.messages.argument`).
        example: a request.
        example_of_pairs: a request to a task over pairs of texts, if that differs.
        view: id of the view of the playground that shows it: "label", "entities", "relations", "answer", "choose";
            "": none.
    """

    path: str
    summary: str
    request: type[TaskRequest]
    response: Any
    examples: Callable[[Any, Any], list[Any]] | None
    answer: Answer
    needs: str
    example: Mapping[str, Any]
    example_of_pairs: Mapping[str, Any] | None = None
    view: str = ""

    def request_to(self, task: Any) -> TaskRequest:
        """Return the example as a request to a task."""
        example = self.example_of_pairs if task.pairs and self.example_of_pairs else self.example
        return msgspec.convert(dict(example), self.request)


def _asked(task: Any, request: PredictRequest) -> list[Any]:
    first, *second = zip(*request.texts(), strict=True)
    examples: list[Any] = task.from_texts(first, *second)
    return examples


def _scores(
    task: Any, request: PredictRequest, predictions: list[Any], outputs: np.ndarray | None
) -> list[Scored | list[Scored]]:
    """Return the labels of each text with probabilities, or logits, the highest first."""
    if request.raw_scores and outputs is None:
        raise UserError("this model has no raw scores")
    answers = []
    for number, prediction in enumerate(predictions):
        scored: list[Scored] = task.scored(prediction)
        if request.raw_scores and outputs is not None:
            scored = [Scored(value, of.label) for value, of in zip(outputs[number].tolist(), scored, strict=True)]
        answers.append(sorted(scored, key=lambda of: -of.score))
    return list(answers[0]) if request.single else list(answers)


PREDICT = Route(
    "/predict",
    "Classify texts or pairs of texts, or predict a number for each.",
    PredictRequest,
    list[Scored | list[Scored]],
    _asked,
    _scores,
    f"{argument('inputs')}: the model reads pairs of texts, and the request has single ones, or the reverse; pass a "
    "text, a pair [text, text], or a batch of them [[text], ...] or [[text, text], ...]; a model may have no "
    f"{argument('raw_scores')}",
    {"inputs": "A wonderful film.", "truncate": True},
    {"inputs": ["A wonderful film.", "A bore."], "truncate": True},
    view="label",
)
"""The route of tasks over texts, or pairs of texts, whose labels have scores; see `RowTask.scored`."""
