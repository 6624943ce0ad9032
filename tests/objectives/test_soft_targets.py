"""The divergence from soft targets beside the formula in numpy: at masked or all tokens, and in the heads of tasks."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.nn.layers import vocabulary
from unmask.objectives.flops import head_flops
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.soft_targets import SoftTargetsSettings
from unmask.objectives.teacher import Teacher
from unmask.support.errors import UserError

from .test_objective import HEADS, OTHER_BODIES, SETTINGS, VOCABULARY, build, empty, samples


def pair(name="masked_lm", settings=SETTINGS, **chosen):
    """Return a learner with a head and soft targets for it, and the teacher."""
    torch.manual_seed(7)
    teacher = Teacher(Learner(settings.build(VOCABULARY), {name: build(name, seed=3, settings=settings)}))
    torch.manual_seed(8)
    built = {name: build(name, seed=4, settings=settings)}
    context = BuildContext(settings.build(VOCABULARY), teacher, built=built)
    objective = SoftTargetsSettings(**chosen).build(context)
    return Learner(context.body, {**built, "soft_targets": objective}).eval(), teacher


def batch_of(learner, objectives=None):
    return collate([learner.prepare(sample, objectives) for sample in samples()])


def logits_of(learner, name, batch):
    with torch.no_grad():
        return learner.parts[name].predict(learner.encoder, learner.encoder(batch.tokens), batch).double().numpy()


def softmax(logits):
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def divergence(theirs, ours, temperature):
    """Return T^2 KL(softmax(theirs / T) || softmax(ours / T)), summed (Hinton et al. 2015)."""
    p, q = softmax(theirs / temperature), softmax(ours / temperature)
    return temperature**2 * (p * (np.log(p) - np.log(q))).sum()


@pytest.mark.parametrize("chunk", [1 << 23, 3 * VOCABULARY])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("name", ["masked_lm", "causal_lm", "permutation_lm"])
def test_the_loss_of_a_language_model_is_that_of_the_formula(name, temperature, chunk, monkeypatch):
    monkeypatch.setitem(vocabulary.CHUNK, "cpu", chunk)
    learner, teacher = pair(name, OTHER_BODIES.get(name, SETTINGS), temperature=temperature)
    batch = batch_of(learner)
    part = learner(batch)["soft_targets"]
    theirs, ours = logits_of(teacher.learner, name, batch), logits_of(learner, name, batch)
    assert float(part.sum.detach()) == pytest.approx(divergence(theirs, ours, temperature), rel=1e-5)
    assert int(part.metrics["agreement"]) == (theirs.argmax(1) == ours.argmax(1)).sum()
    assert batch.counts["soft_targets"] == batch.counts[name] == len(theirs)
    for fault in (divergence(ours, theirs, temperature), divergence(theirs, ours, temperature + 1)):
        assert float(part.sum.detach()) != pytest.approx(fault, rel=1e-4)


def test_the_gradient_is_that_of_a_loss_over_all_logits():
    learner, teacher = pair(temperature=3.0)
    batch = batch_of(learner)
    learner(batch)["soft_targets"].sum.backward()
    found = {key: value.grad.clone() for key, value in learner.named_parameters() if value.grad is not None}
    learner.zero_grad()
    ours = learner.parts["masked_lm"].predict(learner.encoder, learner.encoder(batch.tokens), batch) / 3
    theirs = (torch.from_numpy(logits_of(teacher.learner, "masked_lm", batch)).float() / 3).softmax(1)
    (9 * (theirs * (theirs.log() - ours.log_softmax(1))).sum()).backward()
    for key, value in found.items():
        torch.testing.assert_close(value, dict(learner.named_parameters())[key].grad, rtol=1e-4, atol=1e-5)
    assert {"objectives.masked_lm.bias", "encoder.embeddings.words.weight"} <= found.keys()


def test_the_predictions_at_all_tokens():
    learner, teacher = pair(all_tokens=True)
    batch = batch_of(learner)
    every = batch_of(learner)
    every.positions["masked"] = torch.arange(len(batch.tokens.ids))
    theirs, ours = logits_of(teacher.learner, "masked_lm", every), logits_of(learner, "masked_lm", every)
    part = learner(batch)["soft_targets"]
    assert float(part.sum.detach()) == pytest.approx(divergence(theirs, ours, 2.0), rel=1e-5)
    assert batch.counts["soft_targets"] == len(batch.tokens.ids) > batch.counts["masked_lm"]


@pytest.mark.parametrize("name", ["classification", "token_classification"])
def test_the_heads_of_classes_imitate_probabilities(name):
    learner, teacher = pair(name, temperature=2.0)
    batch = batch_of(learner, ["soft_targets"])  # without the loss of the task
    assert batch.counts.keys() == {"soft_targets"}
    part = learner(batch)["soft_targets"]
    theirs, ours = logits_of(teacher.learner, name, batch), logits_of(learner, name, batch)
    assert float(part.sum.detach()) == pytest.approx(divergence(theirs, ours, 2.0), rel=1e-5)
    assert batch.counts["soft_targets"] == len(theirs)


def test_a_head_of_numbers_imitates_the_number():
    learner, teacher = pair("regression")
    for one in (learner, teacher.learner):
        one.parts["regression"].mean, one.parts["regression"].deviation = 3.0, 2.0
    batch = batch_of(learner)
    theirs, ours = logits_of(teacher.learner, "regression", batch), logits_of(learner, "regression", batch)
    expected = (((theirs - ours) / 2) ** 2).sum()
    assert float(learner(batch)["soft_targets"].sum.detach()) == pytest.approx(expected, rel=1e-5)


def test_a_head_of_answers_imitates_where_they_start_and_end():
    learner, teacher = pair("question_answering", temperature=2.0)
    batch = batch_of(learner)
    theirs, ours = (logits_of(one, "question_answering", batch) for one in (teacher.learner, learner))
    sizes = np.cumsum([len(sample.positions["passage"]) for sample in sorted(samples(), key=len)])[:-1]
    windows = zip(np.split(theirs, sizes), np.split(ours, sizes), strict=True)
    expected = sum(divergence(one.T, other.T, 2.0) for one, other in windows) / 2
    assert float(learner(batch)["soft_targets"].sum.detach()) == pytest.approx(expected, rel=1e-5)
    assert batch.counts["soft_targets"] == len(batch.keys)


def test_a_student_equal_to_its_teacher_has_no_loss():
    for name in ("masked_lm", *HEADS):
        learner, teacher = pair(name)
        learner.encoder.load_state_dict(teacher.encoder.state_dict())
        learner.parts[name].load_state_dict(teacher.learner.parts[name].state_dict())
        batch = batch_of(learner)
        part = learner(batch)["soft_targets"]
        assert float(part.sum.detach()) == pytest.approx(0, abs=1e-4)
        assert name == "regression" or int(part.metrics["agreement"]) == batch.counts["soft_targets"]


def test_without_targets_there_is_no_loss():
    learner, _ = pair()
    batch = collate([empty(learner.prepare(sample)).add(counts={"soft_targets": 0}) for sample in samples()])
    part = learner(batch)["soft_targets"]
    assert part.sum == 0 and part.sum.requires_grad and part.metrics["agreement"] == 0
    assert head_flops(learner.parts["soft_targets"], learner.encoder, batch) == 0
    assert head_flops(learner.parts["soft_targets"], learner.encoder, batch_of(learner)) > 0


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({}, "objective.soft_targets learns from a teacher; use it with unmask.distill(RECIPE, teacher=MODEL)"),
        ({"teacher": True}, "needs a head that imitates the teacher's; pass settings="),
        ({"teacher": True, "built": "next_sentence"}, "next_sentence cannot learn from its predictions"),
        ({"teacher": True, "built": "causal_lm"}, "the teacher has no causal_lm head"),
        ({"teacher": True, "built": "token_classification", "all": True}, "all_tokens has no effect on token_class"),
    ],
)
def test_what_is_missing_is_named(context, message):
    _, teacher = pair("token_classification" if "all" in context else "masked_lm")
    name = context.get("built")
    built = {name: build(name)} if name else {}
    made = BuildContext(SETTINGS.build(VOCABULARY), teacher if "teacher" in context else None, built=built)
    with pytest.raises(UserError) as error:
        SoftTargetsSettings(all_tokens="all" in context).build(made)
    assert message in str(error.value)


def test_a_temperature_must_be_positive():
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="temperature must be above 0"):
            SoftTargetsSettings(temperature=value)
