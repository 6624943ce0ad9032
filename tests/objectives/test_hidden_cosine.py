"""The cosine of hidden states beside its definition in numpy."""

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.objectives.flops import head_flops
from unmask.objectives.hidden_cosine import HiddenCosineSettings
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.teacher import Teacher
from unmask.support.errors import UserError

from .test_objective import SETTINGS, VOCABULARY, samples


def test_the_loss_is_that_of_the_formula():
    teacher, student = Teacher(Learner(SETTINGS.build(VOCABULARY), {})), SETTINGS.build(VOCABULARY)
    learner = Learner(student, {"hidden_cosine": HiddenCosineSettings().build(BuildContext(student, teacher))})
    batch = collate([learner.eval().prepare(sample) for sample in samples()])
    with torch.no_grad():
        ours, theirs = (one(batch.tokens).last.double().numpy() for one in (student, teacher.encoder))
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert float(learner(batch)["hidden_cosine"].sum.detach()) == pytest.approx((1 - cosines).sum(), rel=1e-5)
    assert batch.counts["hidden_cosine"] == len(cosines)
    assert head_flops(learner.parts["hidden_cosine"], student, batch) == 0


def test_other_widths_are_refused():
    teacher = Teacher(Learner(msgspec.structs.replace(SETTINGS, width=64).build(VOCABULARY), {}))
    with pytest.raises(UserError, match=r"the student's is 32 and the teacher's 64; pass .*hidden_cosine.: False"):
        HiddenCosineSettings().build(BuildContext(SETTINGS.build(VOCABULARY), teacher))
