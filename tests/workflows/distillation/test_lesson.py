"""A task distillation is checked before any file is read."""

import pytest

from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.workflows.distillation.lesson import Lesson
from unmask.workflows.finetuning.job import LabelledFiles


def lesson(train=("train.tsv",), **more):
    return Lesson(read_recipe("distilbert-mini"), "teacher", LabelledFiles(train), **more)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": ()}, "there is nothing to learn from; pass train, unlabelled, corpus or text"),
        ({"augment": -1}, "augment=-1: not a whole number of 0 or more"),
        ({"masked_lm": "model"}, "masked_lm has no effect without augment; omit it"),
        ({"examples": 0}, "examples=0: not a whole number of 1 or more"),
        ({"train": (), "unlabelled": ["texts.txt"], "examples": 3}, "examples has no effect without train"),
        ({"init": "model", "layers": 2}, "layers has no effect with init"),
        ({"settings": {"downstream.kind": "rnn"}}, 'settings={"downstream.kind": "rnn"} is not allowed'),
        ({"settings": {"reset": 1}}, 'settings={"reset": 1} is not allowed: students are trained as a whole'),
    ],
)
def test_options_without_effect_are_refused(given, message):
    with pytest.raises(UserError) as error:
        lesson(**given).check()
    assert str(error.value).startswith(message)


def test_weights_that_no_student_learns_are_refused():
    files = LabelledFiles(("train.tsv",), columns={"weight": "importance"})
    with pytest.raises(
        UserError, match=r"weight.* has no effect: a student imitates its teacher on all examples alike"
    ):
        Lesson(read_recipe("distilbert-mini"), "teacher", files).check()


def test_what_is_possible_is_accepted():
    lesson().check()
    lesson((), unlabelled=["texts.txt"], augment=2, masked_lm="model", layers=3).check()
    lesson(init="model", settings={"budget.epochs": 2.0}).check()
