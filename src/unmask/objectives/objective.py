"""What every objective is: the protocol between ideas of papers (and tasks) and the one training loop.

A part of a loss is a sum, and over how many terms it runs is known from the data before any forward pass. The loop
adds these counts over all pieces of a step first, and then minimises the weighted sum of the parts' means: so each
objective is its own mean over its own targets, however a batch is cut.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import NOTHING, Encoded, Encoder, Keep
from unmask.layers.vocabulary import count_correct


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
        keep: layers and attention scores of the body that it reads beside the last layer.
    """

    at: str
    needs: frozenset[str] = frozenset()
    weight: float = 1.0
    keep: Keep = NOTHING

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
