"""The head of all tasks whose answers are spans of a passage: start and end, classes, and supporting sentences.

Input: windows of passages. Output: their loss, or logits in columns: start, end, the classes, support.

Devlin et al. 2019, section 4.2: a dot product of each token with a vector for the start, and one for the end. What
questions have beside a span (yes or no, whether to ask on) is a classifier on the pooled [CLS], as for whole texts.
Sentences that support an answer are found by a dot product with the first token of each (Yang et al. 2018 read
both ends of a sentence in a recurrent layer, sp_model.py of hotpotqa/hotpot; an encoder reads the whole sentence in any
of its tokens).

A `KindAnswered` answer is a span, yes, no, or none of these, as in CoQA and HotpotQA. In training, a window that
contains what answers the question has the kind of the answer, and other windows "none". In prediction, the score of a
kind is the highest log-probability of all windows, but the lowest for "none", as for "no answer" in question answering;
a span's score is the sum of its two logits and the log-probability of spans in its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from unmask.data.batches.batch import Batch, Sample
from unmask.data.labelled.question_files import Question
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, token_vectors
from unmask.nn.layers.linear import Linear
from unmask.objectives.objective import NEVER, Objective, Part, imitate_softmax
from unmask.tasks.extraction import Answered, Extraction, SearchResult, Span
from unmask.tasks.passage_windows import LABEL, Candidates, PassageWindow, sequences_of
from unmask.tasks.pooled_head import PooledHead

KIND = "kind"
"""Name of the classifier and of its label."""
KINDS = ("span", "yes", "no", "none")


class KindAnswered(Answered, frozen=True, kw_only=True):
    """A question with its answer, whose `start` and `end` are None if it is no span; see `Answered`.

    Attributes:
        kind: the kind of the answer.
        kinds: the probability of each kind that may be answered.
    """

    kind: str
    kinds: dict[str, float]


def with_kind(window: PassageWindow, kind: str, *, inside: bool) -> PassageWindow:
    """Return a window with the label of its kind; `inside`: whether it contains what answers the question."""
    label = np.array([KINDS.index(kind if inside else "none")])
    return replace(window, sample=window.sample.add(labels={KIND: label}))


def read_kinds(
    task: Extraction,
    examples: Sequence[Question],
    windows: Sequence[PassageWindow],
    logits: Sequence[np.ndarray],
    texts: dict[str, str],
) -> list[dict[str, Any]]:
    """Return the attributes of `KindAnswered` for each example.

    Args:
        task: settings of the search.
        examples: the questions.
        windows: their windows, whose first candidate is [CLS].
        logits: start, end and `KINDS` of each candidate of a window, (tokens, 6 or more).
        texts: the answer of each kind that may be answered besides spans.
    """
    rows = np.array([values[0, 2:6] for values in logits], np.float64).reshape(-1, len(KINDS))
    scores = rows - np.logaddexp.reduce(rows, 1, keepdims=True)  # (windows, kinds)
    spans = [values[:, :2] for values in logits]
    results = task.search(examples, windows, spans, none=True, bonus=scores[:, 0].tolist())
    return [_choose(task, *pair, scores, texts) for pair in zip(examples, results, strict=True)]


def _choose(
    task: Extraction, example: Question, result: SearchResult, scores: np.ndarray, texts: dict[str, str]
) -> dict[str, Any]:
    window_scores = scores[result.windows]  # (windows of the question, kinds)
    best = np.concatenate([window_scores[:, :-1].max(0), window_scores[:, -1:].min(0)])  # (kinds,)
    spans, _ = task.list_spans(example, result.spans)
    allowed = [name for name in KINDS if name in texts or (name == "span" and spans)]
    odds = np.exp(best[[KINDS.index(name) for name in allowed]])
    kinds = dict(zip(allowed, (odds / odds.sum()).tolist(), strict=True))
    listed = [Span(span.answer, span.start, span.end, span.probability * kinds["span"]) for span in spans]
    others = {name: Span(texts[name], None, None, kinds[name]) for name in allowed if name != "span"}
    kind = max(kinds, key=lambda name: kinds[name])
    chosen = listed[0] if kind == "span" else others[kind]
    return {
        **{"id": example.id, "question": example.question},
        **{"answer": chosen.answer, "start": chosen.start, "end": chosen.end, "probability": chosen.probability},
        **{"kind": texts.get(kind, kind) if kind == "none" else kind, "kinds": kinds, "cut": result.cut},
        "nbest": tuple(sorted([*listed, *others.values()], key=lambda span: -span.probability)),
    }


UNTRAINED = -100
"""Label of a window whose class is not trained on."""
SENTENCES, SUPPORT, SHARE = "sentences", "support", "support_share"
"""Names of the positions of the first tokens of sentences, of whether each supports the answer, and of its weight."""


class WindowClassifier(PooledHead):
    """Classifier of windows, with its loss over those that have a label.

    Args:
        spec: the properties of the body under the head.
        classes: number of classes.
        label: name of the label.
    """

    def __init__(self, spec: HeadSpec, classes: int, label: str) -> None:
        super().__init__(spec, classes)
        self.label = label

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits, gold = self.predict(encoder, encoded, batch), batch.labels[self.label]  # (windows, classes), (windows,)
        loss = cross_entropy(logits.float(), gold, reduction="sum", ignore_index=UNTRAINED)
        return Part(loss, {"accuracy": (logits.detach().argmax(1) == gold).sum()})


class AnswerHead(Objective):
    """Head of answers with its loss, a sum over windows.

    That of a window is the mean of the cross-entropies of start and end, plus the cross-entropy of each class, plus the
    mean binary cross-entropy of its sentences.

    Args:
        spec: the properties of the body under the head.
        classes: number of classes of each classifier of windows, by name.
        support: whether to find supporting sentences.
    """

    at = "passage"

    def __init__(self, spec: HeadSpec, classes: Mapping[str, int] | None = None, *, support: bool = False) -> None:
        super().__init__()
        classes = classes or {}
        self.out = Linear(spec.width, 2)
        self.classes = nn.ModuleDict({name: WindowClassifier(spec, number, name) for name, number in classes.items()})
        self.support = Linear(spec.width, 1) if support else None
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits of each candidate token, (targets, columns).

        The columns are start, end, the classes of its window, and, where there are sentences, the logit of support if
        one started with it.
        """
        rows = token_vectors(encoder, encoded.last, batch, self.at)  # (targets, width)
        columns = [self.out(rows)]
        if len(self.classes):
            sequences = sequences_of(batch)  # (targets,)
            columns += [head.predict(encoder, encoded, batch).index_select(0, sequences) for head in self._classifiers]
        if self.support is not None:
            columns.append(self.support(rows))
        return torch.cat(columns, 1)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; a window is correct if both its start and its end are."""
        gold = batch.labels[LABEL]  # (windows * 2,): start and end of each, as positions in its sequence
        candidates = Candidates(batch, len(gold) // 2)
        table = candidates.table(self.out(token_vectors(encoder, encoded.last, batch, self.at)).float())
        table = table.transpose(1, 2).flatten(0, 1)  # (windows * 2, longest)
        loss = cross_entropy(table, gold, reduction="sum") / 2
        for head in self._classifiers:
            loss = loss + head.score(encoder, encoded, batch).sum
        if self.support is not None:
            rows = token_vectors(encoder, encoded.last, batch, SENTENCES)  # (sentences, width)
            logits = self.support(rows).squeeze(1).float()  # (sentences,)
            truth, share = batch.labels[SUPPORT].float(), batch.labels[SHARE].float()
            loss = loss + binary_cross_entropy_with_logits(logits, truth, share, reduction="sum")
        correct = (table.detach().argmax(1) == gold).view(-1, 2).all(1).sum()
        return Part(loss, {"accuracy": correct})

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: per window, the mean of the losses of start and end, and those of the classes.

        Support is not imitated: it is trained on gold labels alone.
        """
        candidates = Candidates(batch, len(batch.keys))
        tables = (candidates.table(rows[:, :2].float()) for rows in (logits, targets))  # (windows, longest, 2) each
        student, teacher = (table.transpose(1, 2).flatten(0, 1).clamp(min=NEVER) for table in tables)
        part = imitate_softmax(student, teacher, temperature)
        loss, column = part.sum / 2, 2
        windows = torch.arange(candidates.windows, device=logits.device)
        firsts = torch.searchsorted(candidates.row, windows)  # (windows,) the first candidate of each
        for head in self._classifiers:
            classes = slice(column, column := column + head.out.out_features)
            loss = loss + imitate_softmax(logits[firsts, classes], targets[firsts, classes], temperature).sum
        agreed = (student.detach().argmax(1) == teacher.argmax(1)).view(-1, 2).all(1).sum()
        return Part(loss, {"agreement": agreed})

    @property
    def _classifiers(self) -> list[WindowClassifier]:
        return [head for head in self.classes.values() if isinstance(head, WindowClassifier)]
