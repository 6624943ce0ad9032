"""Reader of multiple-choice questions: SWAG and RACE as published, and rows of these, HellaSwag, ARC and CommonsenseQA.

Input: SWAG's CSV files (train.csv, val.csv; Zellers et al. 2018); RACE's, one JSON object per article (`{"id",
"article", "questions", "options", "answers"}`; Lai et al. 2017), in files that end in .txt or .json, a directory
standing for all such files in it; and rows as `datasets` stores them, from JSON Lines, a JSON array, Parquet, Arrow, a
split of a data set, or memory. Output: questions with their choices.

What a row is, its keys tell:

| keys | as in | passage | question | right choice |
|---|---|---|---|---|
| `sent1`, `sent2`, `ending0`, … | SWAG | the first sentence | the begun second one | `label`, from 0 |
| `ctx_a`, `ctx_b`, `endings` | HellaSwag | what comes before | the begun sentence, if any | `label`, from 0 |
| `article`, `question`, `options` | RACE | the article | the question | `answer`, from A |
| `question`, `choices` (`text` and `label`) | ARC, CommonsenseQA | the question | | `answerKey`, one of the labels |
| `question` (`stem` and `choices`) | the same, as published | the question | | `answerKey`, one of the labels |

Where there is no passage, the question is in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_object, suffix_of
from unmask.data.labelled.records import has_rows, read_records, read_table
from unmask.data.labelled.table import Source
from unmask.data.text.files import display_name, files_of
from unmask.support.errors import UserError, counted

ENDINGS = ("ending0", "ending1", "ending2", "ending3")
PATTERNS = ("*.txt", "*.json", "*.csv")
"""Names of files, in a directory."""
LETTERS = "ABCDEFGHIJ"
"""RACE's names of choices."""
FORMS = "SWAG, HellaSwag, RACE, ARC or CommonsenseQA"


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


class _Posed(msgspec.Struct, frozen=True):
    """A question as a row states it: its texts, the names of its choices, and the key of the name of the right one."""

    passage: str
    question: str
    choices: Sequence[str]
    names: Sequence[str]
    answer: str


def read_choices(paths: Sequence[Source], *, gold: bool = True) -> list[Choices]:
    """Read all questions of some files.

    Args:
        paths: files, optionally compressed, or directories of RACE's; rows; see the module.
        gold: whether to read which choice is right; if not, it may be missing.

    Raises:
        UserError: a file does not have this format, a text is empty, an id occurs twice, or the right choice is none of
            the choices; the message names the location.
    """
    seen: dict[str, str] = {}
    questions: list[Choices] = []
    for source in paths:
        for question, place in _read_source(source, gold, len(questions)):
            claim(seen, question.id, place)
            questions.append(question)
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def _read_source(source: Source, gold: bool, before: int) -> Iterator[tuple[Choices, Place]]:
    if has_rows(source):
        yield from _read_rows(read_records(source), display_name(source), gold, before)
        return
    for path in files_of([cast(str | Path, source)], PATTERNS):
        if suffix_of(path) == "csv":
            yield from _read_rows(read_table(path, "csv"), display_name(path), gold, before)
        elif has_rows(path):
            yield from _read_rows(read_records(path), display_name(path), gold, before)
        else:
            top = Place(display_name(path), form="RACE (JSON) or SWAG (.csv)")
            yield from _read_article(decode_object(path, top, "article"), top, gold)


def _read_rows(
    records: Iterator[tuple[int, Mapping[str, Any]]], name: str, gold: bool, before: int
) -> Iterator[tuple[Choices, Place]]:
    """Yield the questions of rows, which may also be RACE's articles; `before` is the number of earlier questions."""
    for number, (_, record) in enumerate(records, 1):
        row, place = dict(record), Place(name, form=FORMS).inner(f"row {number}")
        if "article" in row and "questions" in row:
            yield from _read_article(row, place, gold)
            continue
        posed = _posed(row, place)
        if len(posed.choices) < 2:
            place.refuse("fewer than two choices", "correct it")
        if len(set(posed.names)) < len(posed.names):
            place.refuse(f"two choices have the same label: {', '.join(posed.names)}", "correct it")
        right = _right(row.get(posed.answer), posed, place) if gold else None
        texts = (posed.passage, posed.question, tuple(posed.choices))
        part = _part(str(row.get("example_id", "")))
        yield Choices(_name(row, before + number), *texts, right, name, place.path, part), place


