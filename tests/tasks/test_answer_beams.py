"""Answers from beams: spans and scores, no answer, settings, a model that learns."""

import json
import re

import msgspec
import numpy as np
import pytest

import unmask
from unmask.data.labelled.question_files import Answer, Question
from unmask.recipes.recipe import read_recipe
from unmask.support.settings import parse_overrides, write
from unmask.tasks.answer_beams import AnswerBeams
from unmask.tasks.passage_windows import PassageWindow
from unmask.tasks.question_answering import best_threshold

PASSAGE = "one two three four five six"
OFFSETS = np.array([[word.start(), word.end()] for word in re.finditer(r"\w+", PASSAGE)])


def values_of(starts, classes, ends):
    """Return what the head returns for a window without [CLS] as a candidate, (tokens, 2 + beams)."""
    columns = [np.array(starts), np.full(6, classes)]
    for first, given in ends:
        columns.append(np.where(np.arange(6) < first, -np.inf, given))
    return np.stack(columns, 1)


def answer(values, **settings):
    task = AnswerBeams(length=32, question=4, stride=4, answer=3, starts=2, ends=2, **settings)
    question = Question("q", "which?", PASSAGE, (Answer("two", 4),))
    windows = [PassageWindow(0, OFFSETS, None) for _ in values]
    return task._answers([question], windows, values)[0]


START = [-9, -1, -9, -2, -9, -9]
FIRST = (1, [0, -3, -0.5, -1, 0, 0])
SECOND = (3, [0, 0, 0, -4, -0.25, -2])


def test_spans_are_those_of_the_beams_with_the_sum_of_two_log_probabilities():
    found = answer([values_of(START, 0.0, [FIRST, SECOND])])
    scores = {"two three": -1.5, "two three four": -2.0, "four five": -2.25, "four five six": -4.0}
    assert [span.answer for span in found.nbest] == list(scores)
    odds = np.exp(list(scores.values()))
    assert [span.probability for span in found.nbest] == pytest.approx(odds / odds.sum())
    assert (found.answer, found.start, found.end) == ("two three", 4, 13)


def test_an_answer_is_no_longer_than_allowed_and_ends_after_it_starts():
    far = (1, [0, -5, -6, -7, 0, 0])  # the most probable ends are beyond three tokens
    found = answer([values_of(START, 0.0, [far])])
    assert [span.answer for span in found.nbest] == ["two", "two three"]


def test_the_best_score_of_a_span_in_several_windows_counts():
    better = [-9, -0.5, -9, -2, -9, -9]
    found = answer([values_of(START, 0.0, [FIRST]), values_of(better, 0.0, [FIRST])])
    assert [span.answer for span in found.nbest] == ["two three", "two three four"]
    assert found.nbest[0].probability == pytest.approx(np.exp(-1.0) / (np.exp(-1.0) + np.exp(-1.5)))


def with_summary(values):
    """Return the values with the row of [CLS] before them, whose class logit counts."""
    return np.concatenate([[[-5.0, values[0, 1]] + [-9.0] * (values.shape[1] - 2)], values])


@pytest.mark.parametrize(
    ("logits", "threshold", "expected"),
    [((2.0, 1.0), 0.5, ""), ((2.0, 0.2), 0.5, "two three"), ((2.0, 1.0), 1.5, "two three")],
)
def test_no_answer_is_the_lowest_logit_of_all_windows_above_the_threshold(logits, threshold, expected):
    windows = [with_summary(values_of(START, logit, [FIRST])) for logit in logits]
    found = answer(windows, no_answer=True, threshold=threshold)
    assert found.answer == expected
    assert found.margin == pytest.approx(min(logits), abs=1e-6)


def test_a_threshold_is_tuned_on_the_classifiers_logit():
    gold = [Question("1", "?", PASSAGE, (Answer("two three", 4),)), Question("2", "?", PASSAGE, impossible=True)]
    predictions = [
        answer([with_summary(values_of(START, logit, [FIRST]))], no_answer=True, threshold=0.0) for logit in (-3.0, 1.0)
    ]
    assert -3 < best_threshold(gold, predictions) < 1


def test_impossible_settings_are_refused():
    for name in ("starts", "ends"):
        with pytest.raises(msgspec.ValidationError, match="starts and ends must be at least 1"):
            msgspec.convert({"kind": "answer-beams", name: 0}, AnswerBeams)


def test_a_model_learns_to_answer(tmp_path, tokenizer_directory):
    """The answer is the word after "near the"; some passages do not have one."""
    rng, places = np.random.default_rng(0), ("sea", "river", "garden", "market", "bridge")
    questions = []
    for number in range(60):
        place = str(rng.choice(places))
        impossible = number % 4 == 3
        text = "The dog sees the cat." if impossible else f"The dog sees the cat near the {place}."
        answers = [] if impossible else [{"text": place, "answer_start": text.index(place)}]
        qas = [{"id": str(number), "question": "Where is it?", "answers": answers, "is_impossible": impossible}]
        questions.append({"paragraphs": [{"context": f"{number} {text}".removeprefix(f"{number} "), "qas": qas}]})
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"data": questions}))
    small = ["encoder.layers=2", "encoder.width=64", "encoder.heads=2", "encoder.feed_forward=128"]
    (tmp_path / "small.toml").write_text(write(read_recipe("xlnet-mini", parse_overrides(small))))
    run = unmask.finetune(
        "answer-beams",
        f"random:{tmp_path / 'small.toml'}",
        tokenizer=tokenizer_directory,
        train=[path],
        dev=[path],
        out=tmp_path / "run",
        settings={
            "budget.steps": 40,
            "optimizer.learning_rate": 2e-3,
            "task.length": 40,
            "task.question": 12,
            "task.threshold": 0.0,
        },
    )
    model = unmask.load(run)
    found = model.answer("Where is it?", "The dog sees the cat near the river.")
    assert found.answer == "river"
    assert {span.answer for span in found.nbest} >= {"", "river"}
    assert model.answer("Where is it?", "The dog sees the cat.").answer == ""
