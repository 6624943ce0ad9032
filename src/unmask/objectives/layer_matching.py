"""Layer matching: make the inner results of each layer those of a layer of the teacher.

Input: any samples. Output: a part of the loss with one term per token, the sum of the squared errors of the embeddings,
of the hidden states of each layer, and of its attention scores before the softmax.

Jiao et al. 2020, arXiv 1909.10351 (TinyBERT), equations 6 to 9 and 11. Layer m of the student's M learns from layer
g(m) of the teacher's N; g(m) = m N / M by default, rounded up. Where widths differ, a matrix W_h, the same in all
layers, maps the student's hidden states to the teacher's, and W_e its embeddings; the authors' code has one matrix for
both, with a bias, even where widths are equal. Of each token, errors are averaged over the width or, for attention,
over heads and keys: for sequences of equal length this is the paper's mean squared error. The teacher computes without
dropout, which the authors' code leaves on. The matrices are not part of the trained model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import SCORES, Encoded, Encoder, Keep
from unmask.nn.layers.linear import Linear
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, Part
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.support.errors import UserError
from unmask.support.messages import setting

NAME = "layer_matching"


class LayerMatchingSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.layer_matching].

    Attributes:
        embeddings, hidden, attention: factors of the errors of embeddings, hidden states and attention scores; 0: they
            are not compared.
        layers: for each layer of the student the number, from 1, of the teacher's layer that it learns from; empty:
            layers at equal distances, with the last.
    """

    embeddings: float = 1.0
    hidden: float = 1.0
    attention: float = 1.0
    layers: tuple[int, ...] = ()

    requires = frozenset({TEACHER})

    def __post_init__(self) -> None:
        factors = (self.embeddings, self.hidden, self.attention)
        if not all(0 <= factor < math.inf for factor in factors) or not any(factors):
            raise ValueError("embeddings, hidden and attention must not be negative, and one must be above 0")
        if self.layers and not (self.hidden or self.attention):
            raise ValueError("layers has no effect without hidden or attention")

    def build(self, context: BuildContext) -> LayerMatching:
        """See `ObjectiveSettings`.

        Raises:
            UserError: there is no teacher, or its layers cannot be compared with those of the student.
        """
        teacher = context.teacher_of(NAME)
        pairs = dict(enumerate(self.mapping(context.body.num_layers, teacher.encoder.num_layers), start=1))
        if self.attention:
            _check_attention(context.body, teacher.encoder, pairs)
        return LayerMatching(self, context, teacher, pairs)

    def mapping(self, student_layers: int, teacher_layers: int) -> Sequence[int]:
        """Return g(m) for each layer m of the student, given the numbers of layers of the student and the teacher.

        Raises:
            UserError: they do not suffice, or `layers` names others.
        """
        if not self.layers and student_layers <= teacher_layers:
            return [-(-number * teacher_layers // student_layers) for number in range(1, student_layers + 1)]
        if not self.layers:
            raise UserError(
                f"the student has {student_layers} layers, but the teacher only {teacher_layers}",
                remedy=f"pass {setting(f'objective.{NAME}.layers', '[…]')}, the teacher's layer for each of the "
                "student's",
            )
        if len(self.layers) != student_layers or not all(1 <= number <= teacher_layers for number in self.layers):
            raise UserError(
                f"objective.{NAME}.layers must name one of the teacher's layers 1 to {teacher_layers} for each of the "
                f"student's {student_layers} layers, not {list(self.layers)}"
            )
        return self.layers


class LayerMatching(Objective):
    """See the module.

    Args:
        settings: settings from the recipe.
        context: the student's body.
        teacher: the teacher.
        pairs: the teacher's layer for each layer of the student, both numbered from 1.
    """

    def __init__(
        self, settings: LayerMatchingSettings, context: BuildContext, teacher: Teacher, pairs: dict[int, int]
    ) -> None:
        super().__init__()
        self.factors = {"embeddings": settings.embeddings, "hidden": settings.hidden, "attention": settings.attention}
        self.teacher = teacher
        self.pairs = pairs
        bottom = {0} if settings.embeddings else set()
        self.keep = self._keep(bottom | pairs.keys(), set(pairs))
        teacher.ask(NAME, self._keep(bottom | {*pairs.values()}, {*pairs.values()}))
        width, teacher_width = context.body.width, teacher.encoder.width
        self.project_embeddings, self.project_hidden = (
            Linear(width, teacher_width, bias=False) if width != teacher_width and self.factors[name] else None
            for name in ("embeddings", "hidden")
        )
        context.head.init(self)

    def _keep(self, layers: set[int], scores: set[int]) -> Keep:
        """Return what is compared of these layers and of their attention scores."""
        chosen = {number for number in layers if number == 0 or self.factors["hidden"]}
        return Keep(frozenset(chosen), frozenset(scores if self.factors["attention"] else ()))

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; one term per token."""
        return sample.add(counts={name: len(sample)})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor:
        """See `Objective`: nothing but what `keep` asks for."""
        return batch.tokens.offsets.new_empty(0, dtype=torch.int64)

    def check(self) -> None:
        """See `Objective`."""
        self.teacher.check()

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the sum of the errors of each kind, (kinds,)."""
        taught, errors = self.teacher.read(batch), dict[str, Tensor]()
        if self.factors["embeddings"]:
            errors["embeddings"] = _squared(encoded.layers[0], taught.layers[0], self.project_embeddings)
        if self.factors["hidden"]:
            pairs = ((encoded.layers[layer], taught.layers[target]) for layer, target in self.pairs.items())
            errors["hidden"] = torch.stack([_squared(*pair, self.project_hidden) for pair in pairs]).sum()
        if self.factors["attention"]:
            scores = ((encoded.scores[layer], taught.scores[target]) for layer, target in self.pairs.items())
            lengths = batch.tokens.offsets.diff()  # (sequences,)
            errors["attention"] = torch.stack([_squared_scores(*pair, lengths) for pair in scores]).sum()
        return torch.stack(list(errors.values()))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        names = [name for name, factor in self.factors.items() if factor]
        errors = dict(zip(names, self.predict(encoder, encoded, batch), strict=True))
        loss = torch.stack([self.factors[name] * error for name, error in errors.items()]).sum()
        return Part(loss, {name: error.detach() for name, error in errors.items()})


def _squared(x: Tensor, target: Tensor, projection: nn.Module | None) -> Tensor:
    """Return the squared error, averaged over the width and summed over tokens; each is (tokens, its width)."""
    x = x if projection is None else projection(x)
    return (x.float() - target.float()).square().mean(1).sum()


def _squared_scores(scores: Sequence[Tensor], targets: Sequence[Tensor], lengths: Tensor) -> Tensor:
    """Return the squared error of attention scores, averaged over heads and keys and summed over queries.

    Args:
        scores, targets: for each group of the batch (sequences, heads, longest, longest), 0 at padding.
        lengths: lengths of the batch's sequences, (sequences,).
    """
    errors = [
        (score.float() - target.float()).square().sum((2, 3)).mean(1)
        for score, target in zip(scores, targets, strict=True)
    ]
    return (torch.cat(errors) / lengths).sum()


def _check_attention(student: Encoder, teacher: Encoder, pairs: dict[int, int]) -> None:
    """Raise an error if the attention scores of two bodies cannot be compared."""
    remedy = f"pass {setting(f'objective.{NAME}.attention', 0)}, which compares hidden states only"
    for name, body in (("student", student), ("teacher", teacher)):
        if SCORES not in body.provides:
            raise UserError(f"the {name} has no attention scores to compare", remedy=remedy)
    for layer, teacher_layer in pairs.items():
        (heads, reach), (other_heads, other_reach) = _attention(student, layer), _attention(teacher, teacher_layer)
        if heads != other_heads:
            raise UserError(
                f"the attention scores of {heads} heads cannot be compared with those of the teacher's {other_heads}",
                remedy=remedy,
            )
        if reach != other_reach:
            raise UserError(
                f"layer {layer} of the student attends {reach}, but layer {teacher_layer} of the teacher {other_reach}",
                remedy=f"{remedy}, or choose other layers with objective.{NAME}.layers",
            )


def _attention(body: Any, layer: int) -> tuple[int, str]:
    """Return the number of heads of a layer (from 1) of a Transformer, and to what its tokens attend, in words."""
    attention = body.blocks[min(layer, len(body.blocks)) - 1].attention
    spec = attention.spec
    if spec.causal:
        return spec.heads, "to previous tokens"
    return spec.heads, "to all tokens" if spec.window is None else f"within {spec.window} tokens"
