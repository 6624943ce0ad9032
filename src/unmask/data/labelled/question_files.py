"""Reader of questions about passages: files in SQuAD format, and rows as `datasets` stores them.

Input: JSON files, optionally compressed, or records as `datasets` stores them. Output: questions with their location,
so that errors can name file, article and paragraph, or row.

**SQuAD** (Rajpurkar et al. 2016; Rajpurkar et al. 2018, `is_impossible`): articles of paragraphs, each with questions
whose answers are spans of it: `{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}`, as in SQuAD 1.1 and 2.0, DRCD, XQuAD, MLQA, SQuAD-it and CMRC 2018.
Other keys are ignored. Offsets count characters, or whatever else (spans.py) puts more answers of the file at their
offsets: those of CMRC 2018 count UTF-16 units. Published files contain wrong offsets. An answer that is not at its
offset is moved to its nearest occurrence that cuts no word, or if there is none, to the nearest, also where its words
have other spaces between them, which no score counts; one that does not occur in its passage keeps its text, for
scoring, but has no position and so is not trained on. Both are counted by `describe_repairs`. Any other mistake is an
error.

As `datasets` stores them, each question is a row: `{"id", "context", "question", "answers": {"text": […],
"answer_start": […]}}`, without answers if it is impossible. Rows are read from JSON Lines, a JSON array, Parquet,
Arrow, a split of a data set, or memory, and are numbered where they have no id. A row may also be a paragraph with its
questions, `{"context", "qas"}`, as simpletransformers reads them.

**Rows** of QuAC, CoQA and HotpotQA become the records that the published files have. Input: JSON
Lines, Parquet, Arrow, a split of a data set, or examples in memory. A row is a dialogue of QuAC or CoQA, or a question
of HotpotQA; what a published file has as a list of objects is an object of lists there, or a list of objects as well.
Output: records in the form of the published files, with their locations.

- QuAC: `dialogue_id`, `context`, `turn_ids`, `questions`, `answers` (`texts`, `answer_starts`), `orig_answers`,
  `yesnos`, `followups`;
- CoQA: `source`, `story`, `questions`, `answers` (`input_text`, `answer_start`, `answer_end`); dialogues are numbered;
- HotpotQA: `id`, `question`, `answer`, `type`, `context` (`title`, `sentences`), `supporting_facts` (`title`,
  `sent_id`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_object, suffix_of
from unmask.data.labelled.records import has_rows, read_records
from unmask.data.labelled.spans import COUNTINGS
from unmask.data.labelled.table import ExampleTable, Source
from unmask.data.text.files import display_name
from unmask.support.errors import UserError, counted
from unmask.support.messages import call
from unmask.support.scripts import UNSPACED, mark_class

IMPOSSIBLE = 'a question without an answer needs "is_impossible": true'
"""The remedy where an answer is missing."""
_Question = TypeVar("_Question")
_Source = TypeVar("_Source", bound=Source)
Record = dict[str, Any]
ANSWER = {"texts": "text", "answer_starts": "answer_start"}
RATIONALE = {"input_text": "input_text", "answer_start": "span_start", "answer_end": "span_end"}


class Answer(msgspec.Struct, frozen=True):
    """A gold answer.

    Attributes:
        text: its text, as in the file, but with the spaces of the passage if it was moved.
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
        counting: what the offsets of answers in its file count.
    """

    id: str
    question: str
    passage: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    file: str = ""
    place: str = ""
    counting: str = "characters"


def read_squad(paths: Sequence[Source], *, gold: bool = True) -> list[Question]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally compressed, or rows; see the module. `-` is standard input.
        gold: whether to read answers; if not, they may be missing.

    Raises:
        UserError: a file does not have this format, a passage or question is empty, an id occurs twice in a file, or an
            answer is missing or given for an unanswerable question; the message names the location.
    """

    def read(source: Source) -> Iterable[Question]:
        if not isinstance(source, ExampleTable) and suffix_of(source) in ("csv", "tsv"):
            raise UserError(
                "questions with their answers are not read from tables of cells",
                file=display_name(source),
                remedy="write a record for each, as by to_json(orient='records', lines=True) of pandas, with "
                '"question", "context" and "answers", such as {"text": ["Eiffel"], "answer_start": [23]}',
            )
        questions = list(_read_rows(source, gold) if has_rows(source) else _read_file(cast(str | Path, source), gold))
        return _located(questions, _find_counting(questions))

    return read_questions(paths, read)


