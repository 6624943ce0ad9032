"""A teacher computes without graph, reads a batch once, is frozen, and is neither copied nor registered."""

import copy

import pytest
import torch
from torch import nn

from unmask.data.batches.batch import collate
from unmask.nn.encoders.encoder import Keep
from unmask.objectives.learner import Learner
from unmask.objectives.teacher import Teacher

from .test_objective import SETTINGS, build, samples


class Student(nn.Module):
    """Holds a teacher beside its own weights."""

    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher
        self.own = nn.Linear(2, 2)


@pytest.fixture
def teacher():
    return Teacher(Learner(SETTINGS.build(100), {"masked_lm": build("masked_lm")}))


def batch_for(*names):
    return collate([sample.add(counts=dict.fromkeys(names, 1)) for sample in samples()])


def test_its_weights_are_not_those_of_the_module_that_holds_it(teacher):
    student = Student(teacher)
    assert {name for name, _ in student.named_parameters()} == {"own.weight", "own.bias"} == set(student.state_dict())
    assert copy.deepcopy(student).teacher is teacher
    assert not student.train().teacher.learner.training
    assert not any(value.requires_grad for value in teacher.learner.parameters())


def test_it_is_moved_in_place_on_request_only(teacher):
    student = Student(teacher)
    student.to(torch.float64)
    assert teacher.encoder.words.weight.dtype == torch.float32
    assert teacher.to(torch.device("cpu"), torch.bfloat16) is teacher
    assert teacher.read(batch_for()).last.dtype == torch.bfloat16


def test_the_fingerprint_is_that_of_names_types_shapes_and_values(teacher):
    learner, before = teacher.learner, teacher.fingerprint()
    assert Teacher(copy.deepcopy(learner)).fingerprint() == before
    assert copy.deepcopy({"a": teacher})["a"] is teacher
    for change in (
        lambda it: it.encoder.words.weight.data.view(-1)[0].add_(1),
        lambda it: it.to(torch.bfloat16),
        lambda it: it.register_buffer("more", torch.zeros(1)),
        lambda it: setattr(it.encoder.words, "weight", nn.Parameter(it.encoder.words.weight.data.view(32, 100))),
    ):
        other = copy.deepcopy(learner)
        change(other)
        assert Teacher(other).fingerprint() != before


def test_its_output_has_no_graph_and_may_be_saved_for_one(teacher):
    weight = torch.ones(32, requires_grad=True)
    out = teacher.read(batch_for()).last
    assert not out.requires_grad
    (out * weight).sum().backward()
    torch.testing.assert_close(weight.grad, out.sum(0))
    assert not any(factor.requires_grad for factor in teacher.predict("masked_lm", batch_for()))


def test_it_reads_a_batch_once_and_keeps_what_the_objectives_of_the_batch_ask_for(teacher):
    seen = []
    teacher.encoder.register_forward_hook(lambda encoder, inputs, output: seen.append(inputs[1]))
    teacher.ask("one", Keep(layers=frozenset({1})))
    teacher.ask("other", Keep(scores=frozenset({2})))
    both, single = batch_for("one", "other"), batch_for("one")
    found = teacher.read(both)
    teacher.predict("masked_lm", both)
    assert teacher.read(both) is found
    assert (found.layers.keys(), found.scores.keys()) == ({1}, {2})
    assert not teacher.read(single).scores
    assert len(seen) == 2
    assert teacher.has("masked_lm") and not teacher.has("causal_lm")
