"""Questions of a dialogue about a passage, as in QuAC and CoQA; all parameters are tuned.

**QuAC** (Choi et al. 2018) has dialogue acts. Input: questions with the earlier turns of their dialogues. Output:
samples, the head with its loss, answers with whether they mean yes or no and whether to ask on.

Question answering with no answer among the answers (`question_answering`), a history (`history`), and two classifiers
on [CLS]. They are trained on windows that contain the answer, or on all if there is none, and read in the window of the
chosen answer. Differences from the paper's baseline, which is no encoder: [CLS] stands for CANNOTANSWER, in each
window, instead of that word at the end of the passage; the threshold of no answer is tuned for the metric of QuAC.

**CoQA** (Reddy et al. 2019) has free answers. Input: questions with the earlier turns of their dialogues. Output:
samples, the head with its loss, answers that are spans of the story, "yes", "no" or "unknown".

Spans and windows as in `question_answering`, a history (`history`), and a classifier of the kind of the answer
(`answer_kinds`). A model that extracts can give free answers only as spans: those with the best F1 in the rationale are
learned. Reddy et al. 2019 also generate answers from the rationale, which an encoder does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.dialogue_files import (
    FOLLOWUP,
    SPAN,
    UNKNOWN,
    YESNO,
    CoqaQuestion,
    QuacQuestion,
    describe_rationales,
    read_coqa,
    read_quac,
)
from unmask.data.labelled.question_files import describe_repairs
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import question_answering as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import HeadSpec
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks.answer_head import KIND, KINDS, UNTRAINED, AnswerHead, KindAnswered, read_kinds, with_kind
from unmask.tasks.extraction import Answered, Extraction, Form, Texts, only_passage, span_mistake
from unmask.tasks.history import History, as_turns, ask_in_dialogue, describe_history
from unmask.tasks.mistakes import Mistake
from unmask.tasks.passage_windows import PassageWindow, cut_passages
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.task import Framed
from unmask.tasks.tuning import find_threshold

ACTS = {"yesno": YESNO, "followup": FOLLOWUP}
"""The classes of each classifier, by name."""
TEXTS = {"yes": "yes", "no": "no", "none": UNKNOWN}
"""The answers that are no spans."""


class QuacAnswered(Answered, frozen=True, kw_only=True):
    """A question of a dialogue with its answer; see `Answered`.

    Attributes:
        yesno: whether the answer means yes ("y"), no ("n") or neither ("x").
        followup: whether to ask on: "y", "n" or "m" (maybe).
    """

    yesno: str
    followup: str


class Quac(QuestionAnswering, frozen=True, kw_only=True, tag="quac"):
    """The recipe's [task] for `kind = "quac"`; see `QuestionAnswering`.

    Attributes:
        question: maximum length of a question with its history in tokens; 0: a third of `length`, at most 128.
        history: how earlier turns are read.
    """

    history: History = History()

    part = "quac"
    comparable = ("f1", "heq_q", "heq_d", "yes_no", "followup", "unanswerable", "unfiltered_f1")  # not that of humans
    form = Form("QuAC", read_quac, describe_repairs)
    card = Card(
        title="Answers to questions in a dialogue about a passage",
        pipeline="question-answering",
        usage={"question": "And then?", "passage": "A passage.", "history": ["Who won?", "Eve"]},
    )
    question_share = (3, 128)

    @property
    def controls(self) -> dict[str, Any]:
        """See `Task`."""
        return {"history": self.history.turns}

    def pose(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> QuacQuestion:
        """See `Extraction`."""
        text = only_passage(self, question, passage)
        return QuacQuestion("", question, text, history=as_turns(history, text))

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Quac:
        """See `Task`: sets the threshold to the one with the best F1, over the questions that count."""
        references = [metrics.settle_references(example.references) for example in examples]
        with_answer = [
            metrics.answer_f1(texts, prediction.best_answer)
            for texts, prediction in zip(references, predictions, strict=True)
        ]
        none = [metrics.answer_f1(texts, metrics.CANNOT) for texts in references]
        counts = np.array([metrics.human_f1(texts) >= metrics.MIN_HUMAN_F1 for texts in references])
        margins = np.array([prediction.margin for prediction in predictions])
        counts = counts if counts.any() else ~counts
        threshold = find_threshold(margins[counts], np.array(with_answer)[counts], np.array(none)[counts])
        return msgspec.structs.replace(self, threshold=threshold)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> AnswerHead:
        """See `Task`."""
        return AnswerHead(spec, {name: len(classes) for name, classes in ACTS.items()})

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Any], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`; with `gold`, windows that cannot be used for training are left out and reported."""
        asked, notes = ask_in_dialogue(tokenizer, examples, self.history, self.question)
        settings = self.windows(none=bool(self.no_answer))
        windows, more = cut_passages(tokenizer, examples, settings, gold=gold, asked=asked)
        if gold:
            windows = [_with_acts(window, examples[window.example]) for window in windows]

        def read(logits: Sequence[np.ndarray]) -> list[Any]:
            return self._read(examples, windows, logits)

        return Framed([window.sample for window in windows], read, (*notes, *more))

    def measure(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        gold = [metrics.Gold(asked.dialogue, asked.references, asked.yesno, asked.followup) for asked in examples]
        guesses = [metrics.Guess(_text(answer), answer.yesno, answer.followup) for answer in predictions]
        return metrics.measure_quac(gold, guesses)

    def groups(self, examples: Sequence[Any]) -> list[str]:
        """See `Task`: dialogues."""
        return [example.dialogue for example in examples]

    def details(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """See `Task`: the scorer."""
        return {"scorer": "QuAC"}

    def labelled(self, examples: Sequence[Any], predictions: Sequence[Any]) -> list[Any]:
        """See `Task`."""
        return [
            msgspec.structs.replace(
                example, references=(_text(prediction),), yesno=prediction.yesno, followup=prediction.followup
            )
            for example, prediction in zip(super().labelled(examples, predictions), predictions, strict=True)
        ]

    def mistakes(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> list[Mistake]:
        """See `Task`: answers that are worse than those of humans, by their confidence."""
        mistakes = []
        for example, predicted in zip(examples, predictions, strict=True):
            references = metrics.settle_references(example.references)
            if metrics.answer_f1(references, _text(predicted)) < metrics.human_f1(references):
                before = describe_history(example)
                mistakes.append(span_mistake(example, predicted, references, _text(predicted), before))
        return mistakes

    def record(self, path: Path, example: Any, prediction: QuacAnswered) -> Any:
        """See `Task`."""
        return {"dialogue": example.dialogue, "text": _text(prediction), **msgspec.to_builtins(prediction)}

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: what scorer.py reads, a line per dialogue, and a second file with the most probable answers."""
        return {**super().files(path, records), path: map(_line, _dialogues(records))}

    def _read(
        self, examples: Sequence[QuacQuestion], windows: Sequence[PassageWindow], logits: Sequence[np.ndarray]
    ) -> list[QuacAnswered]:
        results = self.search(examples, windows, [values[:, :2] for values in logits], none=bool(self.no_answer))
        answers = []
        for example, result in zip(examples, results, strict=True):
            answered = self._answered(example, result.spans, result.null, result.cut)
            window = result.empty if answered.start is None else result.best
            classes = logits[result.windows[0] if window is None else window][:1, 2:]  # (1 or 0, classes)
            acts = _acts(classes[0]) if len(classes) else {"yesno": "x", "followup": "n"}
            both: dict[str, Any] = {**msgspec.structs.asdict(answered), **acts}
            answers.append(QuacAnswered(**both))
        return answers


def _with_acts(window: PassageWindow, example: QuacQuestion) -> PassageWindow:
    """Return a window with the labels of the classifiers, which are trained where the answer is."""
    gold = {"yesno": YESNO.index(example.yesno), "followup": FOLLOWUP.index(example.followup)}
    trained = window.answered or example.impossible
    labels = {name: np.array([number if trained else UNTRAINED]) for name, number in gold.items()}
    return replace(window, sample=window.sample.add(labels=labels))


def _acts(logits: np.ndarray) -> dict[str, str]:
    """Return the most probable class of each classifier, given all logits, (classes,)."""
    ends = np.cumsum([len(classes) for classes in ACTS.values()])
    parts = np.split(logits, ends[:-1])
    return {name: classes[int(part.argmax())] for (name, classes), part in zip(ACTS.items(), parts, strict=True)}


def _dialogues(records: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the records of each dialogue, whose questions follow one another."""
    for _, turns in groupby(records, itemgetter("dialogue")):
        yield list(turns)


def _line(turns: Sequence[Any]) -> bytes:
    """Return a dialogue as a line for scorer.py."""
    names = {"qid": "id", "best_span_str": "text", "yesno": "yesno", "followup": "followup"}
    return msgspec.json.encode({name: [turn[key] for turn in turns] for name, key in names.items()}) + b"\n"


def _text(answered: Answered) -> str:
    """Return an answer as QuAC's files have it."""
    return metrics.CANNOT if answered.start is None else answered.answer


class Coqa(Extraction, frozen=True, kw_only=True, tag="coqa"):
    """The recipe's [task] for `kind = "coqa"`; see `Extraction`.

    Attributes:
        question: maximum length of a question with its history in tokens; 0: a third of `length`, at most 128.
        history: how earlier turns are read.
    """

    history: History = History()

    part = "coqa"
    comparable = ("f1", "exact_match")
    form = Form("CoQA", read_coqa, describe_rationales)
    card = Card(
        title="Free answers to questions in a dialogue about a passage",
        pipeline="question-answering",
        usage={"question": "And then?", "passage": "A passage.", "history": ["Who won?", "Eve"]},
    )
    question_share = (3, 128)

    @property
    def controls(self) -> dict[str, Any]:
        """See `Task`."""
        return {"history": self.history.turns}

    def pose(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> CoqaQuestion:
        """See `Extraction`."""
        text = only_passage(self, question, passage)
        return CoqaQuestion("", question, text, history=as_turns(history, text))

    def label_names(self, examples: Sequence[CoqaQuestion]) -> tuple[str, ...]:
        """See `Task`: none."""
        if not any(example.answers for example in examples):
            raise UserError(f"none of the {len(examples)} questions has an answer", file=examples[0].file)
        return ()

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> AnswerHead:
        """See `Task`."""
        return AnswerHead(spec, {KIND: len(KINDS)})

    def frame(
        self, tokenizer: Tokenizer, examples: Sequence[CoqaQuestion], labels: Sequence[str], *, gold: bool
    ) -> Framed:
        """See `Task`; with `gold`, windows that cannot be used for training are left out and reported."""
        asked, notes = ask_in_dialogue(tokenizer, examples, self.history, self.question)
        windows, more = cut_passages(tokenizer, examples, self.windows(none=True), gold=gold, asked=asked)
        if gold:
            windows = [with_kind(window, _kind(examples[window.example]), inside=window.answered) for window in windows]

        def read(logits: Sequence[np.ndarray]) -> list[KindAnswered]:
            return [KindAnswered(**attributes) for attributes in read_kinds(self, examples, windows, logits, TEXTS)]

        return Framed([window.sample for window in windows], read, (*notes, *more))

    def measure(
        self, examples: Sequence[CoqaQuestion], predictions: Sequence[KindAnswered], labels: Sequence[str]
    ) -> Measure:
        """See `Task`."""
        gold = [example.references for example in examples]
        return metrics.measure_coqa(gold, [prediction.answer for prediction in predictions])

    def groups(self, examples: Sequence[CoqaQuestion]) -> list[str]:
        """See `Task`: dialogues."""
        return [example.dialogue for example in examples]

    def details(
        self, examples: Sequence[CoqaQuestion], predictions: Sequence[KindAnswered], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scorer, and the metrics by domain, if the file has domains."""
        sources = [example.source for example in examples]
        domains = metrics.by_domain(sources, self.measure(examples, predictions, labels))
        return {"scorer": "CoQA"} | ({"by_domain": domains} if domains else {})

    def mistakes(
        self, examples: Sequence[CoqaQuestion], predictions: Sequence[KindAnswered], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: answers that equal no gold answer, by their confidence."""
        return [
            span_mistake(example, predicted, example.references, predicted.answer, describe_history(example))
            for example, predicted in zip(examples, predictions, strict=True)
            if not any(metrics.turn_scores([gold], predicted.answer)[0] for gold in example.references)
        ]

    def record(self, path: Path, example: CoqaQuestion, prediction: KindAnswered) -> Any:
        """See `Task`."""
        return {"id": example.dialogue, "turn_id": example.turn, "answer": prediction.answer}

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: what evaluate-v1.0.py reads."""
        return {path: [msgspec.json.format(msgspec.json.encode(list(records))) + b"\n"]}

    def line(self, prediction: KindAnswered) -> str:
        """See `Task`."""
        return f"{prediction.answer}\t{prediction.probability:.3f}\t{prediction.question}"


def _kind(example: CoqaQuestion) -> str:
    return example.kind if example.kind in ("yes", "no") else ("none" if example.kind == UNKNOWN else SPAN)
