"""Files of SQuAD's format: articles of paragraphs, each with questions whose answers are spans of it.

In: JSON files, also compressed: `{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text",
"answer_start"}], "is_impossible"}]}]}]}`, as of SQuAD 1.1 and 2.0, DRCD, XQuAD, MLQA, SQuAD-it and CMRC 2018. Other
keys are not read. Out: questions with their place, so that an error can name file, article and paragraph.

Published files have wrong offsets. An answer that does not stand where its offset says is moved to the nearest place
where it does; one that stands nowhere in its passage keeps its text, for scoring, and has no place to learn from. Both
can be counted (`describe_repairs`). Everything else that is wrong ends the reading.

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
from unmask.text.files import display_name, open_bytes

MAX_BYTES = 1 << 30
"""Of a file, decompressed: the largest published one has less than a tenth of that."""


class Answer(msgspec.Struct, frozen=True):
    """A gold answer.

    Attributes:
        text: as it stands in the file.
        start: character of the passage where it begins; None where the passage does not have it.
        moved: whether the file gives another place, where it does not stand.
    """

    text: str
    start: int | None
    moved: bool = False


class Question(msgspec.Struct, frozen=True):
    """A question about a passage.

    Attributes:
        id: its name.
        question, passage: as given.
        answers: the gold ones; none where the question has no answer, or where they were not asked for.
        impossible: whether the passage has no answer.
        file, place: where it stands ("article 1, paragraph 2, question 57").
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
        paths: JSON, each also `.gz` or `.xz`; `-` is standard input.
        gold: whether answers are wanted; without, none are read, and none need be there.

    Raises:
        UserError: not of this format, an empty passage or question, an id that occurs twice in a file, an answer
            missing or where there should be none; names file, article, paragraph and question.
    """
    questions = [question for path in paths for question in _read_file(path, gold)]
    if not questions:
        raise UserError("no questions are in the file", file=", ".join(map(display_name, paths)))
    return questions


def describe_repairs(questions: Sequence[Question]) -> list[str]:
    """Say how many gold answers do not stand where the file says, in a line for each kind; the first is named."""
    kinds = {
        "answers that are not where the file says, and were taken from the nearest place where they stand": [
            (question, answer) for question in questions for answer in question.answers if answer.moved
        ],
        "answers that are nowhere in their passages, and serve for scoring alone": [
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
    """A part of a file, for messages."""

    file: str
    path: str = ""

    def inner(self, name: str) -> _Place:
        return _Place(self.file, f"{self.path}, {name}" if self.path else name)

    def refuse(self, message: str, remedy: str = "") -> NoReturn:
        raise UserError(f"{self.path}: {message}" if self.path else message, file=self.file, remedy=remedy)

    def take(self, record: dict[str, Any], key: str, kind: type) -> Any:
        """Return the value of a key that must be there, of this type."""
        if key not in record:
            self.refuse(f"'{key}' is missing", "files must be of SQuAD's format")
        value = record[key]
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            self.refuse(f"'{key}' is {type(value).__name__}, not {kind.__name__}")
        return value

    def each(self, record: dict[str, Any], key: str, name: str) -> Iterator[tuple[_Place, dict[str, Any]]]:
        """Walk through a list of objects, each with its place."""
        for number, value in enumerate(self.take(record, key, list), start=1):
            place = self.inner(f"{name} {number}")
            if not isinstance(value, dict):
                place.refuse(f"{type(value).__name__}, not an object")
            yield place, value

    def text(self, record: dict[str, Any], key: str) -> str:
        """Return a text that must not be empty."""
        value: str = self.take(record, key, str)
        if not value.strip():
            self.refuse(f"the {key} is empty", "mend or remove it")
        return value


def _read_file(path: str | Path, gold: bool) -> Iterator[Question]:
    top = _Place(display_name(path))
    seen: dict[str, str] = {}
    for here, article in top.each(_decode(path, top), "data", "article"):
        for there, paragraph in here.each(article, "paragraphs", "paragraph"):
            passage = there.text(paragraph, "context")
            for place, record in there.each(paragraph, "qas", "question"):
                question = _question(record, passage, place, gold)
                if question.id in seen:
                    place.refuse(f"the id '{question.id}' is that of {seen[question.id]} too", "ids must differ")
                seen[question.id] = place.path
                yield question


def _decode(path: str | Path, top: _Place) -> dict[str, Any]:
    with open_bytes(path) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        top.refuse(f"more than {MAX_BYTES >> 30} GB of JSON", "divide it into several files")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        byte = re.search(r"byte (\d+)", str(error))
        line = raw[: int(byte[1])].count(b"\n") + 1 if byte else None
        remedy = "files of SQuAD's format are one JSON object"
        raise UserError(f"broken JSON ({error})", file=top.file, line=line, remedy=remedy) from error
    if not isinstance(content, dict):
        top.refuse(f"{type(content).__name__}, not an object with 'data'", "files must be of SQuAD's format")
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
    answers = tuple(_answer(answer, passage, there) for there, answer in place.each(record, "answers", "answer"))
    if impossible and answers:
        place.refuse("is_impossible is true, but there are answers", "mend the one or the other")
    if not impossible and not answers:
        place.refuse("no answer", 'a question that has none needs "is_impossible": true')
    return msgspec.structs.replace(found, answers=answers, impossible=impossible)


def _answer(record: dict[str, Any], passage: str, place: _Place) -> Answer:
    text, start = place.text(record, "text"), place.take(record, "answer_start", int)
    if start >= 0 and passage.startswith(text, start):
        return Answer(text, start)
    after = passage.find(text, max(0, start))
    before = passage.rfind(text, 0, max(0, start) + len(text) - 1)
    places = [found for found in (before, after) if found >= 0]
    if not places:
        return Answer(text, None)
    return Answer(text, min(places, key=lambda found: abs(found - start)), moved=True)
