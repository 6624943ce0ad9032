"""Reader of multiple-choice files: SWAG's continuations and RACE's questions about articles.

Input: SWAG's CSV files as published (train.csv, val.csv; Zellers et al. 2018), and RACE's, one JSON object per article
(`{"id", "article", "questions", "options", "answers"}`; Lai et al. 2017), in files that end in .txt or .json; a
directory stands for all such files in it. Output: questions with their choices.

SWAG's choices continue a second sentence: the first one is the passage. RACE's choices answer a question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_object, suffix_of
from unmask.data.labelled.records import read_table
from unmask.data.labelled.table import Source, refuse_tables
from unmask.data.text.files import display_name, files_of
from unmask.support.errors import UserError

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
PATTERNS = ("*.txt", "*.json", "*.csv")
"""Names of files, in a directory."""
LETTERS = "ABCDEFGHIJ"
"""RACE's names of choices."""


class Choices(msgspec.Struct, frozen=True):
    """A question with several choices.

    Attributes:
        id: its id.
        passage: the text that it is about.
        question: the question, or the begun sentence; may be empty.
        choices: the choices.
        gold: index of the right choice; None if it was not read.
        file, place: its location.
        part: the part of the data set, such as RACE's "middle" and "high"; may be empty.
    """

    id: str
    passage: str
    question: str
    choices: tuple[str, ...]
    gold: int | None = None
    file: str = ""
    place: str = ""
    part: str = ""


def read_choices(paths: Sequence[Source], *, gold: bool = True) -> list[Choices]:
    """Read all questions of some files; those that end in .csv are SWAG's, others RACE's.

    Args:
        paths: files, optionally compressed, or directories.
        gold: whether to read which choice is right; if not, it may be missing.

    Raises:
        UserError: a file does not have this format, a text is empty, an id occurs twice, or the right choice is none of
            the choices; the message names the location.
    """
    seen: dict[str, str] = {}
    questions = []
    for path in files_of(refuse_tables(paths), PATTERNS):
        for question, place in (_read_swag if suffix_of(path) == "csv" else _read_race)(path, gold):
            claim(seen, question.id, place)
            questions.append(question)
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def _read_swag(path: str | Path, gold: bool) -> Iterator[tuple[Choices, Place]]:
    top = Place(display_name(path), form="SWAG")
    for number, (_, record) in enumerate(read_table(path, "csv"), start=1):
        place = top.inner(f"row {number}")
        first, begun = place.text(record, "sent1"), place.text(record, "sent2")
        choices = tuple(place.text(record, name) for name in ENDINGS)
        name = str(record.get("video-id", "")) + " " + str(record.get("fold-ind", number))
        right = None
        if gold:
            label = place.text(record, "label")
            right = int(label) if label.isdecimal() else -1
            if not 0 <= right < len(choices):
                place.refuse(f"the label '{label}' is none of the {len(choices)} endings", "correct it")
        yield Choices(f"{name} {number}", first, begun, choices, right, top.file, place.path), place


def _read_race(path: str | Path, gold: bool) -> Iterator[tuple[Choices, Place]]:
    top = Place(display_name(path), form="RACE (JSON) or SWAG (.csv)")
    content = decode_object(path, top, "article")
    name, article = top.text(content, "id"), top.text(content, "article")
    questions, options = top.take(content, "questions", list), top.take(content, "options", list)
    answers = top.take(content, "answers", list) if gold else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        top.refuse(f"{len(questions)} questions, {len(options)} lists of options, {len(answers)} answers", top.remedy)
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
        place = top.inner(f"question {number + 1}")
        if not isinstance(choices, list) or not all(isinstance(text, str) for text in choices) or len(choices) < 2:
            place.refuse("not a list of two options or more", top.remedy)
        text = place.text({"question": question}, "question")
        right = None
        if gold:
            right = LETTERS.find(answer) if isinstance(answer, str) and len(answer) == 1 else -1
            if not 0 <= right < len(choices):
                place.refuse(f"the answer '{answer}' is none of the {len(choices)} options", "correct it")
        part = next((level for level in ("middle", "high") if name.startswith(level)), "")
        yield Choices(f"{name} {number}", article, text, tuple(choices), right, top.file, place.path, part), place
