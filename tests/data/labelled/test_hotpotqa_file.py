"""HotpotQA's files: paragraphs as one passage, sentences, where the answer is; what is left out is counted."""

import json

import pytest

from unmask.data.labelled.hotpotqa_file import PassageSentence, describe_paragraphs, join_paragraphs, read_hotpotqa
from unmask.data.labelled.question_files import Answer
from unmask.support.errors import UserError

CONTEXT = [
    ["Rome", ["Rome is a city.", " Eve lives there."]],
    ["Eve", ["Eve is a doctor.", " ", " She was born in 1970 in Rome."]],
]


def question(answer="Rome", facts=(("Eve", 2), ("Rome", 1)), id="q", context=CONTEXT, **more):
    return {
        "_id": id,
        "question": "Where?",
        "answer": answer,
        "supporting_facts": [list(fact) for fact in facts],
        "context": context,
        "type": "bridge",
        **more,
    }


def read(tmp_path, *records, **options):
    path = tmp_path / "hotpot.json"
    path.write_text(json.dumps(list(records)))
    return read_hotpotqa([path], **options)


def test_paragraphs_are_one_passage(tmp_path):
    (found,) = read(tmp_path, question())
    assert found.passage == (
        "Rome: Rome is a city. Eve lives there.\nEve: Eve is a doctor.  She was born in 1970 in Rome."
    )
    assert [one.fact for one in found.sentences] == [("Rome", 0), ("Rome", 1), ("Eve", 0), ("Eve", 2)]
    texts = [found.passage[one.start : one.end] for one in found.sentences]
    assert texts == ["Rome is a city.", "Eve lives there.", "Eve is a doctor.", "She was born in 1970 in Rome."]
    assert (found.support, found.kind) == ((("Eve", 2), ("Rome", 1)), "bridge")
    assert found.answers == (Answer("Rome", found.passage.rindex("Rome")),), "the occurrence in a supporting sentence"
    assert found.place == "question 1 (id q)"


def test_closed_answers_have_no_span(tmp_path):
    (found,) = read(tmp_path, question("yes"))
    assert (found.answer, found.answers, found.impossible) == ("yes", (), True)


def test_answers_are_not_needed_for_predictions(tmp_path):
    (found,) = read(tmp_path, {"_id": "q", "question": "Where?", "context": CONTEXT}, gold=False)
    assert (found.answer, found.support, len(found.sentences)) == ("", (), 4)


def test_what_is_left_out_is_counted(tmp_path):
    empty = [*CONTEXT, ["Nothing", []], ["Spaces", [" ", ""]]]
    found = read(
        tmp_path, question("Paris", id="a", context=empty), question(facts=[("Eve", 9), ("Eve", 1)], id="b"), question()
    )
    (twice,) = read(tmp_path, question(context=[*CONTEXT, ["Rome", ["Rome is old."]]]))
    assert describe_paragraphs([twice]) == ["sentences whose title and number another one has: 1 (1 questions)"]
    assert found[0].passage == found[2].passage
    assert describe_paragraphs(found) == [
        "paragraphs left out because they have no sentence: 2 (3 questions)",
        "answers that occur nowhere in their paragraphs, and are used only for scoring: 1 (3 questions)",
        "supporting facts that name no sentence, and are used only for scoring: 2 (3 questions)",
    ]
    assert describe_paragraphs(found[2:]) == []


def test_titles_need_not_be_read():
    passage, sentences, without = join_paragraphs([("1", ["a b.", " c."]), ("2", [])], titled=False)
    assert (passage, without) == ("a b. c.", 1)
    assert sentences == (PassageSentence("1", 0, 0, 4), PassageSentence("1", 1, 5, 7))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "there are no questions in the file"),
        ([question(), question()], r"question 2: the id 'q' is also that of question 1"),
        ([question(context=[])], r"question 1 \(id q\): no paragraph has a sentence; remove the question"),
        ([question(context=[["Rome", "text"]])], "paragraph 1: not a title and a list of sentences; files must be in"),
        ([question(facts=[("Rome", "1")])], "supporting fact 1: not a title and a number"),
        ([question(" ")], "the answer is empty"),
        ([{"_id": "q"}], "'context' is missing; files must be in HotpotQA format"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, records, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, *records)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(UserError, match="dict, not a list of questions; files must be in HotpotQA format"):
        read_hotpotqa([tmp_path / "data.json"])
