"""Earlier turns in the input: before the question, or as marks in the passage; what does not fit is counted."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.labelled.dialogue_files import DialogueQuestion, Turn
from unmask.support.errors import UserError
from unmask.tasks.history import History, as_turns, ask_in_dialogue, describe_history
from unmask.tasks.passage_windows import WindowSettings, cut_passages

PASSAGE = "the dog sees the cat near the sea"
TURNS = (Turn("who", "the dog", 0, 7), Turn("what", "the cat", 13, 20), Turn("where", "near the sea", 21, 33))
EXAMPLE = DialogueQuestion("q", "and then", PASSAGE, dialogue="d", history=TURNS)
LONG = 64


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (0, ["and then"]),
        (1, ["where", "near the sea", "and then"]),
        (2, ["what", "the cat", "where", "near the sea", "and then"]),
        (9, ["who", "the dog", "what", "the cat", "where", "near the sea", "and then"]),
    ],
)
def test_the_last_turns_precede_the_question(tokenizer, turns, expected):
    ((ids, cut, marked),), notes = ask_in_dialogue(tokenizer, [EXAMPLE], History(turns=turns), LONG)
    parts = [tokenizer.encode(text) for text in expected]
    wanted = np.concatenate([part for one in parts for part in ([tokenizer.sep], one)][1:])
    assert ids.tolist() == wanted.tolist()
    assert (cut, marked, notes) == (False, (), ())


def test_the_oldest_turns_that_do_not_fit_are_left_out_and_counted(tokenizer):
    question, last = (len(tokenizer.encode(text)) for text in ("and then", "where"))
    answer = len(tokenizer.encode("near the sea"))
    exact = question + last + answer + 2
    history = History(turns=3)
    for most, left_out in ((exact, 2), (exact - 1, 3)):
        ((ids, *_),), notes = ask_in_dialogue(tokenizer, [EXAMPLE], history, most)
        assert len(ids) == (exact if left_out == 2 else question)
        assert notes == (f"earlier turns left out because they exceed {most} tokens: {left_out}",)
    ((ids, cut, _),), _ = ask_in_dialogue(tokenizer, [EXAMPLE], history, 1)
    assert (len(ids), cut) == (1, True), "a question that does not fit is truncated"


def test_a_turn_without_an_answer_is_its_question(tokenizer):
    example = DialogueQuestion("q", "and then", PASSAGE, history=(Turn("who"),))
    ((ids, *_),), notes = ask_in_dialogue(tokenizer, [example], History(), LONG)
    assert ids.tolist() == [*tokenizer.encode("who"), tokenizer.sep, *tokenizer.encode("and then")]
    assert notes == ("earlier turns without an answer: 1",)


def test_earlier_answers_are_marked_in_the_passage(tokenizer):
    history = History(turns=2, form="marked")
    unknown = DialogueQuestion("q", "and then", PASSAGE, history=(*TURNS[:1], Turn("why", "CANNOTANSWER")))
    asked, notes = ask_in_dialogue(tokenizer, [EXAMPLE, unknown], history, LONG)
    assert [one.ids.tolist() for one in asked] == [tokenizer.encode("and then").tolist()] * 2
    assert notes == ("earlier answers not marked because they are not in the passage: 1",)
    settings = WindowSettings(LONG, 20, LONG, no_answer=True)
    windows, _ = cut_passages(tokenizer, [EXAMPLE, unknown], settings, gold=False, asked=asked)
    start = 1 + len(asked[0].ids) + 1
    plain, offsets = tokenizer.encode_offsets_many([PASSAGE])[0]
    for window, marked in zip(windows, (((13, 20), (21, 33)), ((0, 7),)), strict=True):
        ids = window.sample.ids[start:-1]
        marks = np.flatnonzero(ids == tokenizer.mask)
        assert len(marks) == 2 * len(marked)
        assert np.delete(ids, marks).tolist() == plain.tolist()
        assert np.delete(window.offsets, marks, 0).tolist() == offsets.tolist()
        assert (window.offsets[marks, 0] == window.offsets[marks, 1]).all(), "markers are no text"
        inside = [window.offsets[first + 1 : last] for first, last in marks.reshape(-1, 2)]
        assert [(one[0, 0], one[-1, 1]) for one in inside] == list(marked)
    assert Frame.of(tokenizer).cls == windows[0].sample.ids[0]


def test_settings_without_effect_are_refused():
    with pytest.raises(ValueError, match="form has no effect without turns"):
        History(turns=0, form="marked")
    with pytest.raises(ValueError, match="turns must not be negative"):
        History(turns=-1)


def test_turns_of_a_program_are_located_in_the_passage():
    found = as_turns([("who", "the dog"), ("why", ""), ("when", "noon")], PASSAGE)
    assert found == (Turn("who", "the dog", 0, 7), Turn("why"), Turn("when", "noon"))
    assert describe_history(DialogueQuestion("q", "?", PASSAGE, history=found)) == "who — the dog\nwhy — \nwhen — noon"


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (["ab"], "the history does not consist of pairs; give a question and its answer for each turn"),
        ([("a", "b", "c")], "the history does not consist of pairs"),
        ([("who", None)], "None is not a string"),
        ([(" ", "a")], "a question in the history is empty"),
    ],
)
def test_other_histories_are_refused(history, message):
    with pytest.raises(UserError, match=message):
        as_turns(history, PASSAGE)
