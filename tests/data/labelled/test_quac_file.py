"""QuAC's files: answers, dialogue acts, the history of each question; mistakes are named."""

import json
import zipfile

import pytest

from unmask.data.labelled.dialogue_files import Turn, is_impossible, read_quac
from unmask.data.labelled.question_files import Answer, describe_repairs, read_squad
from unmask.support.errors import UserError

PASSAGE = "Eve won in 1983. She then moved to Rome."
CONTEXT = f"{PASSAGE} CANNOTANSWER"


def turn(id, question, *answers, yesno="x", followup="m", **more):
    spans = [{"text": text, "answer_start": max(0, CONTEXT.find(text))} for text in answers]
    return {"id": id, "question": question, "answers": spans, "yesno": yesno, "followup": followup, **more}


def content(*turns, id="d", context=CONTEXT):
    return {"data": [{"title": "t", "paragraphs": [{"id": id, "context": context, "qas": list(turns)}]}]}


def read(tmp_path, value, **options):
    path = tmp_path / "quac.json"
    path.write_text(json.dumps(value))
    return read_quac([path], **options)


WON = turn("d_q#0", "Who won?", "Eve", "Eve won", orig_answer={"text": "Eve won", "answer_start": 0})
WHY = turn("d_q#1", "Why?", "CANNOTANSWER", "CANNOTANSWER", "Rome", followup="n")
LEFT = turn("d_q#2", "Did she leave?", "She then moved to Rome.", yesno="y")


def test_questions_have_the_turns_before_them(tmp_path):
    first, second, third = read(tmp_path, content(WON, WHY, LEFT))
    assert (first.passage, first.answers) == (PASSAGE, (Answer("Eve", 0), Answer("Eve won", 0)))
    assert (first.history, first.dialogue, first.references) == ((), "d", ("Eve", "Eve won"))
    assert second.history == (Turn("Who won?", "Eve won", 0, 7),), "the dialogue went on from the original answer"
    assert (second.impossible, second.answers, second.references[2]) == (True, (), "Rome")
    assert third.history[1] == Turn("Why?", "CANNOTANSWER")
    assert (third.yesno, third.followup, third.impossible) == ("y", "m", False)
    assert third.place == "article 1, paragraph 1, question 3 (id d_q#2)"


def test_answers_are_not_needed_for_predictions(tmp_path):
    bare = {"id": "d_q#1", "question": "Why?"}
    first, second, third = read(tmp_path, content(WON, bare, {"id": "d_q#2", "question": "When?"}), gold=False)
    assert (first.answers, first.yesno) == ((), "")
    assert second.history == (Turn("Who won?", "Eve won", 0, 7),)
    assert third.history[1] == Turn("Why?")


def test_half_without_an_answer_is_none():
    assert is_impossible(("a", "CANNOTANSWER"))
    assert not is_impossible(("a", "b", "CANNOTANSWER"))


def test_wrong_offsets_are_repaired_and_counted(tmp_path):
    moved, nowhere = turn("a", "Where?", "Rome"), turn("b", "When?", "1984")
    moved["answers"][0]["answer_start"] = 3
    first, second = read(tmp_path, content(moved, nowhere))
    assert (first.answers[0].start, second.answers[0].start) == (PASSAGE.index("Rome"), None)
    assert [line.partition(":")[0] for line in describe_repairs([first, second])] == [
        "answers that are not at their offset, and were moved to their nearest occurrence",
        "answers that do not occur in their passages, and are used only for scoring",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"data": []}, "there are no questions in the file"),
        ({"rows": []}, "'data' is missing; files must be in QuAC format"),
        (content(WON, WON), "question 2: the id 'd_q#0' is also that of article 1, paragraph 1, question 1"),
        ({"data": content(WON)["data"] + content(WHY)["data"]}, "article 2, paragraph 1: the id 'd' is also that of"),
        (content(turn("a", "Why?")), 'no answer; a question without an answer needs the answer "CANNOTANSWER"'),
        (
            content(turn("a", "Why?", "Eve", yesno="maybe")),
            "'yesno' is 'maybe', none of y, n, x; files must be in QuAC",
        ),
        (content(turn("a", "Why?", "Eve", followup="x")), "'followup' is 'x', none of y, n, m"),
        (content(turn("a", " ", "Eve")), "the question is empty"),
        (content(WON, context=" "), "the context is empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, value, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, value)


def test_other_tasks_refuse_dialogues(tmp_path):
    (tmp_path / "quac.json").write_text(json.dumps(content(WON, WHY)))
    with pytest.raises(
        UserError, match=r"question 1 \(id d_q#0\): a question of a dialogue, as in QuAC.*finetune.*quac"
    ):
        read_squad([tmp_path / "quac.json"])


@pytest.mark.shared
def test_published_samples(shared, tmp_path):
    folder = shared / "data/qa/format_samples"
    with pytest.raises(
        UserError, match="article 2, paragraph 1: the id 'C_ec865aa8cf664d4d879ed364dd7048ed_1' is also"
    ):
        read_quac([folder / "quac_sample.json"])  # a fixture of a program, in which one dialogue is repeated
    found = []
    with zipfile.ZipFile(folder / "quac__plain_text_1.1.0.zip") as archive:
        archive.extractall(tmp_path)
    for name in ("train", "val"):
        found += read_quac([tmp_path / f"dummy_data/{name}_v0.2.json"])
    assert len({one.dialogue for one in found}) > 5
    assert any(one.impossible for one in found)
    assert not any("CANNOTANSWER" in one.passage for one in found)
    assert max(len(one.history) for one in found) > 4
    for one in found:
        assert all(one.passage[turn.start : turn.end] == turn.answer for turn in one.history if turn.start is not None)
    assert describe_repairs(found) == []
