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

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from unmask.batches.batch import Batch, Sample
from unmask.batches.frame import Frame
from unmask.batches.rng import derive_rng
from unmask.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.errors import UserError
from unmask.labelled.squad_file import Answer, Question, describe_repairs, read_squad
from unmask.metrics import question_answering as metrics
from unmask.metrics.intervals import Measure
from unmask.objectives.objective import Objective, Part, imitate_softmax
from unmask.tasks.candidates import Candidates
from unmask.tasks.mistake import Mark, Mistake, Passage
from unmask.tasks.passage_windows import LABEL, Window, WindowSettings, cut_passages
from unmask.tasks.spans import best_spans
from unmask.tasks.task import DEV_SHARE, Columns, Framed, Notes, Paths, Task
from unmask.tokenizers.tokenizer import Tokenizer

NEVER = -1e30
"""A finite logit of tokens that are no candidates."""


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
    """A question with its answer.

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
    def margin(self) -> float:
        """Score of "no answer" minus that of the best answer, in logits; 0 if either is missing."""
        none = [span.probability for span in self.nbest if span.start is None]
        some = [span.probability for span in self.nbest if span.start is not None]
        tiny = np.finfo(float).tiny
        return float(np.log(max(none[0], tiny)) - np.log(max(some[0], tiny))) if none and some else 0.0


class QuestionAnswering(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="question-answering"):
    """The recipe's [task] for `kind = "question-answering"`; see `Task`.

    Attributes:
        length: maximum length of a window in tokens, including the question and special tokens.
        stride: number of passage tokens between the starts of two windows; 0: a third of `length`, at most 128.
        question: maximum length of a question in tokens, the rest is cut off; 0: a sixth of `length`, at most 64.
        answer: maximum length of an answer in tokens; 0: a twelfth of `length`, at most 30.
        no_answer: whether the model may give no answer; None: if any training question has none.
        threshold: the answer is "" if its score exceeds that of the best answer by more than this (logits); None: tuned
            on a tenth of the training passages, which are then not used for training.
        best: number of answers to list.
    """

    length: int = 384
    stride: int = 0
    question: int = 0
    answer: int = 0
    no_answer: bool | None = None
    threshold: float | None = None
    best: int = 20

    part = "question_answering"
    metric = "f1"
    title = "Answers to questions about a passage"
    usage = '--question "A question?" --passage "A passage."'

    def __post_init__(self) -> None:
        super().__post_init__()
        # resolved here so that numbers are stored with a model, even if the rule changes later
        for name, divisor, most in (("stride", 3, 128), ("question", 6, 64), ("answer", 12, 30)):
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
    ) -> list[Question]:
        """See `Task`."""
        if columns or kind:
            raise UserError("--columns and --format have no effect: questions are read in SQuAD's format (JSON)")
        questions = read_squad(paths, gold=gold)
        if notes is not None:
            notes += describe_repairs(questions)
        return questions

    def label_names(self, examples: Sequence[Question]) -> tuple[str, ...]:
        """See `Task`: none."""
        for example in examples:
            if not example.impossible and all(answer.start is None for answer in example.answers):
                raise UserError(
                    f"{example.place}: the answer '{example.answers[0].text[:40]}' occurs nowhere in its passage",
                    file=example.file,
                    remedy="correct or remove the question",
                )
        if all(example.impossible for example in examples):
            raise UserError(f"none of the {len(examples)} questions has an answer", file=examples[0].file)
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

    def hold_out(self, examples: Sequence[Question], seed: int) -> tuple[list[Question], list[Question]]:
        """See `Task`: a tenth of the passages, with all their questions."""
        passages = list(dict.fromkeys(example.passage for example in examples))
        order = derive_rng(seed, "dev").permutation(len(passages))
        chosen = {passages[index] for index in order[: round(DEV_SHARE * len(passages))]}
        if not chosen:
            raise UserError(
                f"{len(passages)} passages are too few to hold out a tenth",
                file=examples[0].file,
                remedy="pass --dev FILE" + (", and --set task.threshold=0 instead of tuning it" if self.tunes else ""),
            )
        train = [example for example in examples if example.passage not in chosen]
        return train, [example for example in examples if example.passage in chosen]

    @property
    def tunes(self) -> bool:
        """See `Task`: whether the threshold is to be tuned."""
        return bool(self.no_answer) and self.threshold is None

    def tune(self, examples: Sequence[Question], predictions: Sequence[Answered]) -> QuestionAnswering:
        """See `Task`: sets the threshold to the one with the best F1."""
        return msgspec.structs.replace(self, threshold=best_threshold(examples, predictions))

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> Objective:
        """See `Task`."""
        return QuestionAnsweringHead(spec)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Question], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`; with `gold`, windows that cannot be used for training are left out and reported."""
        windows, notes = cut_passages(tokenizer, examples, self._window_settings, gold=gold)

        def read(logits: Sequence[np.ndarray]) -> list[Answered]:
            return self._answers(examples, windows, logits)

        return Framed([window.sample for window in windows], read, tuple(notes))

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
                one,
                answers=() if found.start is None else (Answer(found.answer, found.start),),
                impossible=found.start is None,
            )
            for one, found in pairs
        ]

    def mistakes(
        self, examples: Sequence[Question], predictions: Sequence[Answered], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: answers that are not an exact match, the most confident first."""
        gold_answers, answers = gold_texts(examples), [one.answer for one in predictions]
        exact = metrics.example_scores(gold_answers, answers, metrics.choose_scorer(gold_answers))[:, 0]
        found = []
        for example, predicted, correct in zip(examples, predictions, exact, strict=True):
            if correct:
                continue
            gold = {(one.start, one.start + len(one.text)) for one in example.answers if one.start is not None}
            marks = tuple(Mark(start, end) for start, end in sorted(gold))
            marked = () if predicted.start is None or predicted.end is None else (Mark(predicted.start, predicted.end),)
            passages = Passage(example.question, "question"), Passage(example.passage, "passage", marks, marked)
            wanted = " | ".join(dict.fromkeys(one.text for one in example.answers)) or "no answer"
            caption = f"{example.file}: {example.id}"
            found.append(
                Mistake(
                    passages, caption, predicted.probability, "probability", wanted, predicted.answer or "no answer"
                )
            )
        return sorted(found, key=lambda mistake: -mistake.score)

    def files(self, path: Path, examples: Sequence[Question], predictions: Sequence[Answered]) -> dict[Path, bytes]:
        """See `Task`: the official {id: answer}, and a second file with the most probable answers."""
        return {
            target: msgspec.json.format(msgspec.json.encode({one.id: getattr(one, name) for one in predictions}))
            + b"\n"
            for target, name in ((path, "answer"), (path.with_name(f"{path.name}.nbest.json"), "nbest"))
        }

    def line(self, prediction: Answered) -> str:
        """See `Task`."""
        return f"{prediction.answer or '(no answer)'}\t{prediction.probability:.3f}\t{prediction.question}"

    @property
    def _window_settings(self) -> WindowSettings:
        return WindowSettings(self.length, self.stride, self.question, bool(self.no_answer))

    def _answers(
        self, examples: Sequence[Question], windows: Sequence[Window], logits: Sequence[np.ndarray]
    ) -> list[Answered]:
        found: list[dict[tuple[int, int], float]] = [{} for _ in examples]
        nulls, cut = [np.inf] * len(examples), [False] * len(examples)
        for window, values in zip(windows, logits, strict=True):
            cut[window.example] = window.cut
            if self.no_answer:
                nulls[window.example] = min(nulls[window.example], float(values[0].sum()))
                values = values[1:]
            passage, spans = examples[window.example].passage, found[window.example]
            blank = [not passage[start:end].strip() for start, end in window.offsets.tolist()]
            values = np.where(np.array(blank)[:, None], -np.inf, values)  # no answer starts or ends with whitespace
            for score, first, last in best_spans(values[:, 0], values[:, 1], self.answer, self.best):
                characters = int(window.offsets[first, 0]), int(window.offsets[last, 1])
                spans[characters] = max(score, spans.get(characters, score))
        return [self._answered(*question) for question in zip(examples, found, nulls, cut, strict=True)]

    def _answered(self, example: Question, spans: Mapping[tuple[int, int], float], null: float, cut: bool) -> Answered:
        texts: dict[str, tuple[float, int | None, int | None]] = {}
        for (start, end), score in sorted(spans.items(), key=lambda item: (-item[1], item[0])):
            if start < end and len(texts) < self.best:
                texts.setdefault(example.passage[start:end], (score, start, end))
        best = max((score for score, _, _ in texts.values()), default=-np.inf)
        if self.no_answer and null < np.inf:
            texts[""] = (null, None, None)
        rows = sorted(texts.items(), key=lambda item: -item[1][0])
        probabilities = torch.tensor([row[1][0] for row in rows], dtype=torch.float64).softmax(0).tolist()
        nbest = tuple(
            Span(text, start, end, probability)
            for (text, (_, start, end)), probability in zip(rows, probabilities, strict=True)
        )
        none = "" in texts and null - best > (self.threshold or 0.0)
        chosen = next((span for span in nbest if (span.start is None) is none), Span("", None, None, 0.0))
        predicted = chosen.answer, chosen.start, chosen.end, chosen.probability
        return Answered(example.id, example.question, *predicted, nbest, cut)


class QuestionAnsweringHead(Objective):
    """Question answering head with its loss: per window, the mean of the cross-entropies of start and end.

    Args:
        spec: the properties of the body under the head.
    """

    at = "passage"
    needs = frozenset({LABEL})

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.out = nn.Linear(spec.width, 2)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the start and end logits of each candidate token, (targets, 2)."""
        return self.out(token_vectors(encoder, encoded.last, batch, "passage"))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; a window is correct if both its start and its end are."""
        gold = batch.labels[LABEL]  # (windows * 2,): start and end of each, as positions in its sequence
        candidates = Candidates(batch, len(gold) // 2)
        table = candidates.table(self.predict(encoder, encoded, batch).float())  # (windows, longest, 2)
        table = table.transpose(1, 2).flatten(0, 1)  # (windows * 2, longest)
        loss = cross_entropy(table, gold, reduction="sum") / 2
        correct = (table.detach().argmax(1) == gold).view(-1, 2).all(1).sum()
        return Part(loss, {"accuracy": correct})

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: per window, the mean of the losses of start and end."""
        candidates = Candidates(batch, len(batch.keys))
        tables = (candidates.table(one.float()) for one in (logits, targets))  # (windows, longest, 2) each
        ours, theirs = (table.transpose(1, 2).flatten(0, 1).clamp(min=NEVER) for table in tables)
        part = imitate_softmax(ours, theirs, temperature)
        agreed = (ours.detach().argmax(1) == theirs.argmax(1)).view(-1, 2).all(1).sum()
        return Part(part.sum / 2, {"agreement": agreed})

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: two dot products per target, and the pooler if it reads tokens."""
        return 2 * len(batch.positions["passage"]) * encoder.width * (2 + encoder.head.pools_tokens * encoder.width)


def gold_texts(examples: Sequence[Question]) -> list[tuple[str, ...]]:
    """Return the texts of each question's gold answers."""
    return [tuple(answer.text for answer in example.answers) for example in examples]


def best_threshold(examples: Sequence[Question], predictions: Sequence[Answered]) -> float:
    """Return the threshold of "no answer" with the best F1: the midpoint between the margins of two examples.

    Among equally good thresholds, return the one nearest to 0.

    Args:
        examples: examples with gold answers.
        predictions: predictions of a model with any threshold.
    """
    gold = gold_texts(examples)
    scorer = metrics.choose_scorer(gold)
    margins = np.array([prediction.margin for prediction in predictions])  # (examples,)
    predicted = [next((span.answer for span in one.nbest if span.start is not None), "") for one in predictions]
    order = np.argsort(margins, kind="stable")
    some = metrics.example_scores(gold, predicted, scorer)[order, 1]
    none = metrics.example_scores(gold, [""] * len(gold), scorer)[order, 1]
    margins = margins[order]
    totals = np.concatenate([[0], some.cumsum()]) + np.concatenate([none[::-1].cumsum()[::-1], [0]])
    between = np.concatenate([[margins[0] - 1], (margins[1:] + margins[:-1]) / 2, [margins[-1] + 1]])
    possible = np.concatenate([[True], margins[1:] > margins[:-1], [True]])
    best = np.flatnonzero(possible & (totals >= totals[possible].max() - 1e-9))
    return float(between[best[np.abs(between[best]).argmin()]])
