"""Turn the hidden states of the last layer in the direction of the teacher's: one minus their cosine, at every token.

Input: any samples. Output: a part of the loss with one term per token.

Sanh et al. 2019, arXiv 1910.01108, section 2 (DistilBERT), where it is L_cos. Widths must be equal, as there.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cosine_similarity

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import Encoded, Encoder
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, Part
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.support.errors import UserError
from unmask.support.messages import setting

NAME = "hidden_cosine"


class HiddenCosineSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.hidden_cosine]."""

    requires = frozenset({TEACHER})

    def build(self, context: BuildContext) -> HiddenCosine:
        """See `ObjectiveSettings`.

        Raises:
            UserError: there is no teacher, or its width is not that of the student.
        """
        teacher = context.teacher_of(NAME)
        if teacher.encoder.width != context.body.width:
            raise UserError(
                f"objective.{NAME} compares hidden states of equal widths, but the student's is {context.body.width} "
                f"and the teacher's {teacher.encoder.width}",
                remedy=f"pass {setting(f'objective.{NAME}', False)}, or give the student this width",
            )
        return HiddenCosine(teacher)


class HiddenCosine(Objective):
    """See the module; it has no weights.

    Args:
        teacher: the teacher.
    """

    def __init__(self, teacher: Teacher) -> None:
        super().__init__()
        self.teacher = teacher

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; one term per token."""
        return sample.add(counts={name: len(sample)})

    def check(self) -> None:
        """See `Objective`."""
        self.teacher.check()

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the cosines, (tokens, 1)."""
        target = self.teacher.read(batch).last.float()  # (tokens, width)
        return cosine_similarity(encoded.last.float(), target, dim=1)[:, None]

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return Part((1 - self.predict(encoder, encoded, batch)).sum(), {})
