"""What is made of SQuAD's questions is in the published formats, and needs what it is made to need."""

import re
from collections import Counter

import pytest

from unmask.data.labelled.dialogue_files import describe_rationales, read_coqa, read_quac
from unmask.data.labelled.hotpotqa_file import describe_paragraphs, read_hotpotqa
from unmask.data.labelled.question_files import Answer, Question

ANIMALS = ("dog", "cat", "owl", "fox", "cow")


def about(number):
    """Three questions about a passage of two sentences, the first of which has a year in two passages of three."""
    name, year = f"Mr. {chr(65 + number)}onst Beller", f" in {1700 + number}" if number % 3 else ""
    passage = f"The old {ANIMALS[number % 5]} number {number} was seen by {name}{year}. The rain fell on it for long."
    place = f"article {number}, paragraph 1, question"
    asked = [
        (f"Who saw {ANIMALS[number % 5]} {number}?", name),
        (f"What did {name} see?", f"{ANIMALS[number % 5]} number {number}"),
        *([("In which year was it?", str(1700 + number))] if year else []),
    ]
    return [
        Question(f"{number}-{at}", text, passage, (Answer(answer, passage.index(answer)),), place=f"{place} {at}")
        for at, (text, answer) in enumerate(asked)
    ]


@pytest.fixture
def dialogues(benchmark_module):
    return benchmark_module("dialogues")


@pytest.fixture
def questions():
    return [question for number in range(24) for question in about(number)]


def test_articles_are_held_out_as_wholes(dialogues, questions):
    rest, apart = dialogues.held_out(questions)
    assert {one.passage for one in rest}.isdisjoint(one.passage for one in apart)
    assert Counter(len({one.passage for one in part}) for part in (rest, apart)) == {18: 1, 6: 1}


def test_follow_ups_need_the_turns_before(dialogues, questions, tmp_path):
    made = read_quac([dialogues.write_made("quac", tmp_path / "quac.json", questions)])
    years = {one.passage: set(re.findall(r"\b17\d\d\b", one.passage)) for one in made}
    assert set(map(len, years.values())) == {1, 2}, "of three sentences"
    follow = [one for one in made if one.question in ("When was that?", "Is it said when that was?")]
    assert len(follow) >= 9
    seen = Counter()
    for one in follow:
        earlier = one.history[-1].answer
        (sentence,) = (text for text in re.split(r"(?<=\d\.)|(?<=Beller\.)", one.passage) if earlier in text)
        year = "".join(re.findall(r"\b17\d\d\b", sentence)) or "CANNOTANSWER"
        assert one.references == (year,)
        assert one.yesno == ("x" if one.question.startswith("When") else "n" if one.impossible else "y")
        seen[one.yesno, one.impossible] += 1
    assert seen.keys() == {("x", False), ("x", True), ("y", False), ("n", True)}
    assert any(one.question == "What did it see?" for one in made), "a name of the turns before is a pronoun"
    assert not any(one.answers and one.answers[0].moved for one in made)


def test_stories_have_the_same_turns_with_rationales(dialogues, questions, tmp_path):
    made = read_coqa([dialogues.write_made("coqa", tmp_path / "coqa.json", questions)])
    others = read_quac([dialogues.write_made("quac", tmp_path / "quac.json", questions)])
    assert [one.question for one in made] == [one.question for one in others]
    assert {one.kind for one in made} == {"span", "yes", "no", "unknown"}
    assert describe_rationales(made) == []
    for one, other in zip(made, others, strict=True):
        assert one.references == other.references or one.kind != "span"
        assert (one.kind in ("unknown", "no")) is other.impossible


def test_questions_need_the_text_and_the_guide(dialogues, questions, tmp_path):
    made = read_hotpotqa([dialogues.write_made("hotpotqa", tmp_path / "a.json", questions)])
    assert describe_paragraphs(made) == []
    assert {one.kind for one in made} == {"bridge", "comparison"}
    assert {"yes", "no"} < {one.answer for one in made}
    for one in made:
        (text, guide) = (
            next(one.passage[it.start : it.end] for it in one.sentences if it.fact == fact) for fact in one.support
        )
        name = guide.split(" is shown")[0]
        assert name in text and name not in one.question
        assert one.passage.count(" is shown in hall ") == dialogues.NAMES
        lines = [one.passage[it.start : it.end] for it in one.sentences if it.title == dialogues.GUIDE]
        texts = one.passage[: one.passage.index(lines[0])]
        shown = [line.split(" is shown")[0] for line in lines]
        assert [it for it in shown if it in texts] == [name], "the texts tell which one is meant"
        assert one.answer in guide or {"yes": "open", "no": "closed"}[one.answer] in guide


def test_what_is_left_out_of_questions_about_paragraphs(dialogues, questions, tmp_path):
    whole, guide, alone = (
        read_hotpotqa([dialogues.write_made(form, tmp_path / f"{form}.json", questions)])
        for form in ("hotpotqa", "guide", "unsupported")
    )
    assert [(one.question, one.answer) for one in guide] == [(one.question, one.answer) for one in whole]
    assert all({it.title for it in one.sentences} == {"Guide"} for one in guide)
    assert [one.support for one in guide] == [one.support for one in whole]
    assert [one.passage for one in alone] == [one.passage for one in whole]
    assert not any(one.support for one in alone)
