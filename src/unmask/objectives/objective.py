"""The interface between objectives (including tasks) and the training loop.

Each part of a loss is a sum whose number of terms is known from the data before any forward pass. The loop first sums
these counts over all micro-batches of a step, and then minimizes the weighted sum of the parts' means: the loss of each
objective is the mean over its own targets, regardless of how a step is split into micro-batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, linear

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import NOTHING, Encoded, Encoder, HeadSpec, Keep, WithTokenEmbeddings
from unmask.nn.layers.linear import product
from unmask.nn.layers.vocabulary import SoftTargets, count_correct, vocabulary_loss
from unmask.support.errors import UserError
from unmask.support.messages import call

if TYPE_CHECKING:
    from unmask.objectives.teacher import Teacher


@dataclass(frozen=True)
class BuildContext:
    """What an objective is built for.

    Attributes:
        body: the encoder below the heads.
        teacher: a model to learn from, if there is one.
        tokenizer_size: number of tokens of the tokenizer; None: the vocabulary size of the body.
        built: the objectives on the same body that were built before, by name.
    """

    body: Encoder
    teacher: Teacher | None = None
    tokenizer_size: int | None = None
    built: Mapping[str, Objective] = field(default_factory=dict)

    @property
    def head(self) -> HeadSpec:
        """The properties of the body that a head depends on."""
        return self.body.head

    @property
    def vocabulary(self) -> int:
        """Vocabulary size of the body, and so of a decoder tied to its embeddings."""
        return self.body.vocabulary

    @property
    def num_tokens(self) -> int:
        """Vocabulary size of a decoder that is not tied to the body's embeddings."""
        return self.vocabulary if self.tokenizer_size is None else self.tokenizer_size

    @property
    def decoder_width(self) -> int:
        """Width of the token embeddings to which a decoder is tied; for bodies that give `TOKEN_EMBEDDINGS`."""
        return decoder_of(self.body).shape[1]

    def teacher_of(self, name: str) -> Teacher:
        """Return the teacher, for the objective of this name.

        Raises:
            UserError: there is none.
        """
        if self.teacher is None:
            raise UserError(
                f"objective.{name} learns from a teacher",
                remedy=f"use it with {call('distill', 'RECIPE', teacher='MODEL')}",
            )
        return self.teacher


class ObjectiveSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that every objective has in the recipe's [objective.NAME].

    Attributes:
        weight: weight in the sum of losses.
        requires: names of what the body (nn/encoders/encoder.py), the layout and the masking must give.
        exclusive: the names among these that no other objective can use beside it.
    """

    weight: float = 1.0

    requires: ClassVar[frozenset[str]] = frozenset()
    exclusive: ClassVar[frozenset[str]] = frozenset()

    def part_weights(self, name: str) -> Mapping[str, float]:
        """Return the weight of each part of the loss that the objective returns; its main part is called `name`."""
        return {name: self.weight}

    @abstractmethod
    def build(self, context: BuildContext) -> Objective:
        """Return the objective with newly initialized heads, drawn from torch's global generator."""

    @classmethod
    def of_head(cls, tensors: Mapping[str, Tensor], width: int) -> ObjectiveSettings:
        """Return the settings of the head with these tensors.

        Args:
            tensors: tensors of the head by part.
            width: width of the encoder.

        Raises:
            ValueError: the tensors are not those of such a head.
        """
        return cls()


class Part(NamedTuple):
    """One part of the loss of a micro-batch.

    Attributes:
        sum: scalar with graph, float32; 0 with graph if there is no target.
        metrics: further sums over the same terms, without graph, such as "accuracy", the number of correct predictions.
    """

    sum: Tensor
    metrics: Mapping[str, Tensor]


class Distributions(Protocol):
    """Distributions over the vocabulary that a head should predict."""

    def log_probabilities(self, temperature: float) -> SoftTargets:
        """Return the function that computes the log-probabilities of some targets at a temperature, without graph."""
        ...


class Decoding(NamedTuple):
    """Logits over the vocabulary as the product of two matrices, which is not computed as a whole.

    Attributes:
        rows: (targets, width).
        decoder: (vocabulary, width).
        bias: (vocabulary,).
    """

    rows: Tensor
    decoder: Tensor
    bias: Tensor

    def log_probabilities(self, temperature: float) -> SoftTargets:
        """See `Distributions`."""

        def compute(chunk: slice, student: Tensor) -> Tensor:
            logits = product(self.rows[chunk], self.decoder, self.bias)  # (targets of the chunk, vocabulary)
            return (logits.float() / temperature).log_softmax(1)

        return compute


