"""Which words a prediction rests on: the contribution of each word to a decision, by one of two methods.

Input: a fine-tuned model, and examples as its task frames them. Output: explanations (tasks/explained.py).

- Occlusion (Zeiler and Fergus 2014, section 2; for words Li et al. 2016, section 3): how much the decision drops when a
  word is masked. Each of its tokens is replaced by the mask token; where the encoder was not trained to read masks
  (GPT, XLNet, ELMo), the word is removed. One forward pass per word.
- Integrated gradients (Sundararajan et al. 2017, equation 1): the difference of each token embedding from a baseline,
  times the mean gradient of the decision on the straight line between them, summed over the width and over the tokens
  of a word. In the baseline all words are mask tokens, or padding where masks are not read. The contributions sum to
  the decision minus that for the baseline (proposition 1). The integral is computed by the Gauss-Legendre rule, with as
  many steps as it takes until they do, within `TOLERANCE`.

On held-out training examples integrated gradients name the words that a prediction needs earlier than occlusion does
(benchmarks/explanations.py), so they are computed where they can be ("auto"): not for exported models, in bf16 and for
ELMo.

Special tokens, positions and segments are not explained: they are the same in the baseline.

The token embeddings are replaced without code in the bodies: a batch of points on the line reads tokens 0, 1, 2, …,
and the table of the embeddings holds its vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import embedding

from unmask.data.batches.batch import Sample, collate
from unmask.inference.backend import Backend, TorchBackend
from unmask.model.model import Model
from unmask.nn.encoders.encoder import BOTH_SIDES, TOKEN_EMBEDDINGS, TWO_STREAMS, Encoder, Keep
from unmask.nn.layers.embeddings import Embeddings
from unmask.objectives.learner import Learner
from unmask.support.choices import ExplainMethod, check_choice
from unmask.support.errors import ShareNote, UserError
from unmask.support.messages import argument
from unmask.tasks.explained import Contribution, Decision, Explanation, SampleWords, UnexplainedError
from unmask.tasks.task import Framed, Task

STEPS = (8, 16, 32, 64, 128, 256, 512)
"""Numbers of steps of the integral, tried one after the other."""
TOLERANCE = 0.01
"""How much the sum of the contributions may be off, relative to the difference of the decisions, but to 1 at least."""
STEP_TOKENS = 4096
"""Maximum number of tokens of the points on the line that are computed together, unless one has more."""
MAX_OCCLUDED = 1 << 25
"""Maximum number of logits of a sample and its occluded copies: words × targets × outputs of the head."""


def explains(task: Task) -> bool:
    """Return whether predictions of a task are explained."""
    return type(task).decisions is not Task.decisions


@dataclass(frozen=True)
class Explainer:
    """Explains what a model decides; see the module.

    Attributes:
        model: a fine-tuned model.
        task: its task.
        backend: computes the logits, and with weights the gradients.
    """

    model: Model
    task: Task
    backend: Backend

    def explain(self, framed: Framed, predictions: Sequence[Any], method: ExplainMethod) -> list[str]:
        """Set the `explanations` of predictions.

        Args:
            framed: the examples.
            predictions: the prediction of each example.
            method: see `unmask.inference.explanation`.

        Returns:
            Notes on texts that are not explained, because they are read in several windows or have too many words, and
            on explanations by integrated gradients that are not complete, if there are any.

        Raises:
            UserError: the method cannot explain this model, or what it predicts.
        """
        check_choice("explain", method, ExplainMethod)
        if method == "auto":
            method = "occlusion" if self._obstacle else "integrated-gradients"
        explain = self.occlude if method == "occlusion" else self.integrate
        by_example: list[list[Explanation]] = [[] for _ in predictions]
        unexplained: dict[int, str] = {}  # by example, what is said of it
        for number, sample in enumerate(framed.samples):
            try:
                words = self.words(framed, number)
                by_example[words.example] += explain(sample, words)
            except UnexplainedError as error:
                unexplained[error.example] = str(error)
        for prediction, explanations in zip(predictions, by_example, strict=True):
            msgspec.structs.force_setattr(prediction, "explanations", tuple(explanations))
        made = [explanation for explanations in by_example for explanation in explanations]
        inexact = len(made) - sum(map(is_complete, made))
        what = f"explanations have sums further than {TOLERANCE:.0%} from the decision, after {STEPS[-1]} steps"
        notes = [
            ShareNote(number, len(predictions), statement)
            for statement, number in Counter(unexplained.values()).items()
        ]
        return [*notes, *([ShareNote(inexact, len(made), what)] if inexact else [])]

    def words(self, framed: Framed, number: int) -> SampleWords:
        """Return the words of a sample.

        Raises:
            UserError: predictions of the task are not explained.
            UnexplainedError: the text of this sample is not.
        """
        if framed.words is None:
            raise UserError(
                f"predictions of {self.task.title} are not explained",
                remedy="those of classification, multi-label, regression and token-classification are",
            )
        return framed.words(number)

    @property
    def reads_masks(self) -> bool:
        """Whether the encoder was trained to read mask tokens: not GPT, XLNet and ELMo."""
        provides = self.model.encoder.provides
        return {BOTH_SIDES, TOKEN_EMBEDDINGS} <= provides and TWO_STREAMS not in provides

    def occluded(self, sample: Sample, words: SampleWords) -> list[Sample]:
        """Return a sample, and for each of its words a copy in which it is masked, or removed.

        Raises:
            UserError: the tag of a word would have to be read without it.
        """
        masks = self.reads_masks
        if not masks and any((words.index[at] >= 0).any() for at in sample.positions.values()):
            others = TOKEN_EMBEDDINGS in self.model.encoder.provides
            raise UserError(
                "occlusion cannot explain tags of an encoder that reads no masks: the word itself cannot be removed",
                remedy=f"pass {argument('explain', 'integrated-gradients')}" if others else "",
            )
        places = (words.index == number for number in range(len(words.words)))
        mask = self.model.tokenizer.mask
        return [sample, *(_masked(sample, at, mask) if masks else _without(sample, at) for at in places)]

    def read_occlusion(self, sample: Sample, words: SampleWords, logits: Sequence[np.ndarray]) -> list[Explanation]:
        """Return the explanations of a sample.

        Args:
            sample: the sample.
            words: its words.
            logits: those of what `occluded` returns, each (targets, outputs).
        """
        stacked = torch.from_numpy(np.stack(logits)).double()  # (1 + words, targets, outputs)
        explanations = []
        for decision in self.task.decisions(logits[0], self.model.labels):
            values = decision.value(stacked)  # (1 + words,)
            explanations.append(_explanation(decision, sample, words, values[0] - values[1:], float(values[0])))
        return explanations

    def occlude(self, sample: Sample, words: SampleWords) -> list[Explanation]:
        """Return the explanations of a sample by occlusion.

        Raises:
            UserError: see `occluded`.
            UnexplainedError: there are more than `MAX_OCCLUDED` logits.
        """
        samples = self.occluded(sample, words)
        (logits,) = self.backend.logits(self.task.part, samples[:1])
        if logits.size * len(samples) > MAX_OCCLUDED:
            raise UnexplainedError("texts have too many words to be explained, with so many scores each", words.example)
        return self.read_occlusion(sample, words, [logits, *self.backend.logits(self.task.part, samples[1:])])

    def integrate(self, sample: Sample, words: SampleWords) -> list[Explanation]:
        """Return the explanations of a sample by integrated gradients.

        Raises:
            UserError: the model is exported, reads characters, or computes in bf16.
        """
        path = self._path(sample, words)
        with torch.no_grad():
            ends = path.logits(path.points(torch.tensor([1.0, 0.0]))).double().cpu()  # (2, targets, outputs)
        decisions = self.task.decisions(ends[0].numpy(), self.model.labels)
        if not decisions:
            return []
        values = torch.stack([decision.value(ends) for decision in decisions])  # (decisions, 2)
        explanations = list[Explanation]()
        for steps in STEPS:
            by_token = path.integrate(decisions, steps)  # (decisions, tokens)
            by_word = by_token.new_zeros(len(decisions), len(words.words) + 1)  # the last: special tokens, 0
            by_word.index_add_(1, torch.from_numpy(words.index) % by_word.shape[1], by_token)
            explanations = [
                _explanation(decision, sample, words, contributions, *pair)
                for decision, contributions, pair in zip(decisions, by_word, values.tolist(), strict=True)
            ]
            if all(map(is_complete, explanations)):
                break
        return explanations

    @property
    def _obstacle(self) -> str:
        """Why integrated gradients cannot be computed; "": they can."""
        if not isinstance(self.backend, TorchBackend):
            return "need the weights of a model, which an exported one does not have"
        if TOKEN_EMBEDDINGS not in self.model.encoder.provides:
            return "are of token embeddings, and this model reads characters (ELMo)"
        return "" if self.backend.precision == "float32" else f"are computed in float32, not {self.backend.precision}"

    def _path(self, sample: Sample, words: SampleWords) -> _Path:
        """Return the line from the baseline to a sample; raise the errors of `integrate`."""
        if obstacle := self._obstacle:
            raise UserError(
                f"integrated gradients {obstacle}",
                remedy=f"pass {argument('explain', 'occlusion')}",
            )
        assert isinstance(self.backend, TorchBackend)
        learner = self.backend.learner(self.task.part)
        tokenizer, device = self.model.tokenizer, self.backend.machine.device
        table = _table(learner.encoder)
        weight = learner.encoder.get_parameter(table).detach()
        baseline = tokenizer.mask if self.reads_masks else tokenizer.pad
        start, end = (
            embedding(torch.from_numpy(ids.astype(np.int64)).to(device), weight)  # (tokens, width)
            for ids in (np.where(words.index >= 0, baseline, sample.ids), sample.ids)
        )
        return _Path(learner, self.task.part, table, sample, start, end)


@dataclass(frozen=True)
class _Path:
    """The straight line between two embeddings of a sample.

    Attributes:
        learner: body and head.
        head: name of the head.
        table: name of the table of token embeddings among the parameters of the body.
        sample: the sample.
        start, end: token embeddings of the baseline and of the sample, (tokens, width).
    """

    learner: Learner
    head: str
    table: str
    sample: Sample
    start: Tensor
    end: Tensor

    def points(self, shares: Tensor) -> Tensor:
        """Return the points at shares of the way, (points,), as (points, tokens, width)."""
        return torch.lerp(self.start, self.end, shares.to(self.end)[:, None, None])

    def logits(self, points: Tensor) -> Tensor:
        """Return the logits of points, (points, targets, outputs)."""
        batch = collate([self.sample.named((number,)) for number in range(len(points))]).to(points.device)
        every = torch.arange(points.shape[0] * points.shape[1], device=points.device)
        batch = replace(batch, tokens=replace(batch.tokens, ids=every))
        encoder, objective = self.learner.encoder, self.learner.parts[self.head]
        weights = {name: weight.detach() for name, weight in encoder.named_parameters()}
        weights[self.table] = points.flatten(0, 1)
        encoded = functional_call(encoder, weights, (batch.tokens, Keep(rows=objective.reads(encoder, batch))))
        logits: Tensor = objective.predict(encoder, encoded, batch).float()
        return logits.view(len(points), -1, logits.shape[-1])

    def integrate(self, decisions: Sequence[Decision], steps: int) -> Tensor:
        """Return the integrated gradients of decisions, summed over the width, (decisions, tokens) float64."""
        nodes, weights = np.polynomial.legendre.leggauss(steps)  # from -1 to 1; the weights sum to 2
        together = max(1, STEP_TOKENS // len(self.sample))
        total = torch.zeros(len(decisions), len(self.sample), dtype=torch.float64)
        difference = (self.end - self.start).double().cpu()  # (tokens, width)
        for at in range(0, steps, together):
            points = self.points(torch.from_numpy((nodes[at : at + together] + 1) / 2)).requires_grad_()
            share = torch.from_numpy(weights[at : at + together] / 2)  # (points,)
            with torch.enable_grad():
                logits = self.logits(points)
                values = [decision.value(logits).sum() for decision in decisions]
            for number, value in enumerate(values):
                (gradient,) = torch.autograd.grad(value, points, retain_graph=number + 1 < len(values))
                mean = torch.einsum("p,ptw->tw", share, gradient.double().cpu())
                total[number] += (mean * difference).sum(1)
        return total


def is_complete(explanation: Explanation) -> bool:
    """Return whether contributions by integrated gradients sum to the difference from the baseline (`TOLERANCE`)."""
    difference = explanation.value - (explanation.baseline or 0.0)
    total = sum(word.contribution for word in explanation.words)
    return explanation.baseline is None or abs(total - difference) <= TOLERANCE * max(1.0, abs(difference))


def _table(encoder: Encoder) -> str:
    """Return the name of the table of token embeddings among the parameters of a body."""
    (name,) = (name for name, module in encoder.named_modules() if isinstance(module, Embeddings))
    return f"{name}.words.weight"


def _masked(sample: Sample, at: np.ndarray, mask: int) -> Sample:
    """Return a sample with the tokens masked where `at` is true, (tokens,)."""
    return sample.changed(ids=np.where(at, mask, sample.ids))


def _without(sample: Sample, at: np.ndarray) -> Sample:
    """Return a sample without the tokens where `at` is true, (tokens,)."""
    left = ~at
    moved = np.cumsum(left) - 1
    return sample.changed(
        ids=sample.ids[left],
        segments=None if sample.segments is None else sample.segments[left],
        positions={name: moved[tokens] for name, tokens in sample.positions.items()},
    )


def _explanation(
    decision: Decision,
    sample: Sample,
    words: SampleWords,
    contributions: Tensor,
    value: float,
    baseline: float | None = None,
) -> Explanation:
    """Return an explanation; the contributions are those of the words, (words,) or more."""
    decided = None
    if decision.at is not None:
        decided = words.words[words.index[sample.positions[decision.at][decision.target]]]
    pairs = zip(words.words, contributions.tolist(), strict=False)
    return Explanation(
        decision.label,
        value,
        [Contribution(word.start, word.end, contribution, word.text) for word, contribution in pairs],
        None if decided is None else decided.start,
        None if decided is None else decided.end,
        baseline,
    )
