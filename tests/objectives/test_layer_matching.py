"""The errors of layer matching beside the formulas of TinyBERT in numpy, and layers that cannot be compared."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.families.albert import AlbertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.nn.encoders.encoder import Keep
from unmask.objectives.flops import head_flops
from unmask.objectives.layer_matching import LayerMatchingSettings
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.teacher import Teacher
from unmask.support.errors import UserError

from .test_objective import CAUSAL, SETTINGS, TWO_LMS, VOCABULARY, samples

DEEP = msgspec.structs.replace(SETTINGS, layers=6)
NARROW = msgspec.structs.replace(SETTINGS, width=16)


def pair(student=SETTINGS, teacher=DEEP, **chosen):
    """Return a learner that matches layers, and the teacher."""
    teacher = Teacher(Learner(teacher.build(VOCABULARY), {}))
    body = student.build(VOCABULARY)
    objective = LayerMatchingSettings(**chosen).build(BuildContext(body, teacher))
    return Learner(body, {"layer_matching": objective}).eval(), teacher


def batch_of(learner, chosen=slice(None)):
    return collate([learner.prepare(sample) for sample in samples()[chosen]])


def expected(learner, teacher, batch, mapping):
    """Return the errors of equations 7, 8 and 9, one sequence at a time, each multiplied by its number of tokens."""
    keep = Keep(frozenset(range(7)), frozenset(range(1, 7)))
    objective = learner.parts["layer_matching"]
    with torch.no_grad():
        ours, theirs = (one(batch.tokens, keep) for one in (learner.encoder, teacher.encoder))
    maps = {
        name: np.eye(learner.encoder.width) if part is None else part.weight.detach().double().numpy().T
        for name, part in (("embeddings", objective.project_embeddings), ("hidden", objective.project_hidden))
    }
    found = dict.fromkeys(("embeddings", "hidden", "attention"), 0.0)
    offsets = batch.tokens.offsets.tolist()
    for start, stop in pairwise(offsets):
        tokens, length = slice(start, stop), stop - start

        def hidden(layers, number, tokens=tokens):
            return layers.layers[number][tokens].double().numpy()

        mse = ((hidden(ours, 0) @ maps["embeddings"] - hidden(theirs, 0)) ** 2).mean()
        found["embeddings"] += length * mse
        for number, layer in enumerate(mapping, start=1):
            mse = ((hidden(ours, number) @ maps["hidden"] - hidden(theirs, layer)) ** 2).mean()
            found["hidden"] += length * mse
            one, other = (scores_of(side, which, batch, start) for side, which in ((ours, number), (theirs, layer)))
            found["attention"] += length * ((one - other) ** 2).mean((1, 2)).mean()  # (1 / h) sum of MSE per head
    return found


def scores_of(encoded, layer, batch, start):
    """Return the scores of the sequence that begins at a token, (heads, length, length)."""
    offsets = batch.tokens.offsets.tolist()
    sequence = offsets.index(start)
    length, first = offsets[sequence + 1] - start, 0
    for group, scores in zip(batch.tokens.groups, encoded.scores[layer], strict=True):
        if sequence < first + group.sequences:
            return scores[sequence - first, :, :length, :length].double().numpy()
        first += group.sequences
    raise AssertionError


@pytest.mark.parametrize("student", [SETTINGS, NARROW], ids=["equal", "narrow"])
@pytest.mark.parametrize("mapping", [(), (2, 5)], ids=str)
def test_the_loss_is_that_of_the_formulas(student, mapping):
    learner, teacher = pair(student, layers=mapping, embeddings=0.5, attention=2.0)
    batch = batch_of(learner)
    part = learner(batch)["layer_matching"]
    wanted = expected(learner, teacher, batch, mapping or (3, 6))
    assert {name: float(value) for name, value in part.metrics.items()} == pytest.approx(wanted, rel=1e-5)
    total = 0.5 * wanted["embeddings"] + wanted["hidden"] + 2 * wanted["attention"]
    assert float(part.sum.detach()) == pytest.approx(total, rel=1e-5)
    assert batch.counts == {"layer_matching": len(batch.tokens.ids)}
    assert expected(learner, teacher, batch, (1, 4))["hidden"] != pytest.approx(wanted["hidden"], rel=1e-3), (
        "other layers"
    )


def test_a_projection_only_where_widths_differ():
    equal, _ = pair()
    assert not dict(equal.parts["layer_matching"].named_parameters())
    narrow, teacher = pair(NARROW)
    shapes = {name: tuple(value.shape) for name, value in narrow.parts["layer_matching"].named_parameters()}
    assert shapes == {"project_embeddings.weight": (32, 16), "project_hidden.weight": (32, 16)}
    batch = batch_of(narrow)
    flops = head_flops(narrow.parts["layer_matching"], narrow.encoder, batch)
    assert flops == 2 * 3 * len(batch.tokens.ids) * 16 * 32
    narrow(batch)["layer_matching"].sum.backward()
    assert all(value.grad.any() for value in narrow.parts["layer_matching"].parameters())
    assert all(value.grad is None for value in teacher.learner.parameters())


def test_what_is_not_compared_is_not_kept():
    learner, teacher = pair(attention=0.0)
    batch = batch_of(learner)
    assert learner.parts["layer_matching"].keep == Keep(frozenset({0, 1, 2}))
    assert teacher.read(batch).layers.keys() == {0, 3, 6} and not teacher.read(batch).scores
    assert learner(batch)["layer_matching"].metrics.keys() == {"embeddings", "hidden"}
    learner, teacher = pair(embeddings=0.0, hidden=0.0)
    assert not teacher.read(batch_of(learner)).layers
    assert teacher.read(batch_of(learner)).scores.keys() == {3, 6}


MAPPINGS = [(4, 12, [3, 6, 9, 12]), (4, 6, [2, 3, 5, 6]), (6, 6, [1, 2, 3, 4, 5, 6])]


@pytest.mark.parametrize(("ours", "theirs", "mapping"), MAPPINGS)
def test_the_default_mapping_is_uniform(ours, theirs, mapping):
    learner, _ = pair(*(msgspec.structs.replace(SETTINGS, layers=number) for number in (ours, theirs)))
    assert list(learner.parts["layer_matching"].pairs.values()) == mapping


def test_layers_that_share_their_weights_can_be_compared():
    shape = AlbertSettings(layers=4, width=32, heads=2, feed_forward=64, positions=64, embedding=16, shared="all")
    learner, _ = pair(msgspec.structs.replace(shape, layers=2), shape)
    batch = batch_of(learner)
    learner(batch)["layer_matching"].sum.backward()
    assert learner.encoder.blocks[0].attention.qkv.weight.grad.any()


FOUR = msgspec.structs.replace(SETTINGS, heads=4)
REFUSED = [
    (
        DEEP,
        SETTINGS,
        {},
        "the student has 6 layers, but the teacher only 2; pass settings=",
    ),
    (SETTINGS, DEEP, {"layers": (1, 7)}, "must name one of the teacher's layers 1 to 6 for each of the student's 2"),
    (SETTINGS, DEEP, {"layers": (1, 2, 3)}, "for each of the student's 2 layers, not [1, 2, 3]"),
    (FOUR, DEEP, {}, "the attention scores of 4 heads cannot be compared with those of the teacher's 2"),
    (CAUSAL, DEEP, {}, "layer 1 of the student attends to previous tokens, but layer 3 of the teacher to all tokens"),
    (SETTINGS, TWO_LMS, {}, "the teacher has no attention scores to compare; pass settings="),
]


@pytest.mark.parametrize(("student", "teacher", "chosen", "message"), REFUSED)
def test_what_cannot_be_compared_is_refused_with_the_reason(student, teacher, chosen, message):
    with pytest.raises(UserError) as error:
        pair(student, teacher, **chosen)
    assert message in str(error.value)


def test_local_layers_are_compared_with_local_ones():
    shape = ModernBertSettings(layers=4, width=32, heads=2, feed_forward=48, positions=64, window=4, global_every=3)
    with pytest.raises(UserError, match="attends to all tokens, but layer 2 of the teacher within 4 tokens"):
        pair(msgspec.structs.replace(shape, layers=2), shape)
    pair(msgspec.structs.replace(shape, layers=2), shape, layers=(4, 3))
    pair(msgspec.structs.replace(shape, layers=2), shape, attention=0.0)


@pytest.mark.parametrize("chosen", [{"hidden": -1.0}, {"embeddings": 0, "hidden": 0, "attention": 0}])
def test_factors_must_compare_something(chosen):
    with pytest.raises(ValueError, match="must not be negative, and one must be above 0"):
        LayerMatchingSettings(**chosen)
    with pytest.raises(ValueError, match="layers has no effect"):
        LayerMatchingSettings(hidden=0.0, attention=0.0, layers=(1,))
