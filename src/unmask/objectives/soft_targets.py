"""Soft targets: predict what a teacher predicts, with its probabilities instead of a single answer.

Input: the samples of the objective whose head imitates the teacher's: a language model's, or that of a task; it is the
first one of the recipe. Output: a part of the loss with one term per target of that head, or per token if its
predictions at all tokens are imitated.

The loss is T^2 KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, arXiv 1503.02531, section 2), that
of DistilBERT (Sanh et al. 2019, section 2, with T = 2) and of TinyBERT's prediction layer (Jiao et al. 2020, equation
10, with T = 1, where it differs from the paper's cross-entropy by the entropy of the teacher, a constant). The code of
DistilBERT imitates the predictions at all tokens (`all_tokens`), not only at the masked ones; that of TinyBERT divides
the loss by the number of classes. Heads of answers imitate the distributions of start and end; those of numbers, the
number.

The teacher's logits may be given with the samples, as labels of the name "soft_targets": then it does not read them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.masking import MASKED
from unmask.nn.encoders.encoder import Encoded, Encoder
from unmask.nn.layers.vocabulary import soft_vocabulary_loss
from unmask.objectives.objective import BuildContext, Distributions, Objective, ObjectiveSettings, Part
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.support.errors import UserError
from unmask.support.messages import call, setting

NAME = "soft_targets"


class SoftTargetsSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.soft_targets].

    Attributes:
        temperature: temperature of both softmaxes.
        all_tokens: whether to imitate the predictions of a masked language model at all tokens, not only at the masked
            ones.
    """

    temperature: float = 2.0
    all_tokens: bool = False

    requires = frozenset({TEACHER})

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError("temperature must be above 0")

    def build(self, context: BuildContext) -> SoftTargets:
        """See `ObjectiveSettings`.

        Raises:
            UserError: there is no teacher, no head that could imitate it, or the teacher lacks such a head.
        """
        teacher = context.teacher_of(NAME)
        name, head = next(iter(context.built.items()), ("", None))
        if head is None or not head.can_imitate:
            why = f": {name} cannot learn from its predictions" if name else ""
            raise UserError(
                f"objective.{NAME} needs a head that imitates the teacher's{why}",
                remedy=f"pass {setting('objective.masked_lm.weight', 1)}",
            )
        if not teacher.has(name):
            raise UserError(
                f"the teacher has no {name} head",
                remedy=f"adapt it first: {call('pretrain', init='MODEL', text='FILE', out='RUN')}",
            )
        if self.all_tokens and head.at != MASKED:
            raise UserError(f"objective.{NAME}.all_tokens has no effect on {name}", remedy="remove it")
        return SoftTargets(self, name, head, teacher)


class SoftTargets(Objective):
    """See the module; it has no weights of its own.

    Args:
        settings: settings from the recipe.
        name: name of the head.
        head: the student's head, which belongs to another objective.
        teacher: the teacher.
    """

    def __init__(self, settings: SoftTargetsSettings, name: str, head: Objective, teacher: Teacher) -> None:
        super().__init__()
        self.temperature = settings.temperature
        self.all_tokens = settings.all_tokens
        self.at = head.at
        self.name = name
        self.teacher = teacher
        self._head = (head,)  # not registered a second time: in a tuple it is copied with its owner

    @property
    def head(self) -> Objective:
        """The student's head."""
        return self._head[0]

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; as many terms as the head has targets."""
        if self.all_tokens:
            return sample.add(counts={name: len(sample)})
        if self.name in sample.counts:
            return sample.add(counts={name: sample.counts[self.name]})
        return self.head.prepare(sample, name)

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return None if self.all_tokens else self.head.reads(encoder, batch)

    def plan(self, batch: Batch) -> Batch:
        """See `Objective`."""
        return self.head.plan(batch)

    def check(self) -> None:
        """See `Objective`."""
        self.teacher.check()

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits of the head, (targets, classes)."""
        return self.head.predict(encoder, encoded, self.view(batch))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        batch, temperature = self.view(batch), self.temperature
        targets = self._targets(batch)
        if isinstance(targets, Tensor):
            return self.head.imitate(self.head.predict(encoder, encoded, batch), targets, batch, temperature)
        decoding = self.head.decoding(encoder, encoded, batch)
        assert decoding is not None, "both heads are of the same kind"
        loss, agreed = soft_vocabulary_loss(*decoding, targets.log_probabilities(temperature), temperature)
        return Part(temperature**2 * loss, {"agreement": agreed})

    def _targets(self, batch: Batch) -> Distributions | Tensor:
        """Return what the teacher predicts; see `Teacher.predict`."""
        if NAME not in batch.labels:
            return self.teacher.predict(self.name, batch)
        rows = len(batch.positions[self.at])
        return batch.labels[NAME].view(rows, len(batch.labels[NAME]) // max(1, rows))

    def view(self, batch: Batch) -> Batch:
        """Return the batch with the positions at which predictions are imitated."""
        if not self.all_tokens:
            return batch
        every = torch.arange(len(batch.tokens.ids), device=batch.tokens.ids.device)
        return replace(batch, positions={**batch.positions, MASKED: every})
