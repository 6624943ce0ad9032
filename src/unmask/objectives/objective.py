"""What every objective is: the protocol between ideas of papers (and tasks) and the one training loop.

A part of a loss is a sum, and over how many terms it runs is known from the data before any forward pass. The loop
adds these counts over all pieces of a step first, and then minimises the weighted sum of the parts' means: so each
objective is its own mean over its own targets, however a batch is cut.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import NOTHING, Encoded, Encoder, HeadSpec, Keep, WithTokenEmbeddings
from unmask.layers.vocabulary import count_correct
from unmask.objectives.teacher import Teacher


@dataclass(frozen=True)
class BuildContext:
    """What an objective is built for.

    Attributes:
        body: the encoder that its heads sit on.
        teacher: a model to learn from, where there is one.
        tokenizer_size: how many pieces the tokenizer has; None: as many as the body knows tokens.
    """

    body: Encoder
    teacher: Teacher | None = None
    tokenizer_size: int | None = None

    @property
    def head(self) -> HeadSpec:
        """What a head must know of the body."""
        return self.body.head

    @property
    def vocabulary(self) -> int:
        """How many tokens the body knows, and so a decoder tied to its embeddings tells apart."""
        return self.body.vocabulary

    @property
    def num_tokens(self) -> int:
        """How many tokens a decoder of an objective's own tells apart, whatever it is that the body reads."""
        return self.vocabulary if self.tokenizer_size is None else self.tokenizer_size

    @property
    def decoder_width(self) -> int:
        """Width of the token embeddings, to which a decoder is tied; for bodies that give `TOKEN_EMBEDDINGS`."""
        return decoder_of(self.body).shape[1]


class ObjectiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the recipe's [objective.NAME] holds for every objective.

    Attributes:
        weight: in the sum of losses.
        asks: names of what the body (encoders/encoder.py), the layout and the masking must give.
        takes: those of them of which nothing is left for other objectives.
    """

    weight: float = 1.0

    asks: ClassVar[frozenset[str]] = frozenset()
    takes: ClassVar[frozenset[str]] = frozenset()

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each of its parts in the loss."""
        return (self.weight,)

    def build(self, context: BuildContext) -> Objective:
        """Return the objective with untrained heads, drawn from torch's global generator."""
        raise NotImplementedError

    @classmethod
    def of_head(cls, tensors: Mapping[str, Tensor], width: int) -> ObjectiveSettings:
        """Return the settings of which a head has these tensors.

        Args:
            tensors: the head's, by part.
            width: of the encoder.

        Raises:
            ValueError: they are not such a head's.
        """
        return cls()


class Part(NamedTuple):
    """One objective's share of the loss of a piece.

    Attributes:
        sum: scalar with graph, float32; 0 with graph where there is no target.
        metrics: further sums over the same terms, without graph: "accuracy", of what is right, where something is
            classified.
    """

    sum: Tensor
    metrics: Mapping[str, Tensor]


class Objective(nn.Module):
    """Owns its heads. Subclasses say what they need, prepare samples, and score what the encoder gives.

    Attributes:
        needs: names of labels that a layout or the masking must have given.
        at: name of the positions at which `predict` gives logits.
        weight: in the sum of losses.
        keep: layers and attention scores that the body is to hand out.
        optional: parts of its heads that a published model may lack, by how their names begin, with what to call them.
    """

    at: str
    needs: frozenset[str] = frozenset()
    weight: float = 1.0
    keep: Keep = NOTHING
    optional: Mapping[str, str] = {}

    @abstractmethod
    def prepare(self, sample: Sample, name: str) -> Sample:
        """On the CPU and pure: add to `counts` under `name` over how many terms the sum of this sample runs."""

    def part_weights(self, name: str) -> Mapping[str, float]:
        """Return the weight of each part that this objective gives; its own is called `name`."""
        return {name: self.weight}

    def before(self, encoder: Encoder, batch: Batch) -> tuple[Batch, Mapping[str, Part]]:
        """Return what the encoder reads, where that is not the batch as it is, and parts that are known already."""
        return batch, {}

    @abstractmethod
    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits at the positions `at`, (targets, classes), in the batch's order."""

    @abstractmethod
    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """Return the sum of the losses over the batch's targets."""

    def published(self) -> dict[str, Tensor]:
        """Return its tensors as a model's directory holds them."""
        return self.state_dict()

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `published` returned."""
        self.load_state_dict(tensors)

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """Return metrics of always giving the same answer.

        Args:
            name: of the objective.
            batches: prepared.
            token: the most frequent one of the training text.
        """
        return {}

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """Return sentences for the report that put held-out metrics beside what `baseline` gave before the run."""
        return ()

    def warnings(self, name: str, metrics: Mapping[str, float]) -> Sequence[str]:
        """Return what the user must know of held-out metrics, such as that nothing was learnt."""
        return ()

    def usage(self, model: str) -> Sequence[str]:
        """Return commands that use the trained head of a model."""
        return ()

    @abstractmethod
    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """Return the floating-point operations of the matrix products that `score` adds to the encoder's.

        Counted as in `Encoder.forward_flops`, `Encoder.pool` included; 0 where there is no target.
        """


def classify(logits: Tensor, gold: Tensor) -> Part:
    """Cross-entropy over (targets, classes), summed in float32, and how many are right.

    Shape:
        logits: (targets, classes); gold: (targets,) int64.
    """
    return Part(
        cross_entropy(logits.float(), gold, reduction="sum"), {"accuracy": count_correct(logits.detach(), gold)}
    )


def accuracy_of(token: int, name: str, label: str, batches: Sequence[Batch]) -> dict[str, float]:
    """Return as a metric which share of the gold tokens under a label is this one; nothing where there are none."""
    gold = torch.cat([batch.labels[label] for batch in batches])
    return {f"{name}_accuracy": float((gold == token).float().mean())} if len(gold) else {}


def most_frequent(which: str, share: float | None) -> list[str]:
    """Say for how many of `which` tokens the most frequent one would be right."""
    if share is None:
        return []
    return [f"Always saying the most frequent token would be right for {100 * share:.2f} % of the {which} ones."]


def decoder_of(encoder: Encoder) -> Tensor:
    """Return the weights of a decoder that is tied to the token embeddings, (vocabulary, width of the embeddings)."""
    return cast(WithTokenEmbeddings, encoder).words.weight