def _posed(row: dict[str, Any], place: Place) -> _Posed:
    """Return the question of a row."""
    if "sent1" in row or "ending0" in row:
        choices = [place.text(row, ending) for ending in ENDINGS]
        return _Posed(place.text(row, "sent1"), place.text(row, "sent2"), choices, _numbers(choices), "label")
    if "endings" in row:
        begun = [place.take(row, key, str).strip() for key in ("ctx_a", "ctx_b")]
        if not any(begun):
            place.refuse("ctx_a and ctx_b are empty", "fix or remove it")
        passage, question = begun if begun[0] else reversed(begun)
        choices = _texts(place, row, "endings")
        return _Posed(passage, question, choices, _numbers(choices), "label")
    if "options" in row:
        choices = _texts(place, row, "options")
        return _Posed(
            place.text(row, "article"), place.text(row, "question"), choices, LETTERS[: len(choices)], "answer"
        )
    question = row.get("question")
    asked = question if isinstance(question, dict) else row
    if "choices" not in asked:
        place.refuse(f"the keys {', '.join(row)[:200]} are not those of a question with choices", place.remedy)
    stem = next((key for key in ("stem", "question_stem") if key in asked), "question")
    listed = asked["choices"]
    if not isinstance(listed, dict):  # as published: a list of objects
        each = [choice for _, choice in place.each(asked, "choices", "choice")]
        listed = {key: [choice.get(key) for choice in each] for key in ("text", "label")}
    choices, names = (_texts(place, listed, key) for key in ("text", "label"))
    if len(choices) != len(names):
        place.refuse(f"{counted(len(choices), 'choice')}, but {counted(len(names), 'label')}", "correct it")
    return _Posed(place.text(asked, stem), "", choices, names, "answerKey")


def _texts(place: Place, record: dict[str, Any], key: str) -> list[str]:
    """Return the texts in a list, none of which may be empty."""
    return [
        place.inner(f"{key} {number}").text({key: text}, key)
        for number, text in enumerate(place.take(record, key, list))
    ]


def _numbers(choices: Sequence[str]) -> list[str]:
    return [str(number) for number in range(len(choices))]


def _right(answer: Any, posed: _Posed, place: Place) -> int:
    """Return the index of the right choice, which is stated as one of their names, as text or as a number."""
    stated = str(answer).strip() if isinstance(answer, str | int) and not isinstance(answer, bool) else ""
    if stated not in posed.names:
        known = f"{counted(len(posed.choices), 'choice')} ({', '.join(posed.names)})"
        place.refuse(f"the {posed.answer} {answer!r} is none of the {known}", "correct it")
    return [*posed.names].index(stated)


def _name(row: Mapping[str, Any], number: int) -> str:
    """Return the id of a question; what several have in common gets its number, which stands for a missing id."""
    if row.get("id") is not None:
        return str(row["id"])
    if row.get("example_id") is not None:
        return f"{row['example_id']} {number}"
    if row.get("video-id") is not None:
        return f"{row['video-id']} {row.get('fold-ind', number)} {number}"
    return str(number)


def _part(name: str) -> str:
    """Return the part of RACE that an article belongs to, by its name."""
    return next((level for level in ("middle", "high") if name.startswith(level)), "")


def _read_article(content: dict[str, Any], top: Place, gold: bool) -> Iterator[tuple[Choices, Place]]:
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
        where = (top.file, place.path, _part(name))
        yield Choices(f"{name} {number}", article, text, tuple(choices), right, *where), place
