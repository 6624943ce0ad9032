"""`f1` of two labels is that of a label that is named: the rarer one where it is rare, or the one that is asked for."""

import msgspec
import pytest

from unmask.data.labelled.labelled_file import Row
from unmask.metrics.intervals import measure_all
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, Prediction
from unmask.training.runs.report import metric_name


def rows(counts):
    return [
        Row({"text": f"{label} {n}", "label": label}, "x", n) for label, count in counts.items() for n in range(count)
    ]


@pytest.mark.parametrize(
    ("counts", "wanted", "positive"),
    [
        ({"defect": 10, "normal": 990}, "", "defect"),
        ({"normal": 10, "defect": 990}, "", "normal"),
        ({"no": 33, "yes": 67}, "", "yes"),
        ({"0": 24, "1": 76}, "", "0"),
        ({"0": 25, "1": 75}, "", "1"),
        ({"defect": 10, "normal": 990}, "normal", "normal"),
        ({"a": 1, "b": 1, "c": 1}, "", ""),
    ],
)
def test_the_positive_label(counts, wanted, positive):
    examples = rows(counts)
    task = Classification(positive=wanted)
    settled = task.settle(examples, task.label_names(examples))
    assert settled.positive == positive
    assert msgspec.convert(msgspec.to_builtins(settled), Classification) == settled


@pytest.mark.parametrize("counts", [{"a": 5, "b": 5}, {"a": 1, "b": 1, "c": 1}])
def test_a_positive_label_that_is_not_one_of_two_is_refused(counts):
    examples = rows(counts)
    with pytest.raises(UserError, match="is not one of two labels; omit it, or name one of a, b"):
        Classification(positive="d").settle(examples, tuple(counts))


def test_a_model_that_never_finds_the_rare_label_has_an_f1_of_zero():
    examples = rows({"defect": 10, "normal": 990})
    labels = ("defect", "normal")
    task = Classification().settle(examples, labels)
    predictions = [Prediction(row.values["text"], "normal", {"defect": 0.1, "normal": 0.9}) for row in examples]
    metrics = measure_all(task.measure(examples, predictions, labels), len(examples))
    assert (metrics["accuracy"], metrics["f1"], metrics["balanced_accuracy"]) == (99, 0, 50)
    details = task.details(examples, predictions, labels)
    assert details["positive"] == "defect"
    assert details["by_label"]["defect"] == {
        "precision": 0,
        "recall": 0,
        "f1": 0,
        "average_precision": pytest.approx(1),
        "examples": 10,
    }
    assert details["by_label"]["normal"]["recall"] == 100
    assert metric_name("f1", details["positive"]) == "f1 of 'defect'"
    assert metric_name("f1_macro", "defect") == "f1_macro"
    assert metric_name("f1", None) == "f1"


def test_models_of_old_have_the_second_label():
    examples = rows({"a": 1, "b": 9})
    predictions = [Prediction(row.values["text"], "b", {"a": 0.1, "b": 0.9}) for row in examples]
    assert Classification().details(examples, predictions, ("a", "b"))["positive"] == "b"
    three = [Prediction("x", "c", {"a": 0.1, "b": 0.1, "c": 0.8})] * 2
    assert "positive" not in Classification().details(rows({"a": 1, "b": 1}), three, ("a", "b", "c"))