def read_questions(paths: Sequence[_Source], read: Callable[[_Source], Iterable[_Question]]) -> list[_Question]:
    """Return the questions of files, given what reads one of them.

    Raises:
        UserError: there are none.
    """
    questions = [question for path in paths for question in read(path)]
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def check_ids(questions: Iterable[Question]) -> None:
    """Check that ids distinguish the questions of several files, as predictions are written by them.

    Raises:
        UserError: two files have questions with the same id, such as translations of one data set.
    """
    files: dict[str, str] = {}
    for question in questions:
        if (other := files.setdefault(question.id, question.file)) != question.file:
            raise UserError(
                f"{question.place}: the id '{question.id}' is also that of a question of {other}",
                file=question.file,
                remedy="predict one file at a time, as predictions are written by id",
            )


def describe_repairs(questions: Sequence[Question]) -> list[str]:
    """Return a line for each file whose offsets do not count characters, and for each kind of wrong answer offset.

    The latter have the number of such answers and the first of them.
    """
    countings = {question.file: question.counting for question in questions if question.counting != "characters"}
    kinds = {
        "answers that are not at their offset, and were moved to their nearest occurrence": [
            question for question in questions for answer in question.answers if answer.moved
        ],
        "answers that do not occur in their passages, and are used only for scoring": [
            question for question in questions for answer in question.answers if answer.start is None
        ],
    }
    total = sum(len(question.answers) for question in questions)
    counted = [f"{file}: offsets count {what}, as the texts of the answers show" for file, what in countings.items()]
    return counted + describe_kinds(kinds, total)


def describe_kinds(kinds: Mapping[str, Sequence[Question]], total: int) -> list[str]:
    """Return a line for each kind of answer of which there are some, given their questions, of `total` answers."""
    return [
        f"{what}: {len(questions):,} of {total:,} (the first: {questions[0].file}: {questions[0].place})"
        for what, questions in kinds.items()
        if questions
    ]


def read_answer(record: dict[str, Any], passage: str, place: Place) -> Answer:
    """Return the answer in a record of SQuAD's format, moved to its nearest occurrence if it is not at its offset."""
    return _placed(_stated(record, place), passage, COUNTINGS["characters"](passage))


def _stated(record: dict[str, Any], place: Place) -> Answer:
    """Return the answer in a record with its offset as the file has it, whatever that counts."""
    return Answer(place.text(record, "text"), place.take(record, "answer_start", int))


def _find_counting(questions: Iterable[Question]) -> str:
    """Return what the offsets of a file count, whose answers are as stated: what most of the answers are found by."""
    passages = [
        (passage, [answer for question in of_passage for answer in question.answers])
        for passage, of_passage in groupby(questions, key=lambda question: question.passage)
    ]
    doubtful = [one for one in passages if _misses(*one, "characters")]
    fewest = _total_misses(doubtful, "characters")  # of all passages
    likely = [name for name in COUNTINGS if _total_misses(doubtful, name) < fewest]
    misses = {"characters": fewest, **{name: _total_misses(passages, name) for name in likely}}
    return min(misses, key=misses.__getitem__)


def _total_misses(passages: Iterable[tuple[str, Sequence[Answer]]], counting: str) -> int:
    return sum(_misses(passage, answers, counting) for passage, answers in passages)


def _misses(passage: str, answers: Sequence[Answer], counting: str) -> int:
    """Return how many answers are not at their offsets."""
    convert = COUNTINGS[counting](passage)
    return sum(not _is_at(answer.text, convert(cast(int, answer.start)), passage) for answer in answers)


