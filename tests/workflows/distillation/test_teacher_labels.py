"""The examples of a task distillation: variants of them, and texts without labels, which the teacher labels."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from unmask.inference.load import load
from unmask.model.model import load_model, save_model
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.tasks.regression import Regression
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.distillation.lesson import Lesson, read_lesson
from unmask.workflows.finetuning.job import LabelledFiles

from .conftest import FILES, learn


@pytest.mark.parametrize(
    "kind",
    [
        "pairs",
        pytest.param("token-classification", marks=pytest.mark.exhaustive),
        pytest.param("question-answering", marks=pytest.mark.exhaustive),
    ],
)
def test_variants_of_examples_are_learned_from(kind, tuned, teacher, examples, tmp_path):
    given = {"train": examples / FILES[kind], "dev": examples / FILES[kind], "augment": 2}
    plain = learn("distilbert-mini", tuned(kind), tmp_path / "plain", **given)
    run = learn("distilbert-mini", tuned(kind), tmp_path / "run", masked_lm=teacher, **given)
    number = int(re.search(r"on (\d+) examples", (run.model / "README.md").read_text())[1])
    assert 300 < number <= 360 and "2 variants of each example" in (run.model / "README.md").read_text()
    prints = [json.loads((one.path / "provenance.json").read_text())["inputs"]["train"] for one in (plain, run)]
    assert prints[0] != prints[1], "other words without a masked LM"


def test_examples_to_stop_early_by_have_no_variants_among_those_to_learn_from(tuned, examples):
    lesson = Lesson(
        read_recipe("distilbert-mini"),
        tuned("pairs"),
        LabelledFiles([examples / FILES["pairs"]], [examples / FILES["pairs"]]),
        augment=2,
    )
    model = load_model(lesson.teacher)
    data = read_lesson(lesson, model.task, model, choose_machine("cpu", "float32"), Display(quiet=True))
    inner = data.inner(model.task)
    lines = [{(row.file, row.line) for row in part} for part in (inner.train, inner.held)]
    assert len(inner.train) > 2 * len(lines[0]) and not lines[0] & lines[1]


def test_texts_that_the_teacher_gives_one_label_need_a_dev_file(tuned, examples, tmp_path):
    teacher = load_model(tuned("classification"))
    teacher.heads["classification"]["out.bias"][0] += 1000
    save_model(tmp_path / "teacher", teacher, "")
    given = {"unlabelled": examples / "plain.txt"}
    with pytest.raises(
        UserError, match=r"labels that the teacher gives them: .*all 120 examples have the label 'no'; "
    ):
        learn("distilbert-mini", tmp_path / "teacher", tmp_path / "run", **given)
    run = learn(
        "distilbert-mini", tmp_path / "teacher", tmp_path / "run", dev=examples / FILES["classification"], **given
    )
    assert json.loads((run.path / "dev.json").read_text())["metrics"]["accuracy"] == 50


def test_a_student_of_a_cross_encoder_with_a_sigmoid_learns_its_probabilities(tuned, examples, tmp_path):
    """With the activation of the teacher, so that its scores, and their logits, are of the same kind."""
    model = load_model(tuned("regression"))
    save_model(tmp_path / "teacher", replace(model, task=Regression(length=32, activation="sigmoid")), "")
    given = {"unlabelled": examples / "pairs.tsv", "settings": {"budget.steps": 20}}
    run = learn("distilbert-mini", tmp_path / "teacher", tmp_path / "run", **given)
    task = load_model(run.model).task
    assert task.activation == "sigmoid" and task.mean is task.deviation is None
    predictors = load(tmp_path / "teacher"), load(run.model)
    pairs = predictors[0].read(examples / "pairs.tsv")
    taught, learned = ([found.score for found in predictor.run(pairs)] for predictor in predictors)
    assert min(learned) > 0 and max(learned) < 1
    assert np.abs(np.subtract(taught, learned)).mean() < 2 * np.std(taught)


def test_labels_of_another_range_are_refused_only_where_they_are_learned(tuned, examples, tmp_path):
    """STS-B has labels from 0 to 5, and the scores of a cross-encoder with a sigmoid are from 0 to 1."""
    model = load_model(tuned("regression"))
    save_model(tmp_path / "teacher", replace(model, task=Regression(length=32, activation="sigmoid")), "")
    given = {"train": examples / "regression.tsv"}
    run = learn("distilbert-mini", tmp_path / "teacher", tmp_path / "run", **given)
    assert "pearson" in json.loads((run.path / "dev.json").read_text())["metrics"]
    for settings, baseline in (({"distillation.gold": 1.0}, False), ({}, True)):
        with pytest.raises(UserError, match=r"regression\.tsv:\d+: the label \S+ is not a probability"):
            learn(
                *("distilbert-mini", tmp_path / "teacher", tmp_path / "other"),
                settings=settings,
                baseline=baseline,
                **given,
            )


def test_examples_without_words_cannot_be_augmented(tuned, tmp_path):
    (tmp_path / "numbers.tsv").write_text("text\tlabel\n" + "1 2 3\tyes\n4 5 6\tno\n" * 20)
    with pytest.raises(UserError, match="no word of the examples can be replaced: none consists of letters, or all"):
        learn("distilbert-mini", tuned("classification"), tmp_path / "run", train=tmp_path / "numbers.tsv", augment=2)
    assert not (tmp_path / "run").exists()
