"""Base class of tasks: defaults that a task may override, and properties that every task must have."""

import json
from pathlib import Path

import msgspec
import pytest

from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks import TASKS
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.task import Framed, Task
from unmask.tasks.token_classification import TokenClassification


class Plain(Task, frozen=True, kw_only=True, tag="plain"):
    """A task that keeps all defaults."""

    part = "plain_part"
    metric = "accuracy"
    card = Card("A plain task", usage={"question": "What?"})


def test_defaults():
    task = Plain(length=7)
    assert (task.length, task.tunes, task.details([], [], ())) == (7, False, {})
    assert task.settle([], ("a", "b")) is task
    assert task.tune([], []) is task
    assert task.classes(("b", "a", "b")) == {"a", "b"}
    with pytest.raises(UserError) as refused:
        task.from_texts(["a"])
    call = 'unmask.predict(model=MODEL, question="What?")'
    assert str(refused.value) == f"this model is for plain part; query it with {call}"
    assert Framed([], list).notes == ()


@pytest.mark.parametrize("kind", [Plain, Classification, Regression, TokenClassification])
def test_a_length_without_space_for_a_token_is_refused(kind):
    assert kind(length=3).length == 3
    with pytest.raises(ValueError, match="length must be at least 3"):
        kind(length=2)


def test_unknown_settings_are_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `depth`"):
        msgspec.convert({"kind": "classification", "depth": 3}, Classification)


def test_predictions_are_written_as_json_lines():
    predictions = [
        Prediction("ä\n", "b", {"a": 0.25, "b": 0.75}),
        Prediction("x", "a", {"a": 1.0, "b": 0.0}, "y", True),
    ]
    task, path = Plain(), Path("out.jsonl")
    first, second = (msgspec.json.encode(task.record(path, None, one)).decode() for one in predictions)
    assert task.files(path, [first, second]) == {}, "these lines are the file"
    assert json.loads(first) == {"text": "ä\n", "label": "b", "scores": {"a": 0.25, "b": 0.75}}
    assert json.loads(second) == {"text": "x", "label": "a", "scores": {"a": 1, "b": 0}, "text_b": "y", "cut": True}


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        (Classification(), {"O", "B-X", "I-X"}),
        (TokenClassification(), {"X"}),
    ],
)
def test_models_are_comparable_if_their_classes_are_equal(task, classes):
    assert task.classes(("O", "B-X", "I-X")) == task.classes(("I-X", "B-X", "O")) == classes


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_stored_and_read_back(name):
    kind = TASKS[name]
    stored = msgspec.to_builtins(kind())
    assert stored["kind"] == name == kind.part.replace("_", "-")
    assert msgspec.convert(stored, kind) == kind()
    with pytest.raises(AttributeError, match="immutable"):
        kind().length = 5


def test_thresholds_are_tuned():
    assert [name for name, kind in TASKS.items() if kind().tunes] == ["multi-label", "hotpotqa"]
    assert QuestionAnswering(no_answer=True).tunes