def _is_at(text: str, start: int | None, passage: str) -> bool:
    return start is not None and passage.startswith(text, start)


def _placed(stated: Answer, passage: str, convert: Callable[[int], int | None]) -> Answer:
    text, offset = stated.text, cast(int, stated.start)
    start = convert(offset)
    if _is_at(text, start, passage):
        return Answer(text, start)
    near = max(0, offset if start is None else start)
    words = r"\s+".join(map(re.escape, text.split()))

    def distance(match: re.Match[str]) -> tuple[int, int]:
        return sum(_cuts_word(passage, at) for at in match.span(1)), abs(match.start() - near)

    nearest = min(re.finditer(f"(?=({words}))", passage), key=distance, default=None)
    return Answer(text, None) if nearest is None else Answer(nearest[1], nearest.start(), moved=True)


def _cuts_word(passage: str, at: int) -> bool:
    """Return whether the characters before and after an offset are in the same word of a script with spaces."""
    return at > 0 and _within_word().match(passage, at - 1) is not None


@cache
def _within_word() -> re.Pattern[str]:
    return re.compile(rf"[^\W{UNSPACED}](?:[^\W{UNSPACED}]|{mark_class()})")


def _located(questions: Iterable[Question], counting: str) -> Iterator[Question]:
    """Yield questions with their answers in their passages, which are given as stated."""
    for passage, of_passage in groupby(questions, key=lambda question: question.passage):
        convert = COUNTINGS[counting](passage)
        for question in of_passage:
            answers = tuple(_placed(answer, passage, convert) for answer in question.answers)
            yield msgspec.structs.replace(question, answers=answers, counting=counting)


def _read_file(path: str | Path, gold: bool) -> Iterator[Question]:
    """Yield the questions of a file, with the offsets of answers as stated."""
    top = Place(display_name(path))
    seen: dict[str, str] = {}
    for article_place, article in top.each(decode_object(path, top, "data"), "data", "article"):
        for paragraph_place, paragraph in article_place.each(article, "paragraphs", "paragraph"):
            yield from _of_paragraph(paragraph, paragraph_place, gold, seen)


def _of_paragraph(paragraph: dict[str, Any], inside: Place, gold: bool, seen: dict[str, str]) -> Iterator[Question]:
    """Yield the questions of a paragraph, and note their ids as seen."""
    passage = inside.text(paragraph, "context")
    for place, record in inside.each(paragraph, "qas", "question"):
        question = _question(record, passage, place, gold)
        claim(seen, question.id, place)
        yield question


def _read_rows(source: Source, gold: bool) -> Iterator[Question]:
    """Yield the questions of rows, with the offsets of answers as stated."""
    seen: dict[str, str] = {}
    top = Place(display_name(source), form="SQuAD")
    for number, row in read_records(source):
        place = top.inner(f"row {number}")
        if "qas" in row:  # a list of paragraphs, as simpletransformers reads it
            yield from _of_paragraph(row, place, gold, seen)
            continue
        record = {**row, "id": str(number) if row.get("id") is None else row["id"]}
        if gold:
            answers = _paired(record, place)
            record = {"is_impossible": not answers, **record, "answers": answers}
        question = _question(record, place.text(record, "context"), place, gold)
        claim(seen, question.id, place)
        yield question


