"""Extractive question answering: prediction of the start and the end of the answer; all parameters are tuned.

Input: questions with their passages. Output: samples, one per window of a passage, the head with its loss, answers.

Devlin et al. 2019, sections 4.2 and 4.3: [CLS] question [SEP] passage [SEP]. The probability that a token is the start
is the softmax of its dot product with a vector; a second vector gives the end. Long passages are read in overlapping
windows (google-research/bert, run_squad.py). If questions may have no answer, [CLS] stands for "no answer".

Differences from run_squad.py: the softmax runs only over the passage (and [CLS]), as in the paper, not over question
and padding; training windows without the answer are left out if every question has one; an answer that lies in no
regular window gets an extra window; the search for the best span is exact; a span in several windows gets its best
score, wherever it is in the window; the answer is extracted from the passage by character offsets, and neither starts
nor ends with a token that is only whitespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from unmask.data.labelled.question_files import Answer, Question, describe_repairs, read_squad
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import question_answering as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import HeadSpec
from unmask.objectives.objective import Objective
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks.answer_head import AnswerHead
from unmask.tasks.extraction import Answered, Extraction, Form, Span, check_answers, span_mistake
from unmask.tasks.mistakes import Mistake
from unmask.tasks.passage_windows import PassageWindow, cut_passages
from unmask.tasks.task import Framed, Training
from unmask.tasks.tuning import find_threshold

ALWAYS = (
    "questions without an answer, to which the model always gives one (if it was trained on such questions, add "
    '"unmask": {"kind": "question-answering", "no_answer": true} to its config.json)'
)
"""Note about questions that a model gets wrong whatever it predicts."""


class QuestionAnswering(Extraction, frozen=True, kw_only=True, tag="question-answering"):
    """The recipe's [task] for `kind = "question-answering"`; see `Extraction`.

    Attributes:
        no_answer: whether the model may give no answer; None: if any training question has none.
        threshold: the answer is "" if its score exceeds that of the best answer by more than this (logits); None: tuned
            on a tenth of the training passages, which are then not used for training.
    """

    no_answer: bool | None = None
    threshold: float | None = None

    part = "question_answering"
    comparable: ClassVar[tuple[str, ...]] = ("exact_match", "f1")
    training = Training(tuned={"threshold": None})
    form = Form("SQuAD", read_squad, describe_repairs)
    card = Card(
        title="Answers to questions about a passage",
        pipeline="question-answering",
        usage={"question": "A question?", "passage": "A passage."},
    )

    def label_names(self, examples: Sequence[Question]) -> tuple[str, ...]:
        """See `Task`: none."""
        check_answers(examples)
        return ()

    def settle(self, examples: Sequence[Question], labels: Sequence[str]) -> QuestionAnswering:
        """See `Task`: resolves `no_answer`.

        Raises:
            UserError: a setting contradicts the examples or has no effect.
        """
        impossible = next((example for example in examples if example.impossible), None)
        if self.no_answer is False and impossible:
            raise UserError(
                f"{impossible.place} has no answer, but task.no_answer is false",
                file=impossible.file,
                remedy="remove the setting or such questions",
            )
        no_answer = self.no_answer if self.no_answer is not None else impossible is not None
        if self.threshold is not None and not no_answer:
            raise UserError("task.threshold has no effect: every question has an answer", remedy="remove it")
        return msgspec.structs.replace(self, no_answer=no_answer)

    @property
    def tunes(self) -> bool:
        """See `Task`: whether the threshold is to be tuned."""
        return bool(self.no_answer) and self.threshold is None

    def tune(self, examples: Sequence[Question], predictions: Sequence[Answered]) -> QuestionAnswering:
        """See `Task`: sets the threshold to the one with the best F1."""
        return msgspec.structs.replace(self, threshold=best_threshold(examples, predictions))

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> Objective:
        """See `Task`."""
        return AnswerHead(spec)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Question], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`; with `gold`, windows that cannot be used for training are left out and reported."""
        windows, notes = cut_passages(tokenizer, examples, self.windows(none=bool(self.no_answer)), gold=gold)
        if not (gold or self.no_answer) and (wrong := sum(example.impossible for example in examples)):
            notes = (f"{ALWAYS}: {wrong:,}", *notes)

        def read(logits: Sequence[np.ndarray]) -> list[Answered]:
            return self._answers(examples, windows, logits)

        return Framed([window.sample for window in windows], read, notes)

    def measure(self, examples: Sequence[Question], predictions: Sequence[Answered], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        return metrics.measure(gold_texts(examples), [prediction.answer for prediction in predictions])

    def details(
        self, examples: Sequence[Question], predictions: Sequence[Answered], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scorer and, if some questions have no answer, the metrics of both kinds of questions."""
        measure = self.measure(examples, predictions, labels)
        impossible = np.array([example.impossible for example in examples])
        kinds = {"answerable": np.flatnonzero(~impossible), "unanswerable": np.flatnonzero(impossible)}
        by_kind = {name: measure(chosen) for name, chosen in kinds.items() if len(chosen)}
        scorer = metrics.choose_scorer(gold_texts(examples))
        return {"scorer": scorer} | ({"by_kind": by_kind} if impossible.any() else {})

    def labelled(self, examples: Sequence[Question], predictions: Sequence[Answered]) -> list[Question]:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        return [
            msgspec.structs.replace(
                example,
                answers=() if prediction.start is None else (Answer(prediction.answer, prediction.start),),
                impossible=prediction.start is None,
            )
            for example, prediction in pairs
        ]

    def mistakes(
        self, examples: Sequence[Question], predictions: Sequence[Answered], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: answers that are not an exact match, by their confidence."""
        gold_answers, answers = gold_texts(examples), [prediction.answer for prediction in predictions]
        exact = metrics.example_scores(gold_answers, answers, metrics.choose_scorer(gold_answers))[:, 0]
        wrong = [pair for pair, right in zip(zip(examples, predictions, strict=True), exact, strict=True) if not right]
        return [
            span_mistake(example, predicted, [answer.text for answer in example.answers], predicted.answer)
            for example, predicted in wrong
        ]

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: the official {id: answer}, and a second file with the most probable answers."""
        return {
            path: json_object((entry["id"], entry["answer"]) for entry in records),
            path.with_name(f"{path.name}.nbest.json"): json_object((entry["id"], entry["nbest"]) for entry in records),
        }

    def line(self, prediction: Answered) -> str:
        """See `Task`."""
        return f"{prediction.answer or '(no answer)'}\t{prediction.probability:.3f}\t{prediction.question}"

    def _answers(
        self, examples: Sequence[Question], windows: Sequence[PassageWindow], logits: Sequence[np.ndarray]
    ) -> list[Answered]:
        results = self.search(examples, windows, logits, none=bool(self.no_answer))
        return [
            self._answered(example, result.spans, result.null, result.cut)
            for example, result in zip(examples, results, strict=True)
        ]

    def _answered(self, example: Question, spans: Mapping[tuple[int, int], float], null: float, cut: bool) -> Answered:
        nbest, best = self.list_spans(example, spans, null if self.no_answer else np.inf)
        none = null < np.inf and null - best > (self.threshold or 0.0)
        chosen = next((span for span in nbest if (span.start is None) is none), Span("", None, None, 0.0))
        predicted = chosen.answer, chosen.start, chosen.end, chosen.probability
        return Answered(example.id, example.question, *predicted, nbest, cut)


def json_object(pairs: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Yield the parts of a JSON object, one for each pair, indented as by `msgspec.json.format`."""
    before = b"{"
    for name, value in pairs:
        inner = msgspec.json.format(msgspec.json.encode(value)).replace(b"\n", b"\n  ")
        yield before + b"\n  " + msgspec.json.encode(name) + b": " + inner
        before = b","
    yield b"{}\n" if before == b"{" else b"\n}\n"


def gold_texts(examples: Sequence[Question]) -> list[tuple[str, ...]]:
    """Return the texts of each question's gold answers."""
    return [tuple(answer.text for answer in example.answers) for example in examples]


def best_threshold(examples: Sequence[Question], predictions: Sequence[Answered]) -> float:
    """Return the threshold of "no answer" with the best F1; see `find_threshold`.

    Args:
        examples: examples with gold answers.
        predictions: predictions of a model with any threshold.
    """
    gold = gold_texts(examples)
    scorer = metrics.choose_scorer(gold)
    with_answer = metrics.example_scores(gold, [prediction.best_answer for prediction in predictions], scorer)[:, 1]
    none = metrics.example_scores(gold, [""] * len(gold), scorer)[:, 1]
    return find_threshold(np.array([prediction.margin for prediction in predictions]), with_answer, none)
