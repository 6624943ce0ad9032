"""Reader of CoQA's files: dialogues about a story with free answers, each with a rationale (Reddy et al. 2019).

Input: JSON files as published (coqa-train-v1.0.json, coqa-dev-v1.0.json), optionally compressed: `{"data": [{"id",
"source", "story", "questions": [{"input_text", "turn_id"}], "answers": [{"input_text", "span_start", "span_end"}],
"additional_answers": {"0": [...]}}]}`. Output: questions with the earlier turns of their dialogues.

Answers are free text; what can be learned is their kind ("yes", "no", "unknown" or a span) and a span: the words of the
rationale that have the best F1 with the answer, the first of several and the shortest of those. A rationale without a
word of the answer is used as a whole, and counted, as are rationales that are not where their offsets are. For yes and
no, the rationale itself is the span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.dialogue import DialogueQuestion, Turn
from unmask.data.labelled.json_file import Place, claim, decode_object
from unmask.data.labelled.squad_file import Answer
from unmask.data.labelled.table import Source, refuse_tables
from unmask.data.text.files import display_name
from unmask.metrics.question_answering import normalize, overlap
from unmask.support.errors import UserError

YES, NO, UNKNOWN, SPAN = "yes", "no", "unknown", "span"
"""Kinds of answers."""


class CoqaQuestion(DialogueQuestion, frozen=True):
    """A question of CoQA; its answer as a span of the passage is in `answers`.

    Attributes:
        turn: the number of the question in its dialogue.
        source: the domain of the story, such as "cnn"; empty if the file has none.
        references: all gold answers, as free text.
        kind: the kind of the first of them, "yes", "no", "unknown" or "span"; empty if answers were not read.
        rationale: whether the whole rationale is the span, as the answer shares no word with it.
    """

    turn: int = 0
    source: str = ""
    references: tuple[str, ...] = ()
    kind: str = ""
    rationale: bool = False


def read_coqa(paths: Sequence[Source], *, gold: bool = True) -> list[CoqaQuestion]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally compressed; `-` is standard input.
        gold: whether to read answers; if not, they may be missing, but the history has those that are there.

    Raises:
        UserError: a file does not have this format, a story or question is empty, an id occurs twice in a file, or the
            numbers of questions and answers, or of a turn and its answer, differ; the message names the location.
    """
    questions = [question for path in refuse_tables(paths) for question in _read_file(path, gold)]
    if not questions:
        raise UserError("there are no questions in the file", file=", ".join(map(display_name, paths)))
    return questions


def describe_rationales(questions: Sequence[CoqaQuestion]) -> list[str]:
    """Return a line for each kind of answer that is no span of its rationale, with the number of such answers."""
    counts = {
        "answers that share no word with their rationale, which is learned instead": [
            one for one in questions if one.rationale
        ],
        "rationales that are not at their offsets": [one for one in questions if one.answers and one.answers[0].moved],
        "answers that occur nowhere in their stories, and are used only for scoring": [
            one for one in questions if one.kind and not one.impossible and not one.answers
        ],
    }
    return [
        f"{what}: {len(found):,} of {len(questions):,} (the first: {found[0].file}: {found[0].place})"
        for what, found in counts.items()
        if found
    ]


def kind_of(answer: str) -> str:
    """Return the kind of a free answer."""
    words = normalize(answer)
    return words if words in (YES, NO, UNKNOWN) else SPAN


def best_span(passage: str, start: int, end: int, answer: str) -> tuple[int, int, float]:
    """Return the span of words of a part of a passage with the best F1 with an answer, and the F1.

    Args:
        passage: the passage.
        start, end: the part, in characters, `end` exclusive. Words that it cuts count as a whole.
        answer: the answer.
    """
    words = [
        it.span() for it in re.finditer(r"\w+(?:[-'’.,]\w+)*|[^\w\s]", passage) if it.end() > start and it.start() < end
    ]
    wanted = normalize(answer).split()
    tokens = [normalize(passage[first:last]).split() for first, last in words]
    best = start, end, 0.0
    known = set(wanted)
    edges = [index for index, some in enumerate(tokens) if known & set(some)]  # the best span starts and ends there
    for number, first in enumerate(edges):
        for last in edges[number:]:
            inside = [word for some in tokens[first : last + 1] for word in some]
            if len(inside) > 4 * len(wanted):
                break
            f1 = overlap(wanted, inside)
            if f1 > best[2]:
                best = words[first][0], words[last][1], f1
    return best


