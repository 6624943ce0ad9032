"""Question answering with XLNet's head: the end is conditioned on the start, and a classifier tells unanswerable ones.

Input: as in `QuestionAnswering`. Output: samples, the head with its loss, answers from beams of starts and ends.

`get_qa_outputs` in function_builder.py and `write_predictions` in squad_utils.py of zihangdai/xlnet (Yang et al. 2019).
The logit of an end is that of a small network on the token and on the token of the start: of the gold start in
training, else of each of the most probable starts. The classifier reads [CLS] and the start's token; in prediction, the
mean of the tokens, weighted by the probability to be the start. The loss of a window is the mean of the cross-entropies
of start and end, plus half the classifier's. The score of an answer is the sum of two log-probabilities, that of "no
answer" the classifier's logit, the lowest of all windows.

Differences from the reference code: those of `QuestionAnswering`; the classifier is trained if no question is
unanswerable, too, as published heads have one; starts in the beam are tokens of the passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear

from unmask.data.batches.batch import Batch, Sample
from unmask.data.labelled.question_files import Question
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, WithPooler, token_vectors
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.objectives.flops import head_flops, matrices
from unmask.objectives.objective import Objective, Part
from unmask.support.messages import argument
from unmask.tasks.extraction import Answered
from unmask.tasks.passage_windows import LABEL, Candidates, PassageWindow
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.task import Reason, Refusals

CLASS_WEIGHT = 0.5
"""Weight of the classifier in the loss."""


class AnswerBeams(QuestionAnswering, frozen=True, kw_only=True, tag="answer-beams"):
    """The recipe's [task] for `kind = "answer-beams"`; see `QuestionAnswering`.

    Attributes:
        starts: number of starts for each of which ends are predicted.
        ends: number of ends of each start.
    """

    starts: int = 5
    ends: int = 5

    part = "answer_beams"
    infinite = True
    refusals: ClassVar[Refusals] = {
        **QuestionAnswering.refusals,
        "export": Reason(
            "beams are of the tokens of the passage, which an exported program does not know",
            f"fine-tune a model for question-answering, or export the hidden states: {argument('head', 'features')}",
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.starts, self.ends) < 1:
            raise ValueError("starts and ends must be at least 1")

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> AnswerBeamsHead:
        """See `Task`."""
        return AnswerBeamsHead(spec, self.starts)

    def _answers(
        self, examples: Sequence[Question], windows: Sequence[PassageWindow], logits: Sequence[np.ndarray]
    ) -> list[Answered]:
        """See `QuestionAnswering`; `logits` are those of `AnswerBeamsHead.predict`."""
        scores: list[dict[tuple[int, int], float]] = [{} for _ in examples]
        nulls, cut = [np.inf] * len(examples), [False] * len(examples)
        for window, values in zip(windows, logits, strict=True):
            cut[window.example] = window.cut
            if self.no_answer:
                nulls[window.example] = min(nulls[window.example], float(values[0, 1]))
                values = values[1:]
            passage, spans = examples[window.example].passage, scores[window.example]
            blank = np.array([not passage[start:end].strip() for start, end in window.offsets.tolist()])
            for score, first, last in self._spans(values, blank):
                characters = int(window.offsets[first, 0]), int(window.offsets[last, 1])
                spans[characters] = max(score, spans.get(characters, score))
        # listed so that the margin of "no answer" is the classifier's logit
        bests = [max(spans.values(), default=0.0) for spans in scores]
        nulls = [best + null for best, null in zip(bests, nulls, strict=True)]
        return [self._answered(*question) for question in zip(examples, scores, nulls, cut, strict=True)]

    def _spans(self, values: np.ndarray, blank: np.ndarray) -> list[tuple[float, int, int]]:
        """Return score, first and last token of the spans in the beams of a window.

        Shape:
            values: (tokens, 2 + starts); blank: (tokens,), whether a token is only whitespace.
        """
        spans = []
        for ends in values[:, 2:].T:
            (after,) = np.nonzero(ends > -np.inf)
            if not len(after) or blank[after[0]]:
                continue
            first = int(after[0])
            near = np.arange(first, min(first + self.answer, len(ends)))
            near = near[~blank[near]]
            for last in near[np.argsort(-ends[near], kind="stable")[: self.ends]].tolist():
                spans.append((float(values[first, 0] + ends[last]), first, last))
        return spans


class AnswerBeamsHead(Objective):
    """XLNet's question answering head with its loss.

    Args:
        spec: the properties of the body under the head.
        starts: number of starts in the beam.
    """

    at = "passage"

    def __init__(self, spec: HeadSpec, starts: int = 5) -> None:
        super().__init__()
        self.starts = starts
        self.start = Linear(spec.width, 1)
        self.end_dense = Linear(2 * spec.width, spec.width)
        self.end_norm = LayerNorm(spec.width, spec.epsilon)
        self.end_out = Linear(spec.width, 1)
        self.class_dense = Linear(2 * spec.width, spec.width)
        self.class_out = Linear(spec.width, 1, bias=False)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return for each candidate token what the beams of its window need, (targets, 2 + starts).

        These are its log-probability to be the start, the classifier's logit, and its log-probability to be the end for
        each of the most probable starts: -inf before the start, and for starts that the window does not have.
        """
        rows, candidates = token_vectors(encoder, encoded.last, batch, self.at), Candidates(batch)
        starts = candidates.table(self.start(rows).squeeze(1).float()).log_softmax(1)  # (windows, longest)
        start_scores = candidates.of_table(starts)  # (targets,)
        weighted = rows * start_scores.exp()[:, None].to(rows.dtype)
        states = rows.new_zeros(candidates.windows, rows.shape[1])  # (windows, width)
        states = states.index_add(0, candidates.row, weighted)
        classes = self._classify(states, self._summaries(encoder, encoded, batch, candidates))  # (windows,)
        columns = [start_scores, classes.index_select(0, candidates.row)]
        best = self._without_summary(starts, batch, candidates).topk(min(self.starts, candidates.longest), 1)
        for values, position in zip(best.values.T, best.indices.T, strict=True):
            state = rows.index_select(0, candidates.find(position))  # (windows, width)
            table = candidates.table(self._ends(rows, state, candidates))  # (windows, longest)
            ends = candidates.of_table(table.log_softmax(1))  # (targets,)
            # beyond the window, if there are fewer starts
            first = position.masked_fill(values.isinf(), candidates.longest)
            columns.append(ends.masked_fill(candidates.position < first.index_select(0, candidates.row), -torch.inf))
        missing = torch.full_like(start_scores, -torch.inf)
        return torch.stack(columns + [missing] * (2 + self.starts - len(columns)), 1)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; a window is correct if both its start and, given the right one, its end are."""
        start, end = batch.labels[LABEL].view(-1, 2).unbind(1)  # (windows,) each, as positions in the sequence
        rows, candidates = token_vectors(encoder, encoded.last, batch, self.at), Candidates(batch, len(start))
        state = rows.index_select(0, candidates.find(start))  # (windows, width)
        starts = candidates.table(self.start(rows).squeeze(1).float())  # (windows, longest)
        ends = candidates.table(self._ends(rows, state, candidates))  # (windows, longest)
        classes = self._classify(state, self._summaries(encoder, encoded, batch, candidates))  # (windows,)
        spans = sum(cross_entropy(table, gold, reduction="sum") for table, gold in ((starts, start), (ends, end)))
        impossible = (start == self._summary(batch, candidates)).float()
        unsure = binary_cross_entropy_with_logits(classes, impossible, reduction="sum")
        correct = (starts.detach().argmax(1) == start) & (ends.detach().argmax(1) == end)
        return Part(spans / 2 + CLASS_WEIGHT * unsure, {"accuracy": correct.sum()})

    def _ends(self, rows: Tensor, states: Tensor, candidates: Candidates) -> Tensor:
        """Return the logits of ends, (targets,), given the vectors of the starts, (windows, width)."""
        of_ends, of_starts = self.end_dense.weight.chunk(2, 1)
        from_starts = linear(states, of_starts, self.end_dense.bias).index_select(0, candidates.row)  # (targets, width)
        return self.end_out(self.end_norm((linear(rows, of_ends) + from_starts).tanh())).squeeze(1).float()

    def _classify(self, states: Tensor, summaries: Tensor) -> Tensor:
        """Return the logits of having no answer, (windows,), given the vectors of starts and of [CLS]."""
        return self.class_out(self.class_dense(torch.cat([states, summaries], 1)).tanh()).squeeze(1).float()

    @staticmethod
    def _summaries(encoder: Encoder, encoded: Encoded, batch: Batch, candidates: Candidates) -> Tensor:
        """Return the vectors of [CLS], (windows, width)."""
        return token_vectors(encoder, encoded.last, batch, "summary").index_select(0, candidates.sequence)

    @staticmethod
    def _summary(batch: Batch, candidates: Candidates) -> Tensor:
        """Return the position of [CLS] in the sequence, (windows,)."""
        at = batch.positions["summary"].index_select(0, candidates.sequence)
        return batch.tokens.position_ids.index_select(0, at)

    def _without_summary(self, table: Tensor, batch: Batch, candidates: Candidates) -> Tensor:
        """Return a table with -inf at [CLS], which is no start of an answer."""
        return table.scatter(1, self._summary(batch, candidates)[:, None], -torch.inf)


@head_flops.register
def _(head: AnswerBeamsHead, encoder: Encoder, batch: Batch) -> int:
    targets, windows = len(batch.positions[head.at]), len(batch.keys)
    pooler = matrices(cast(WithPooler, encoder).pooler) if encoder.head.pools_tokens else 0
    half = head.end_dense.weight.numel() // 2  # for the vectors of ends, and of starts: one for each window
    each = matrices(head.start, head.end_out) + half + pooler
    return 2 * (targets * each + windows * (half + matrices(head.class_dense, head.class_out)))
