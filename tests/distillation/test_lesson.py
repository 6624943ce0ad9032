"""What is refused of a task distillation before any file is read."""

from dataclasses import replace

import pytest

from unmask.distillation.lesson import Lesson
from unmask.errors import UserError
from unmask.finetuning.job import LabelledFiles
from unmask.recipe import read_recipe

LESSON = Lesson(read_recipe("tinybert-mini"), "teacher", LabelledFiles(["train.tsv"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"files": LabelledFiles([])},
            "there is nothing to learn from; pass --train, --unlabelled, --corpus or --text",
        ),
        ({"augment": -2}, "--augment must not be negative, not -2"),
        ({"masked_lm": "model"}, "--masked-lm has no effect without --augment; remove it"),
        ({"init": "model", "layers": 2}, "--layers has no effect with --init, which determines the student"),
        ({"settings": {"reset": 1}}, "--set reset=1 is not allowed: students are trained as a whole"),
        ({"settings": {"downstream.kind": "rnn"}}, "--set downstream.kind=rnn is not allowed"),
    ],
)
def test_options_without_effect_are_refused(changes, message):
    with pytest.raises(UserError) as error:
        replace(LESSON, **changes).check()
    assert message in str(error.value)


def test_texts_without_labels_are_enough():
    LESSON.check()
    replace(LESSON, files=LabelledFiles([]), unlabelled=["texts.txt"], augment=2, masked_lm="model").check()