class Objective(nn.Module):
    """Base class of objectives, which own their heads. Subclasses prepare samples and score the encoder's output.

    Attributes:
        at: name of the positions at which `predict` returns logits; "": at every token.
        keep: layers and attention scores that the body must return.
        optional: parts of its heads that a published model may lack: prefixes of their names, mapped to descriptions.
    """

    at: str = ""
    keep: Keep = NOTHING
    optional: Mapping[str, str] = {}

    @abstractmethod
    def prepare(self, sample: Sample, name: str) -> Sample:
        """Return the sample with the number of its loss terms added to `counts` under `name`; pure, runs on the CPU."""

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """Return the distinct tokens whose output `score` reads, (rows,) int64: no other is computed. None: all."""
        return None

    def plan(self, batch: Batch) -> Batch:
        """Return a batch of the host with what the objective works out there; see `Plan`."""
        return batch

    def check(self) -> None:
        """Raise an error if something is wrong that explains a loss that is not finite."""

    def before(self, encoder: Encoder, batch: Batch) -> tuple[Batch, Mapping[str, Part]]:
        """Return the batch that the encoder reads, possibly modified, and parts of the loss computed before that."""
        return batch, {}

    @abstractmethod
    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits at the positions `at`, (targets, classes), in the batch's order."""

    @abstractmethod
    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """Return the loss summed over the targets of the batch."""

    @property
    def joint(self) -> bool:
        """Whether the loss compares all sequences of a step, also those of other micro-batches; see `compare`."""
        return False

    def compare(self, outputs: Tensor, batches: Sequence[Batch]) -> Part:
        """Return the loss of what `predict` returned for several micro-batches of a step, if it is `joint`.

        Args:
            outputs: the outputs of all batches, in their order, (sequences, any number) float32.
            batches: the micro-batches.
        """
        raise NotImplementedError

    def decoding(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Decoding | None:
        """Return the factors of the logits that `predict` returns, if these are over the vocabulary."""
        return None

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """Return the loss of logits that `predict` returned if those of a teacher are the targets, as a sum.

        Heads without this method, and without `decoding`, cannot learn from the predictions of a teacher.
        """
        raise NotImplementedError

    @property
    def can_imitate(self) -> bool:
        """Whether it can learn from the predictions of a teacher."""
        kind = type(self)
        return kind.imitate is not Objective.imitate or kind.decoding is not Objective.decoding

    def published(self) -> dict[str, Tensor]:
        """Return its tensors as stored in a model directory."""
        return self.state_dict()

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Load tensors that `published` returned."""
        self.load_state_dict(tensors)

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """Return the metrics of a constant prediction.

        Args:
            name: name of the objective.
            batches: prepared batches.
            token: the most frequent token of the training text.
        """
        return {}

    def derived(self, name: str, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return further metrics that follow from the means of its metrics."""
        return {}

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """Return sentences for the report that compare held-out metrics with those of `baseline` before the run."""
        return ()

    def warnings(self, name: str, metrics: Mapping[str, float]) -> Sequence[str]:
        """Return warnings about held-out metrics, such as that nothing was learned."""
        return ()


class VocabularyObjective(Objective):
    """Base class of objectives that predict tokens by a decoder over the vocabulary: those in the labels named `at`.

    Subclasses define `at` and `project`, from which the number of terms, the loss and the accuracy follow.

    Attributes:
        tied: whether the decoder is the table of token embeddings; if not, it is a layer of the head.
    """

    tied: bool = True

    @property
    def token_bias(self) -> nn.Parameter | None:
        """The bias of the decoder, (vocabulary,), if the head has one."""
        return None

    @abstractmethod
    def project(self, encoder: Encoder, rows: Tensor) -> Decoding:
        """Return the factors of the logits of some tokens, given their vectors of the last layer, (targets, width)."""

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one term per label."""
        return sample.add(counts={name: len(sample.labels[self.at])})

    def decoding(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Decoding:
        """See `Objective`: those of the tokens at the positions named `at`."""
        return self.project(encoder, encoded.last.index_select(0, batch.positions[self.at]))

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits over the vocabulary, (targets, vocabulary)."""
        return linear(*self.decoding(encoder, encoded, batch))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        loss, correct = vocabulary_loss(*self.decoding(encoder, encoded, batch), batch.labels[self.at])
        return Part(loss, {"accuracy": correct})

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """See `Objective`."""
        return accuracy_of(token, name, self.at, batches)

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """See `Objective`."""
        return most_frequent(name, baseline.get(f"{name}_accuracy"))


def classify(logits: Tensor, gold: Tensor) -> Part:
    """Return the cross-entropy, summed in float32, and the number of correct predictions.

    Shape:
        logits: (targets, classes); gold: (targets,) int64.
    """
    return Part(
        cross_entropy(logits.float(), gold, reduction="sum"), {"accuracy": count_correct(logits.detach(), gold)}
    )


NEVER = -1e30
"""A finite logit of what is no candidate: of minus infinity, the divergence is not a number."""


def imitate_softmax(logits: Tensor, targets: Tensor, temperature: float) -> Part:
    """Return T^2 KL(softmax(targets / T) || softmax(logits / T)), summed in float32, and the number of equal answers.

    Hinton et al. 2015, section 2: the factor T^2 makes the gradient independent of the temperature T.

    Shape:
        logits, targets: (targets, classes).
    """
    student, teacher = ((values.float() / temperature).log_softmax(1) for values in (logits, targets))
    loss = temperature**2 * kl_div(student, teacher, reduction="sum", log_target=True)
    return Part(loss, {"agreement": count_correct(student.detach(), teacher.argmax(1))})


def accuracy_of(token: int, name: str, label: str, batches: Sequence[Batch]) -> dict[str, float]:
    """Return the share of a token among the gold tokens under a label, as a metric; empty if there are none."""
    gold = torch.cat([batch.labels[label] for batch in batches])
    return {f"{name}_accuracy": float((gold == token).float().mean())} if len(gold) else {}


def most_frequent(name: str, share: float | None) -> list[str]:
    """Return the sentence that reports the accuracy of always predicting the most frequent token, for a part."""
    if share is None:
        return []
    return [
        f"Always predicting the most frequent token would be right for {100 * share:.2f} % of the targets of {name}."
    ]


def decoder_of(encoder: Encoder) -> Tensor:
    """Return the weight of a decoder tied to the token embeddings, (vocabulary, width of the embeddings)."""
    return cast(WithTokenEmbeddings, encoder).words.weight
