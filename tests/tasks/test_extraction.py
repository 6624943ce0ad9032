"""What the tasks of spans share: what may be asked, the search with bonuses, descriptions of mistakes."""

import numpy as np
import pytest
from msgspec.structs import replace

from unmask.data.labelled.question_files import Answer, Question
from unmask.support.errors import UserError
from unmask.tasks import TASKS
from unmask.tasks.dialogues import Quac
from unmask.tasks.extraction import Answered, check_answers, span_mistake
from unmask.tasks.mistakes import Mark
from unmask.tasks.passage_windows import PassageWindow
from unmask.tasks.question_answering import QuestionAnswering

PASSAGE = "one two three four"
OFFSETS = np.array([[0, 3], [4, 7], [8, 13], [14, 18]])
TASK = QuestionAnswering(length=32, question=4, stride=4, answer=2, best=3)


def logits(*best):
    values = np.zeros((5, 2))
    for token, value in best:
        values[1 + token] = value
    return values


def test_a_bonus_decides_between_windows():
    windows = [PassageWindow(0, OFFSETS, None), PassageWindow(0, OFFSETS, None)]
    values = [logits((0, 2.0)), logits((2, 1.5))]
    (found,) = TASK.search([Question("q", "?", PASSAGE)], windows, values, none=True)
    assert (found.best, found.score, found.spans[0, 3], found.spans[8, 13]) == (0, 4.0, 4.0, 3.0)
    assert (found.null, found.empty, found.windows) == (0.0, 0, [0, 1])
    (found,) = TASK.search([Question("q", "?", PASSAGE)], windows, values, none=True, bonus=[0.0, 2.0])
    assert (found.best, found.score, found.spans[8, 13]) == (1, 5.0, 5.0)


def test_distinct_texts_are_listed_with_no_answer():
    example = Question("q", "?", "one one two")
    spans = {(0, 3): 1.0, (4, 7): 2.0, (8, 11): 0.0, (4, 4): 9.0}
    listed, best = TASK.list_spans(example, spans)
    assert [(one.answer, one.start) for one in listed] == [("one", 4), ("two", 8)]
    assert best == 2.0
    listed, _ = TASK.list_spans(example, spans, null=1.0)
    assert [one.answer for one in listed] == ["one", "", "two"]
    assert sum(one.probability for one in listed) == pytest.approx(1)


def test_a_question_is_about_one_passage():
    assert TASK.pose("who?", ["a passage"]) == TASK.pose("who?", "a passage") == Question("", "who?", "a passage")
    for passages in (["a", "b"], {"title": "a"}, []):
        with pytest.raises(UserError, match="models of question answering read one passage, without a title; give one"):
            TASK.pose("who?", passages)
    with pytest.raises(UserError, match="models of question answering read no history; leave it out, or fine-tune"):
        TASK.pose("who?", "a passage", [("what?", "that")])
    with pytest.raises(UserError, match="the question or the passage is empty; give both"):
        TASK.pose("who?", " ")
    with pytest.raises(UserError, match="5 is not a string"):
        TASK.pose("who?", 5)


def test_answers_must_be_in_the_passage():
    some = Question("a", "?", PASSAGE, (Answer("two", 4),))
    with pytest.raises(UserError, match=r"f: place: the answer 'six' occurs nowhere in its passage; correct or remove"):
        check_answers([some, Question("b", "?", PASSAGE, (Answer("six", None),), False, "f", "place")])
    with pytest.raises(UserError, match="none of the 1 questions has an answer"):
        check_answers([Question("b", "?", PASSAGE, impossible=True)])
    check_answers([some])


def test_columns_and_formats_have_no_effect():
    with pytest.raises(UserError, match="columns has no effect: questions are read in QuAC format"):
        Quac().read([], columns={"text": "0"})


def test_a_mistake_shows_what_came_before():
    example = Question("q", "and?", PASSAGE, (Answer("two", 4),), file="f")
    found = span_mistake(example, Answered("q", "and?", "one", 0, 3, 0.5, ()), ["two", ""], "one", "who? — Eve")
    assert [(text.name, text.text) for text in found.passages] == [
        ("before", "who? — Eve"),
        ("question", "and?"),
        ("passage", PASSAGE),
    ]
    assert (found.passages[2].gold, found.passages[2].predicted) == ((Mark(4, 7),), (Mark(0, 3),))
    assert (found.gold, found.predicted, found.caption, found.score) == ("two | no answer", "one", "f: q", 0.5)


@pytest.mark.parametrize("kind", ["question-answering", "answer-beams", "quac", "coqa", "hotpotqa"])
def test_predictions_by_id_are_those_of_one_file(kind):
    """Translations of a data set have the same ids: one of two answers under the same key would be lost."""
    task = TASKS[kind]()
    first, other = (Question("7", "?", PASSAGE, file=name, place="question 1") for name in ("en.json", "de.json"))
    task.check_distinct([first, replace(other, id="8")])
    task.check_distinct([first, first])  # the same file twice
    with pytest.raises(UserError, match=r"de\.json: question 1: the id '7' is also that of a question of en\.json"):
        task.check_distinct([first, other])
