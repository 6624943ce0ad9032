"""HotpotQA: questions about several paragraphs, with supporting sentences; all parameters are tuned (Yang et al. 2018).

Input: questions with all paragraphs as one passage. Output: samples, the head with its loss, answers that are spans,
"yes" or "no", and the sentences that support them.

Spans and windows as in `question_answering`, a classifier of the kind of the answer (`answer_kinds`), and a logit for
the first token of each sentence, whether it supports the answer (as in Yang et al. 2018, with an encoder in place of
their recurrent layers). A window with a supporting sentence contains what answers yes or no. A sentence has
its highest logit of all windows; it is predicted if this exceeds a threshold, which is tuned for the F1 of support.

Paragraphs are read together as far as they are in one window: `length` limits over how many a question can reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.hotpotqa_file import (
    CLOSED,
    HotpotQuestion,
    PassageSentence,
    describe_paragraphs,
    join_paragraphs,
    read_hotpotqa,
)
from unmask.data.text.sentences import split_sentences
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import question_answering as metrics
from unmask.metrics.intervals import Measure
from unmask.metrics.question_answering import Solution
from unmask.nn.encoders.encoder import HeadSpec
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks.answer_head import (
    KIND,
    KINDS,
    SENTENCES,
    SHARE,
    SUPPORT,
    AnswerHead,
    KindAnswered,
    read_kinds,
    with_kind,
)
from unmask.tasks.extraction import Extraction, Form, Texts, check_asked, span_mistake
from unmask.tasks.mistakes import Mistake
from unmask.tasks.passage_windows import PassageWindow, cut_passages, token_span
from unmask.tasks.task import Framed, Training

TEXTS = {"yes": "yes", "no": "no"}
"""The answers that are no spans."""
TRIED = 200
"""Maximum number of thresholds that are tried."""


class Support(msgspec.Struct, frozen=True):
    """A sentence and the probability that it supports the answer.

    Attributes:
        title, sentence: the title of its paragraph, and its number there, from 0.
        start, end: its characters in `HotpotAnswered.passage`, `end` exclusive.
        probability: the probability, before the threshold is applied.
    """

    title: str
    sentence: int
    start: int
    end: int
    probability: float


class HotpotAnswered(KindAnswered, frozen=True, kw_only=True):
    """A question with its answer and support; see `KindAnswered`.

    Attributes:
        passage: all paragraphs as they were read, which all offsets refer to.
        support: the supporting sentences, in the order of the passage.
        sentences: all sentences, the most probable first.
    """

    passage: str
    support: tuple[Support, ...]
    sentences: tuple[Support, ...]


class Hotpotqa(Extraction, frozen=True, kw_only=True, tag="hotpotqa"):
    """The recipe's [task] for `kind = "hotpotqa"`; see `Extraction`.

    Attributes:
        threshold: a sentence supports the answer if its logit exceeds this; None: tuned on a tenth of the training
            questions, which are then not used for training.
    """

    threshold: float | None = None

    part = "hotpotqa"
    metric = "joint_f1"
    comparable = metrics.NAMES
    training = Training(tuned={"threshold": None})
    form = Form("HotpotQA", read_hotpotqa, describe_paragraphs)
    card = Card(
        title="Answers to questions about several passages, with the sentences that support them",
        pipeline="question-answering",
        usage={"question": "A question?", "passage": ["A passage.", "Another."], "title": ["One", "Two"]},
    )

    @property
    def controls(self) -> dict[str, Any]:
        """See `Task`."""
        return {"passages": True}

    def pose(self, question: str, passage: Texts, history: Sequence[tuple[str, str]] = ()) -> HotpotQuestion:
        """See `Extraction`; passages without titles have the numbers from 1 as titles, which are not read."""
        if history:
            super().pose(question, "-", history)
        titled = isinstance(passage, Mapping)
        texts = [passage] if isinstance(passage, str) else passage
        pairs = list(texts.items() if isinstance(texts, Mapping) else enumerate(texts, start=1))
        check_asked(question, *(text for _, text in pairs))
        if not pairs:
            raise UserError("there is no passage", remedy="give one or more")
        paragraphs = [(str(title), _spaced(split_sentences(text))) for title, text in pairs]
        joined, sentences, _ = join_paragraphs(paragraphs, titled=titled)
        return HotpotQuestion("", question, joined, sentences=sentences)

    def label_names(self, examples: Sequence[HotpotQuestion]) -> tuple[str, ...]:
        """See `Task`: none."""
        if not any(example.answers or example.impossible for example in examples):
            raise UserError(f"none of the {len(examples)} answers can be learned", file=examples[0].file)
        return ()

    @property
    def tunes(self) -> bool:
        """See `Task`: whether the threshold is to be tuned."""
        return self.threshold is None

    def tune(self, examples: Sequence[HotpotQuestion], predictions: Sequence[HotpotAnswered]) -> Hotpotqa:
        """See `Task`: sets the threshold to the one with the best F1 of support."""
        logits = [
            np.array([_logit(sentence.probability) for sentence in prediction.sentences]) for prediction in predictions
        ]
        values = np.unique(np.concatenate(logits))
        between = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2])
        tried = between[np.unique(np.linspace(0, len(between) - 1, TRIED).round().astype(int))]

        def total(threshold: float) -> float:
            return sum(
                metrics.support_f1(
                    example.support,
                    [
                        (sentence.title, sentence.sentence)
                        for sentence, logit in zip(prediction.sentences, scores, strict=True)
                        if logit > threshold
                    ],
                )
                for example, prediction, scores in zip(examples, predictions, logits, strict=True)
            )

        totals = np.array([total(threshold) for threshold in tried])
        best = tried[totals >= totals.max() - 1e-9]
        return msgspec.structs.replace(self, threshold=float(best[np.abs(best).argmin()]))

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> AnswerHead:
        """See `Task`."""
        return AnswerHead(spec, {KIND: len(KINDS)}, support=True)

    def frame(
        self, tokenizer: Tokenizer, examples: Sequence[HotpotQuestion], labels: Sequence[str], *, gold: bool
    ) -> Framed:
        """See `Task`; with `gold`, windows that cannot be used for training are left out and reported."""
        windows, notes = cut_passages(tokenizer, examples, self.windows(none=True), gold=gold)
        starts = [_starts(window, examples[window.example].sentences) for window in windows]
        if gold:
            windows = [
                _labelled(window, examples[window.example], first_tokens)
                for window, first_tokens in zip(windows, starts, strict=True)
            ]

        def read(logits: Sequence[np.ndarray]) -> list[HotpotAnswered]:
            return self._read(examples, windows, starts, logits)

        return Framed([window.sample for window in windows], read, notes)

    def measure(
        self, examples: Sequence[HotpotQuestion], predictions: Sequence[HotpotAnswered], labels: Sequence[str]
    ) -> Measure:
        """See `Task`."""
        gold = [Solution(example.answer, example.support) for example in examples]
        return metrics.measure_hotpotqa(
            gold, [Solution(prediction.answer, _facts(prediction)) for prediction in predictions]
        )

    def details(
        self, examples: Sequence[HotpotQuestion], predictions: Sequence[HotpotAnswered], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the scorer, and the metrics of each type of question, if there are several."""
        measure = self.measure(examples, predictions, labels)
        types = np.array([example.kind for example in examples])
        by_type = {name: measure(np.flatnonzero(types == name)) for name in sorted(set(types.tolist()))}
        return {"scorer": "HotpotQA"} | ({"by_type": by_type} if len(by_type) > 1 else {})

    def mistakes(
        self, examples: Sequence[HotpotQuestion], predictions: Sequence[HotpotAnswered], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: wrong answers and wrong support, by the confidence of the answer."""
        mistakes = []
        for example, guess in zip(examples, predictions, strict=True):
            scores = metrics.question_scores(
                Solution(example.answer, example.support), Solution(guess.answer, _facts(guess))
            )
            if not scores[metrics.NAMES.index("joint_exact_match")]:
                answers = (_describe(example.answer, example.support), _describe(guess.answer, _facts(guess)))
                mistakes.append(span_mistake(example, guess, answers[:1], answers[1]))
        return mistakes

    def record(self, path: Path, example: HotpotQuestion, prediction: HotpotAnswered) -> Any:
        """See `Task`."""
        return {"id": prediction.id, "answer": prediction.answer, "sp": _facts(prediction)}

    def files(self, path: Path, records: Iterable[Any]) -> dict[Path, Iterable[bytes]]:
        """See `Task`: what hotpot_evaluate_v1.py reads."""
        content: dict[str, dict[str, Any]] = {"answer": {}, "sp": {}}
        for record in records:  # each time, they are read from a file
            for name, by_id in content.items():
                by_id[record["id"]] = record[name]
        return {path: [msgspec.json.format(msgspec.json.encode(content)) + b"\n"]}

    def line(self, prediction: HotpotAnswered) -> str:
        """See `Task`."""
        support = ", ".join(f"{title} {number}" for title, number in _facts(prediction))
        return f"{prediction.answer}\t{prediction.probability:.3f}\t{prediction.question}\t{support}"

    def _read(
        self,
        examples: Sequence[HotpotQuestion],
        windows: Sequence[PassageWindow],
        starts: Sequence[Mapping[int, int]],
        logits: Sequence[np.ndarray],
    ) -> list[HotpotAnswered]:
        scores = [np.full(len(example.sentences), -np.inf) for example in examples]
        for window, first_tokens, values in zip(windows, starts, logits, strict=True):
            for sentence, token in first_tokens.items():
                known = scores[window.example]
                known[sentence] = max(known[sentence], float(values[1 + token, -1]))
        answers = read_kinds(self, examples, windows, logits, TEXTS)
        return [
            HotpotAnswered(**answer, passage=example.passage, **self._support(example.sentences, values))
            for answer, example, values in zip(answers, examples, scores, strict=True)
        ]

    def _support(self, sentences: Sequence[PassageSentence], logits: np.ndarray) -> dict[str, Any]:
        made = [
            Support(sentence.title, sentence.number, sentence.start, sentence.end, float(1 / (1 + np.exp(-logit))))
            for sentence, logit in zip(sentences, logits, strict=True)
        ]
        chosen = tuple(support for support, logit in zip(made, logits, strict=True) if logit > (self.threshold or 0.0))
        return {"support": chosen, "sentences": tuple(sorted(made, key=lambda support: -support.probability))}


def _starts(window: PassageWindow, sentences: Sequence[PassageSentence]) -> dict[int, int]:
    """Return the first token in the window of each sentence that starts in it, by the number of the sentence."""
    tokens = {}
    for number, sentence in enumerate(sentences):
        span = token_span(window.offsets, sentence.start, sentence.end)
        if span and (span[0] or window.offsets[0, 0] <= sentence.start):
            tokens[number] = span[0]
    return tokens


def _labelled(window: PassageWindow, example: HotpotQuestion, starts: Mapping[int, int]) -> PassageWindow:
    """Return a window with the label of its kind, and with its sentences and which of them support the answer."""
    support = np.array([example.sentences[number].fact in example.support for number in starts], np.int64)
    closed = example.answer in CLOSED
    window = with_kind(
        window, example.answer if closed else "span", inside=bool(support.any()) if closed else window.answered
    )
    first = window.sample.positions["passage"][1:2]  # of the window's first token, if there is one
    at = np.array([first[0] + token for token in starts.values()], np.int64)
    labels = {SUPPORT: support, SHARE: np.full(len(at), 1 / max(1, len(at)))}
    return replace(window, sample=window.sample.add(positions={SENTENCES: at}, labels=labels))


def _facts(answered: HotpotAnswered) -> list[metrics.Fact]:
    return [(sentence.title, sentence.sentence) for sentence in answered.support]


def _describe(answer: str, facts: Sequence[metrics.Fact]) -> str:
    return f"{answer} ({', '.join(f'{title} {number}' for title, number in sorted(facts)) or 'no support'})"


def _logit(probability: float) -> float:
    tiny = np.finfo(float).tiny
    return float(np.log(max(probability, tiny)) - np.log(max(1 - probability, tiny)))


def _spaced(sentences: Sequence[str]) -> list[str]:
    """Return sentences with a space between them."""
    return [text if not number else f" {text}" for number, text in enumerate(sentences)]