def _read_file(path: str | Path, gold: bool) -> Iterator[CoqaQuestion]:
    top = Place(display_name(path), form="CoQA")
    stories: dict[str, str] = {}
    for place, story in top.each(decode_object(path, top, "data"), "data", "story"):
        name = place.text(story, "id")
        place = place.named(f"id {name}")
        claim(stories, name, place)
        passage, source = place.text(story, "story"), str(story.get("source", ""))
        asked = list(place.each(story, "questions", "question"))
        columns = _answers(story, place, len(asked), gold)
        history: list[Turn] = []
        turns: dict[str, str] = {}
        for number, (inner, record) in enumerate(asked):
            turn: int = inner.take(record, "turn_id", int)
            claim(turns, str(turn), inner)
            found = CoqaQuestion(
                f"{name} {turn}",
                inner.text(record, "input_text"),
                passage,
                file=inner.file,
                place=inner.path,
                dialogue=name,
                history=tuple(history),
                turn=turn,
                source=source,
            )
            answers = [column[number] for column in columns]
            for answer in answers:
                if answer.get("turn_id", turn) != turn:
                    inner.refuse(f"'turn_id' is {turn}, that of its answer {answer['turn_id']}", place.remedy)
            yield _with_answers(found, answers, inner) if gold else found
            history.append(_turn(found.question, answers, inner))


def _answers(story: dict[str, Any], place: Place, number: int, gold: bool) -> list[list[dict[str, Any]]]:
    """Return the answers to all questions of a story, by person; none if there are none and none are needed."""
    if "answers" not in story and not gold:
        return []
    columns = [[one for _, one in place.each(story, "answers", "answer")]]
    more = place.take(story, "additional_answers", dict) if "additional_answers" in story else {}
    inside = place.inner("additional answers")
    columns += [[one for _, one in inside.each(more, key, f"person {key}, answer")] for key in more]
    for column in columns:
        if len(column) != number:
            place.refuse(f"{len(column)} answers to {number} questions", place.remedy)
    return columns


def _with_answers(question: CoqaQuestion, answers: Sequence[dict[str, Any]], place: Place) -> CoqaQuestion:
    texts = tuple(place.text(one, "input_text") for one in answers)
    kind, passage = kind_of(texts[0]), question.passage
    question = msgspec.structs.replace(question, references=texts, kind=kind, impossible=kind == UNKNOWN)
    rationale, moved = _rationale(answers[0], passage, place)
    if kind == UNKNOWN or (rationale is None and kind != SPAN):
        return question
    start, end = (0, len(passage)) if rationale is None else rationale
    shared = 0.0
    if kind == SPAN:
        start, end, shared = best_span(passage, start, end, texts[0])
        if rationale is None and not shared:
            return question
    answer = Answer(passage[start:end], start, moved)
    return msgspec.structs.replace(question, answers=(answer,), rationale=kind == SPAN and not shared)


def _rationale(record: dict[str, Any], passage: str, place: Place) -> tuple[tuple[int, int] | None, bool]:
    """Return the characters of the rationale without surrounding spaces, and whether they are not at its offset.

    None: there is no rationale, or it is not in the passage.
    """
    start, end = place.take(record, "span_start", int), place.take(record, "span_end", int)
    text = str(record.get("span_text", "")).strip()
    moved = not 0 <= start < end <= len(passage) or not passage[start:end].strip()
    moved |= bool(text) and passage[max(0, start) : end].strip() != text
    if moved:
        found = passage.find(text) if text else -1
        return (None if found < 0 else (found, found + len(text))), True
    inside = passage[start:end]
    start += len(inside) - len(inside.lstrip())
    return (start, start + len(inside.strip())), False


def _turn(question: str, answers: Sequence[dict[str, Any]], place: Place) -> Turn:
    """Return a question with its first answer, if there is one, as a turn of the history of later questions."""
    if not answers:
        return Turn(question)
    start, end = (answers[0].get(key) for key in ("span_start", "span_end"))
    there = isinstance(start, int) and isinstance(end, int) and 0 <= start < end
    return Turn(question, place.text(answers[0], "input_text"), *((start, end) if there else ()))
