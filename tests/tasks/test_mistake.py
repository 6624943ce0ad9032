"""Descriptions of mistakes: defaults, immutability, and marks that match the texts for every task."""

from dataclasses import FrozenInstanceError

import pytest

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.question_files import Answer, Question
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.extraction import Answered
from unmask.tasks.mistakes import Mark, Mistake, Passage
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression, Score
from unmask.tasks.tagged import Entity, Tagged
from unmask.tasks.token_classification import TokenClassification

ROW = Row({"text": "a dog", "text_b": "a cat", "label": "1"}, "a.tsv", 3)
SENTENCE = TaggedSentence("Ann sees Bob", (0, 4, 9), (3, 8, 12), ("B-PER", "O", "B-PER"), "a.conll", 5)
QUESTION = Question("7", "who?", "Ann sees Bob", (Answer("Ann", 0), Answer("Ann sees", 0)), file="a.json")
WRONG = {
    "classification": (Classification(), ROW, Prediction("a dog", "0", {"0": 0.7, "1": 0.3}, "a cat"), ("0", "1")),
    "regression": (Regression(), ROW, Score("a dog", 2.5, "a cat"), ()),
    "question-answering": (QuestionAnswering(), QUESTION, Answered("7", "who?", "Bob", 9, 12, 0.6, ()), ()),
    "token-classification": (
        TokenClassification(),
        SENTENCE,
        Tagged("Ann sees Bob", [Entity("LOC", 0, 3, "Ann", 0.9)]),
        ("O", "B-LOC", "B-PER"),
    ),
}


def test_a_mistake_without_classes_has_no_probabilities():
    first, second = (Mistake((Passage("x"),), "a.tsv:2", 1.0, "error") for _ in range(2))
    assert first == second
    assert (first.gold, first.predicted, first.probabilities) == ("", "", {})
    assert first.probabilities is not second.probabilities
    assert Passage("x") == Passage("x", "", (), ())
    assert Mark(0, 1) == Mark(0, 1, "")


@pytest.mark.parametrize("made", [Mark(0, 1), Passage("x"), Mistake((), "", 0.0, "")])
def test_descriptions_are_immutable(made):
    with pytest.raises(FrozenInstanceError):
        made.text = "y"


@pytest.mark.parametrize(
    ("kind", "caption", "texts", "measure", "score"),
    [
        ("classification", "a.tsv:3", ["a dog", "a cat"], "probability", 0.7),
        ("regression", "a.tsv:3", ["a dog", "a cat"], "error", 1.5),
        ("question-answering", "a.json: 7", ["who?", "Ann sees Bob"], "probability", 0.6),
        ("token-classification", "a.conll:5", ["Ann sees Bob"], "missed or spurious entities", 3),
    ],
)
def test_each_task_describes_its_mistakes(kind, caption, texts, measure, score):
    task, example, prediction, labels = WRONG[kind]
    (mistake,) = task.mistakes([example], [prediction], labels)
    assert (mistake.caption, mistake.measure, mistake.score) == (caption, measure, score)
    assert [passage.text for passage in mistake.passages] == texts
    assert len({passage.name for passage in mistake.passages}) == len(texts)


@pytest.mark.parametrize(
    ("kind", "gold", "predicted"),
    [
        ("question-answering", ["Ann", "Ann sees"], ["Bob"]),
        ("token-classification", ["Ann", "Bob"], ["Ann"]),
    ],
)
def test_marks_are_character_offsets_with_exclusive_ends(kind, gold, predicted):
    task, example, prediction, labels = WRONG[kind]
    (mistake,) = task.mistakes([example], [prediction], labels)
    passage = mistake.passages[-1]
    assert [passage.text[mark.start : mark.end] for mark in passage.gold] == gold
    assert [passage.text[mark.start : mark.end] for mark in passage.predicted] == predicted
