"""Reader of QuAC's files: dialogues about a section of an article, whose answers are spans of it (Choi et al. 2018).

Input: JSON files as published (train_v0.2.json, val_v0.2.json), optionally compressed: those of SQuAD, with an id per
paragraph, which is a dialogue, and with "yesno", "followup" and "orig_answer" per question. Output: questions with the
earlier turns of their dialogues.

Each passage ends with the word CANNOTANSWER, which is the answer of questions without one. It is removed here: such
questions are impossible, and have no span. A question with several answers is impossible if at least half of the
answers are CANNOTANSWER (scorer.py on quac.ai). The history has the answers that the dialogue went on from
("orig_answer"), or the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.dialogue import DialogueQuestion, Turn
from unmask.data.labelled.json_file import Place, claim, decode_object
from unmask.data.labelled.squad_file import read_answer
from unmask.data.labelled.table import Source, refuse_tables
from unmask.data.text.files import display_name
from unmask.support.errors import UserError

CANNOT = "CANNOTANSWER"
"""The answer of questions without one."""
YESNO, FOLLOWUP = ("y", "n", "x"), ("y", "n", "m")
"""Whether the answer is yes, no or neither; whether to ask on: yes, no or maybe."""


class QuacQuestion(DialogueQuestion, frozen=True):
    """A question of QuAC.

    Attributes:
        references: the texts of all gold answers, CANNOTANSWER among them.
        yesno, followup: the gold dialogue acts, of `YESNO` and `FOLLOWUP`; empty if answers were not read.
    """

    references: tuple[str, ...] = ()
    yesno: str = ""
    followup: str = ""


def read_quac(paths: Sequence[Source], *, gold: bool = True) -> list[QuacQuestion]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally compressed; `-` is standard input.
        gold: whether to read answers; if not, they may be missing, but the history has those that are there.

    Raises:
        UserError: a file does not have this format, a passage or question is empty, or an id occurs twice in a file;
            the message names the location.
    """
    questions = [question for path in refuse_tables(paths) for question in _read_file(path, gold)]
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def is_impossible(references: Sequence[str]) -> bool:
    """Return whether a question with these gold answers counts as one without an answer."""
    return 2 * sum(text == CANNOT for text in references) >= len(references)


def _read_file(path: str | Path, gold: bool) -> Iterator[QuacQuestion]:
    top = Place(display_name(path), form="QuAC")
    questions: dict[str, str] = {}
    dialogues: dict[str, str] = {}
    for article_place, article in top.each(decode_object(path, top, "data"), "data", "article"):
        for paragraph_place, paragraph in article_place.each(article, "paragraphs", "paragraph"):
            name = paragraph_place.text(paragraph, "id")
            claim(dialogues, name, paragraph_place)
            text = paragraph_place.text(paragraph, "context")
            passage = text.removesuffix(CANNOT).rstrip() or text
            history: list[Turn] = []
            for place, record in paragraph_place.each(paragraph, "qas", "question"):
                question = _question(record, passage, place, gold)
                claim(questions, question.id, place)
                yield msgspec.structs.replace(question, dialogue=name, history=tuple(history))
                history.append(_turn(question.question, record, passage, place))


def _question(record: dict[str, Any], passage: str, place: Place, gold: bool) -> QuacQuestion:
    name = place.text(record, "id")
    place = place.named(f"id {name}")
    found = QuacQuestion(name, place.text(record, "question"), passage, file=place.file, place=place.path)
    if not gold:
        return found
    answers = list(place.each(record, "answers", "answer"))
    if not answers:
        place.refuse("no answer", f'a question without an answer needs the answer "{CANNOT}"')
    references = tuple(inner.text(answer, "text") for inner, answer in answers)
    impossible = is_impossible(references)
    spans = [pair for pair, text in zip(answers, references, strict=True) if text != CANNOT]
    return msgspec.structs.replace(
        found,
        answers=() if impossible else tuple(read_answer(answer, passage, inner) for inner, answer in spans),
        impossible=impossible,
        references=references,
        yesno=_act(record, "yesno", YESNO, place),
        followup=_act(record, "followup", FOLLOWUP, place),
    )


def _act(record: dict[str, Any], key: str, known: Sequence[str], place: Place) -> str:
    act: str = place.take(record, key, str)
    if act not in known:
        place.refuse(f"'{key}' is '{act}', none of {', '.join(known)}", place.remedy)
    return act


def _turn(question: str, record: dict[str, Any], passage: str, place: Place) -> Turn:
    """Return a question with its answer, if the record has one, as a turn of the history of later questions."""
    answers = [one for _, one in place.each(record, "answers", "answer")] if "answers" in record else []
    given = record.get("orig_answer") or next(iter(answers), None)
    if not isinstance(given, dict):
        return Turn(question)
    if place.text(given, "text") == CANNOT:
        return Turn(question, CANNOT)
    answer = read_answer(given, passage, place)
    end = None if answer.start is None else answer.start + len(answer.text)
    return Turn(question, answer.text, answer.start, end)
