"""A teacher computes without graph, is frozen, and is neither copied nor registered."""

import copy

import torch
from torch import nn

from unmask.objectives.teacher import Teacher


class Student(nn.Module):
    """Holds a teacher beside its own weights."""

    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher
        self.own = nn.Linear(2, 2)


def test_its_weights_are_not_those_of_the_module_that_holds_it():
    teacher = Teacher(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    student = Student(teacher)
    assert {name for name, _ in student.named_parameters()} == {"own.weight", "own.bias"} == set(student.state_dict())
    assert copy.deepcopy(student).teacher is teacher
    assert not student.train().teacher.module.training
    assert not any(value.requires_grad for value in teacher.module.parameters())


def test_it_is_moved_in_place_on_request_only():
    student = Student(Teacher(nn.Linear(2, 2)))
    student.to(torch.float64)
    assert student.teacher.module.weight.dtype == torch.float32
    assert student.teacher.to(torch.device("cpu"), torch.bfloat16) is student.teacher
    assert student.teacher(torch.ones(1, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_the_fingerprint_is_that_of_names_types_shapes_and_values():
    module = nn.Sequential(nn.Linear(2, 3))
    one = Teacher(module)
    before = one.fingerprint()
    assert Teacher(copy.deepcopy(module)).fingerprint() == before
    assert copy.deepcopy({"a": one})["a"] is one
    for change in (
        lambda it: it[0].weight.data.view(-1)[0].add_(1),
        lambda it: it.to(torch.bfloat16),
        lambda it: it.register_buffer("more", torch.zeros(1)),
        lambda it: setattr(it[0], "weight", nn.Parameter(it[0].weight.data.view(2, 3))),
    ):
        other = copy.deepcopy(module)
        change(other)
        assert Teacher(other).fingerprint() != before


def test_its_output_has_no_graph_and_may_be_saved_for_one():
    teacher, weight = Teacher(nn.Linear(2, 2).train()), torch.ones(2, requires_grad=True)
    assert not teacher.module.training
    out = teacher(torch.ones(1, 2))
    assert not out.requires_grad
    (out * weight).sum().backward()
    assert weight.grad.equal(out[0])
