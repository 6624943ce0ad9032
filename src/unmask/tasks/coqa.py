"""CoQA: questions of a dialogue with free answers; all parameters are tuned (Reddy et al. 2019).

Input: questions with the earlier turns of their dialogues. Output: samples, the head with its loss, answers that are
spans of the story, "yes", "no" or "unknown".

Spans and windows as in `question_answering`, a history (`history`), and a classifier of the kind of the answer
(`answer_kinds`). A model that extracts can give free answers only as spans: those with the best F1 in the rationale are
learned. Reddy et al. 2019 also generate answers from the rationale, which an encoder does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.dialogue_files import SPAN, UNKNOWN, CoqaQuestion, describe_rationales, read_coqa
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import question_answering as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import HeadSpec
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks.answer_head import KIND, KINDS, AnswerHead, KindAnswered, read_kinds, with_kind
from unmask.tasks.extraction import Extraction, Form, Texts, only_passage, span_mistake
from unmask.tasks.history import History, as_turns, ask_in_dialogue, describe_history
from unmask.tasks.mistakes import Mistake
from unmask.tasks.passage_windows import cut_passages
from unmask.tasks.task import Framed

TEXTS = {"yes": "yes", "no": "no", "none": UNKNOWN}
"""The answers that are no spans."""


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
