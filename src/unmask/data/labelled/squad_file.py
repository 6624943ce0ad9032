"""Reader of files in SQuAD format: articles of paragraphs, each with questions whose answers are spans of it.

Input: JSON files, optionally compressed: `{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}`, as in SQuAD 1.1 and 2.0, DRCD, XQuAD, MLQA, SQuAD-it and CMRC 2018.
Other keys are ignored. Output: questions with their location, so that errors can name file, article and paragraph.

Published files contain wrong offsets. An answer that is not at its offset is moved to its nearest occurrence; one that
does not occur in its passage keeps its text, for scoring, but has no position and so is not trained on. Both are
counted by `describe_repairs`. Any other mistake is an error.

Rajpurkar et al. 2016; Rajpurkar et al. 2018 (`is_impossible`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_object
from unmask.data.labelled.table import Source, refuse_tables
from unmask.data.text.files import display_name
from unmask.support.errors import UserError


class Answer(msgspec.Struct, frozen=True):
    """A gold answer.

    Attributes:
        text: its text, as in the file.
        start: its first character in the passage; None if it does not occur there.
        moved: whether the file gives another, wrong offset.
    """

    text: str
    start: int | None
    moved: bool = False


class Question(msgspec.Struct, frozen=True):
    """A question about a passage.

    Attributes:
        id: its id.
        question, passage: their texts, as in the file.
        answers: the gold answers; empty if the question has no answer, or if answers were not read.
        impossible: whether the question has no answer in the passage.
        file, place: its location ("article 1, paragraph 2, question 57").
    """

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    file: str = ""
    place: str = ""


def read_squad(paths: Sequence[Source], *, gold: bool = True) -> list[Question]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally compressed; `-` is standard input.
        gold: whether to read answers; if not, they may be missing.

    Raises:
        UserError: a file does not have this format, a passage or question is empty, an id occurs twice in a file, or an
            answer is missing or given for an unanswerable question; the message names the location.
    """
    questions = [question for path in refuse_tables(paths) for question in _read_file(path, gold)]
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def describe_repairs(questions: Sequence[Question]) -> list[str]:
    """Return a line for each kind of wrong answer offset with the number of such answers and the first of them."""
    kinds = {
        "answers that are not at their offset, and were moved to their nearest occurrence": [
            (question, answer) for question in questions for answer in question.answers if answer.moved
        ],
        "answers that do not occur in their passages, and are used only for scoring": [
            (question, answer) for question in questions for answer in question.answers if answer.start is None
        ],
    }
    total = sum(len(question.answers) for question in questions)
    return [
        f"{what}: {len(repairs):,} of {total:,} (the first: {repairs[0][0].file}: {repairs[0][0].place})"
        for what, repairs in kinds.items()
        if repairs
    ]


def _read_file(path: str | Path, gold: bool) -> Iterator[Question]:
    top = Place(display_name(path))
    seen: dict[str, str] = {}
    for article_place, article in top.each(decode_object(path, top, "data"), "data", "article"):
        for paragraph_place, paragraph in article_place.each(article, "paragraphs", "paragraph"):
            passage = paragraph_place.text(paragraph, "context")
            for place, record in paragraph_place.each(paragraph, "qas", "question"):
                question = _question(record, passage, place, gold)
                claim(seen, question.id, place)
                yield question


def _question(record: dict[str, Any], passage: str, place: Place, gold: bool) -> Question:
    name = record.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        record = {**record, "id": str(name)}
    name = place.text(record, "id")
    place = place.named(f"id {name}")
    question = Question(name, place.text(record, "question"), passage, file=place.file, place=place.path)
    if not gold:
        return question
    impossible = "is_impossible" in record and place.take(record, "is_impossible", bool)
    answers = tuple(read_answer(answer, passage, inner) for inner, answer in place.each(record, "answers", "answer"))
    if impossible and answers:
        place.refuse("is_impossible is true, but there are answers", "fix one or the other")
    if not impossible and not answers:
        place.refuse("no answer", 'a question without an answer needs "is_impossible": true')
    return msgspec.structs.replace(question, answers=answers, impossible=impossible)


def read_answer(record: dict[str, Any], passage: str, place: Place) -> Answer:
    """Return the answer in a record of SQuAD's format, moved to its nearest occurrence if it is not at its offset."""
    text, start = place.text(record, "text"), place.take(record, "answer_start", int)
    if start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    after = passage.find(text, max(0, start))
    before = passage.rfind(text, 0, max(0, start) + len(text) - 1)
    occurrences = [offset for offset in (before, after) if offset >= 0]
    if not occurrences:
        return Answer(text, None)
    return Answer(text, min(occurrences, key=lambda offset: abs(offset - start)), moved=True)
