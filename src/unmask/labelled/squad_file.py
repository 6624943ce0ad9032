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

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from unmask.errors import UserError
from unmask.text.files import MAX_JSON, display_name, open_bytes


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


def read_squad(paths: Sequence[str | Path], *, gold: bool = True) -> list[Question]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally `.gz` or `.xz`; `-` is standard input.
        gold: whether to read answers; if not, they may be missing.

    Raises:
        UserError: a file does not have this format, a passage or question is empty, an id occurs twice in a file, or an
            answer is missing or given for an unanswerable question; the message names the location.
    """
    questions = [question for path in paths for question in _read_file(path, gold)]
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
        f"{what}: {len(found):,} of {total:,} (the first: {found[0][0].file}: {found[0][0].place})"
        for what, found in kinds.items()
        if found
    ]


@dataclass(frozen=True)
class _Place:
    """The location of a part of a file, for messages."""

    file: str
    path: str = ""

    def inner(self, name: str) -> _Place:
        return _Place(self.file, f"{self.path}, {name}" if self.path else name)

    def refuse(self, message: str, remedy: str = "") -> NoReturn:
        raise UserError(f"{self.path}: {message}" if self.path else message, file=self.file, remedy=remedy)

    def take(self, record: dict[str, Any], key: str, kind: type) -> Any:
        """Return the value of a required key, which must be of this type."""
        if key not in record:
            self.refuse(f"'{key}' is missing", "files must be in SQuAD format")
        value = record[key]
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            self.refuse(f"'{key}' is {type(value).__name__}, not {kind.__name__}")
        return value

    def each(self, record: dict[str, Any], key: str, name: str) -> Iterator[tuple[_Place, dict[str, Any]]]:
        """Yield the objects of a list, each with its location."""
        for number, value in enumerate(self.take(record, key, list), start=1):
            place = self.inner(f"{name} {number}")
            if not isinstance(value, dict):
                place.refuse(f"{type(value).__name__}, not an object")
            yield place, value

    def text(self, record: dict[str, Any], key: str) -> str:
        """Return the text of a required key, which must not be empty."""
        value: str = self.take(record, key, str)
        if not value.strip():
            self.refuse(f"the {key} is empty", "fix or remove it")
        return value


def _read_file(path: str | Path, gold: bool) -> Iterator[Question]:
    top = _Place(display_name(path))
    seen: dict[str, str] = {}
    for article_place, article in top.each(_decode(path, top), "data", "article"):
        for paragraph_place, paragraph in article_place.each(article, "paragraphs", "paragraph"):
            passage = paragraph_place.text(paragraph, "context")
            for place, record in paragraph_place.each(paragraph, "qas", "question"):
                question = _question(record, passage, place, gold)
                if question.id in seen:
                    place.refuse(f"the id '{question.id}' is also that of {seen[question.id]}", "ids must be unique")
                seen[question.id] = place.path
                yield question


def _decode(path: str | Path, top: _Place) -> dict[str, Any]:
    with open_bytes(path) as stream:
        raw = stream.read(MAX_JSON + 1)
    if len(raw) > MAX_JSON:
        top.refuse(f"more than {MAX_JSON:,} bytes of JSON", "split it into several files")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        byte = re.search(r"byte (\d+)", str(error))
        line = raw[: int(byte[1])].count(b"\n") + 1 if byte else None
        remedy = "a file in SQuAD format is a single JSON object"
        raise UserError(f"broken JSON ({error})", file=top.file, line=line, remedy=remedy) from error
    if not isinstance(content, dict):
        top.refuse(f"{type(content).__name__}, not an object with 'data'", "files must be in SQuAD format")
    return content


def _question(record: dict[str, Any], passage: str, place: _Place, gold: bool) -> Question:
    name = record.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        record = {**record, "id": str(name)}
    name = place.text(record, "id")
    place = _Place(place.file, f"{place.path} (id {name})")
    found = Question(name, place.text(record, "question"), passage, file=place.file, place=place.path)
    if not gold:
        return found
    impossible = "is_impossible" in record and place.take(record, "is_impossible", bool)
    answers = tuple(_answer(answer, passage, inner) for inner, answer in place.each(record, "answers", "answer"))
    if impossible and answers:
        place.refuse("is_impossible is true, but there are answers", "fix one or the other")
    if not impossible and not answers:
        place.refuse("no answer", 'a question without an answer needs "is_impossible": true')
    return msgspec.structs.replace(found, answers=answers, impossible=impossible)


def _answer(record: dict[str, Any], passage: str, place: _Place) -> Answer:
    text, start = place.text(record, "text"), place.take(record, "answer_start", int)
    if start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    after = passage.find(text, max(0, start))
    before = passage.rfind(text, 0, max(0, start) + len(text) - 1)
    occurrences = [found for found in (before, after) if found >= 0]
    if not occurrences:
        return Answer(text, None)
    return Answer(text, min(occurrences, key=lambda found: abs(found - start)), moved=True)