def _paired(record: dict[str, Any], place: Place) -> list[Any]:
    """Return the answers of a row, each with its offset."""
    if not isinstance(record.get("answers"), dict):
        answers: list[Any] = place.take(record, "answers", list)
        return answers
    texts, starts = (place.take(record["answers"], key, list) for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        place.refuse(f"{len(texts)} texts of answers, but {len(starts)} offsets")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _question(record: dict[str, Any], passage: str, place: Place, gold: bool) -> Question:
    name = record.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        record = {**record, "id": str(name)}
    name = place.text(record, "id")
    place = place.named(f"id {name}")
    if "yesno" in record and "followup" in record:
        place.refuse(
            "a question of a dialogue, as in QuAC, which this task would read without the turns before it",
            f"pass the file to {call('finetune', 'quac')}",
        )
    question = Question(name, place.text(record, "question"), passage, file=place.file, place=place.path)
    if not gold:
        return question
    impossible = "is_impossible" in record and place.take(record, "is_impossible", bool)
    stated = list(place.each(record, "answers", "answer"))
    if any(answer.get("text") == "" for _, answer in stated):
        place.refuse("the text of an answer is empty", f"fix or remove it: {IMPOSSIBLE}")
    answers = tuple(_stated(answer, inner) for inner, answer in stated)
    if impossible and answers:
        place.refuse("is_impossible is true, but there are answers", "fix one or the other")
    if not impossible and not answers:
        place.refuse("no answer", IMPOSSIBLE)
    return msgspec.structs.replace(question, answers=answers, impossible=impossible)


def quac_paragraph(row: Record, place: Place) -> Record:
    """Return a row of QuAC as a paragraph of its files.

    Raises:
        UserError: it is none, or a list has not as many values as there are questions.
    """
    name, questions = place.text(row, "dialogue_id"), place.take(row, "questions", list)
    ids = row.get("turn_ids") or [f"{name}_q#{number}" for number in range(len(questions))]
    columns: dict[str, Sequence[Any]] = {"question": questions, "id": ids}
    for key, ours in (("yesnos", "yesno"), ("followups", "followup")):
        if row.get(key) is not None:
            columns[ours] = place.take(row, key, list)
    if row.get("orig_answers") is not None:
        columns["orig_answer"] = _objects(row, "orig_answers", ANSWER, place)
    if row.get("answers") is not None:
        of_turns = _objects(row, "answers", dict(zip(ANSWER, ANSWER, strict=True)), place)
        columns["answers"] = [_objects({"answers": turn}, "answers", ANSWER, place) for turn in of_turns]
    for ours, values in columns.items():
        if len(values) != len(questions):
            place.refuse(f"{counted(len(questions), 'question')}, but '{ours}' has {counted(len(values), 'value')}")
    turns = zip(*columns.values(), strict=True)
    return {"id": name, "context": row.get("context"), "qas": [dict(zip(columns, turn, strict=True)) for turn in turns]}


def coqa_story(row: Record, place: Place, number: int) -> Record:
    """Return a row of CoQA, of this number, as a story of its files.

    Raises:
        UserError: it is none.
    """
    questions = [
        {"input_text": text, "turn_id": turn} for turn, text in enumerate(place.take(row, "questions", list), 1)
    ]
    story = {key: row[key] for key in ("story", "source") if key in row} | {"id": str(number), "questions": questions}
    if row.get("answers") is not None:
        story["answers"] = _objects(row, "answers", RATIONALE, place)
    return story


def hotpot_record(row: Record, place: Place) -> Record:
    """Return a row of HotpotQA as a question of its files, and such a question as it is.

    Raises:
        UserError: its lists have different lengths.
    """
    record = dict(row) if "_id" in row or "id" not in row else {**row, "_id": row["id"]}
    for key, ours in (("context", ("title", "sentences")), ("supporting_facts", ("title", "sent_id"))):
        if isinstance(row.get(key), Mapping):
            record[key] = [
                list(each.values()) for each in _objects(row, key, dict(zip(ours, ours, strict=True)), place)
            ]
    return record


def _objects(row: Record, key: str, names: Mapping[str, str], place: Place) -> list[Record]:
    """Return a list of objects that may be stored as an object of lists, with their values by our names."""
    if isinstance(row.get(key), list):
        return [{ours: value.get(name) for name, ours in names.items()} for _, value in place.each(row, key, key)]
    inside = place.inner(key)
    lists = [inside.take(place.take(row, key, dict), name, list) for name in names]
    if len(set(map(len, lists))) > 1:
        inside.refuse(f"lists of different lengths: {', '.join(f'{len(values)}' for values in lists)}")
    return [dict(zip(names.values(), values, strict=True)) for values in zip(*lists, strict=True)]
