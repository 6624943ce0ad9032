"""Readers of dialogues about a passage: QuAC's and CoQA's files, and rows of both (question_files.py).

**QuAC.** Dialogues about a section of an article, whose answers are spans of it (Choi et al. 2018).

Input: JSON files as published (train_v0.2.json, val_v0.2.json), optionally compressed: those of SQuAD, with an id per
paragraph, which is a dialogue, and with "yesno", "followup" and "orig_answer" per question. Output: questions with the
earlier turns of their dialogues.

Each passage ends with the word CANNOTANSWER, which is the answer of questions without one. It is removed here: such
questions are impossible, and have no span. A question with several answers is impossible if at least half of the
answers are CANNOTANSWER (scorer.py on quac.ai). The history has the answers that the dialogue went on from
("orig_answer"), or the first ones.

**CoQA.** Dialogues about a story with free answers, each with a rationale (Reddy et al. 2019).

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
from typing import Any, cast

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_object
from unmask.data.labelled.question_files import (
    Answer,
    Question,
    coqa_story,
    describe_kinds,
    quac_paragraph,
    read_answer,
    read_questions,
)
from unmask.data.labelled.records import has_rows, read_placed
from unmask.data.labelled.table import Source
from unmask.data.text.files import display_name
from unmask.metrics.question_answering import CANNOT, normalize, overlap
from unmask.support.errors import counted


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """An earlier question of a dialogue and its answer.

    Attributes:
        question, answer: their texts; the answer is empty if it is not known.
        start, end: the characters of the passage that answer it, `end` exclusive; None if there are none.
    """

    question: str
    answer: str = ""
    start: int | None = None
    end: int | None = None


class DialogueQuestion(Question, frozen=True):
    """A question of a dialogue about a passage.

    Attributes:
        dialogue: the id of the dialogue.
        history: the earlier turns, the oldest first.
    """

    dialogue: str = ""
    history: tuple[Turn, ...] = ()


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
        paths: JSON files, optionally compressed, or rows; see the module. `-` is standard input.
        gold: whether to read answers; if not, they may be missing, but the history has those that are there.

    Raises:
        UserError: a file does not have this format, a passage or question is empty, or an id occurs twice in a file;
            the message names the location.
    """
    return read_questions(paths, lambda source: _read_quac(source, gold))


def is_impossible(references: Sequence[str]) -> bool:
    """Return whether a question with these gold answers counts as one without an answer."""
    return 2 * sum(text == CANNOT for text in references) >= len(references)


def _read_quac(source: Source, gold: bool) -> Iterator[QuacQuestion]:
    questions: dict[str, str] = {}
    dialogues: dict[str, str] = {}
    for paragraph_place, paragraph in _quac_paragraphs(source):
        name = paragraph_place.text(paragraph, "id")
        claim(dialogues, name, paragraph_place)
        text = paragraph_place.text(paragraph, "context")
        passage = text.removesuffix(CANNOT).rstrip() or text
        history: list[Turn] = []
        for place, record in paragraph_place.each(paragraph, "qas", "question"):
            question = _question(record, passage, place, gold)
            claim(questions, question.id, place)
            yield msgspec.structs.replace(question, dialogue=name, history=tuple(history))
            history.append(_quac_turn(question.question, record, passage, place))


def _quac_paragraphs(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    if has_rows(source):
        for place, row in read_placed(source, "QuAC"):
            yield place, quac_paragraph(row, place)
        return
    top = Place(display_name(source), form="QuAC")
    for place, article in top.each(decode_object(cast(Path, source), top, "data"), "data", "article"):
        yield from place.each(article, "paragraphs", "paragraph")


def _question(record: dict[str, Any], passage: str, place: Place, gold: bool) -> QuacQuestion:
    name = place.text(record, "id")
    place = place.named(f"id {name}")
    question = QuacQuestion(name, place.text(record, "question"), passage, file=place.file, place=place.path)
    if not gold:
        return question
    answers = list(place.each(record, "answers", "answer"))
    if not answers:
        place.refuse("no answer", f'a question without an answer needs the answer "{CANNOT}"')
    references = tuple(inner.text(answer, "text") for inner, answer in answers)
    impossible = is_impossible(references)
    spans = [pair for pair, text in zip(answers, references, strict=True) if text != CANNOT]
    return msgspec.structs.replace(
        question,
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


def _quac_turn(question: str, record: dict[str, Any], passage: str, place: Place) -> Turn:
    """Return a question with its answer, if the record has one, as a turn of the history of later questions."""
    answers = [answer for _, answer in place.each(record, "answers", "answer")] if "answers" in record else []
    continued = record.get("orig_answer") or next(iter(answers), None)
    if not isinstance(continued, dict):
        return Turn(question)
    if place.text(continued, "text") == CANNOT:
        return Turn(question, CANNOT)
    answer = read_answer(continued, passage, place)
    end = None if answer.start is None else answer.start + len(answer.text)
    return Turn(question, answer.text, answer.start, end)


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
        paths: JSON files, optionally compressed, or rows; see the module. `-` is standard input.
        gold: whether to read answers; if not, they may be missing, but the history has those that are there.

    Raises:
        UserError: a file does not have this format, a story or question is empty, an id occurs twice in a file, or the
            numbers of questions and answers, or of a turn and its answer, differ; the message names the location.
    """
    return read_questions(paths, lambda source: _read_coqa(source, gold))


def describe_rationales(questions: Sequence[CoqaQuestion]) -> list[str]:
    """Return a line for each kind of answer that is no span of its rationale, with the number of such answers."""
    kinds = {
        "answers that share no word with their rationale, which is learned instead": [
            question for question in questions if question.rationale
        ],
        "rationales that are not at their offsets": [
            question for question in questions if question.answers and question.answers[0].moved
        ],
        "answers that occur nowhere in their stories, and are used only for scoring": [
            question for question in questions if question.kind and not question.impossible and not question.answers
        ],
    }
    return describe_kinds(kinds, len(questions))


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
        match.span()
        for match in re.finditer(r"\w+(?:[-'’.,]\w+)*|[^\w\s]", passage)
        if match.end() > start and match.start() < end
    ]
    wanted = normalize(answer).split()
    tokens = [normalize(passage[first:last]).split() for first, last in words]
    best = start, end, 0.0
    known = set(wanted)
    edges = [index for index, parts in enumerate(tokens) if known & set(parts)]  # the best span starts and ends there
    for number, first in enumerate(edges):
        for last in edges[number:]:
            inside = [word for parts in tokens[first : last + 1] for word in parts]
            if len(inside) > 4 * len(wanted):
                break
            f1 = overlap(wanted, inside)
            if f1 > best[2]:
                best = words[first][0], words[last][1], f1
    return best


def _coqa_stories(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    if has_rows(source):
        for number, (place, row) in enumerate(read_placed(source, "CoQA"), 1):
            yield place, coqa_story(row, place, number)
        return
    top = Place(display_name(source), form="CoQA")
    yield from top.each(decode_object(cast(Path, source), top, "data"), "data", "story")


def _read_coqa(source: Source, gold: bool) -> Iterator[CoqaQuestion]:
    stories: dict[str, str] = {}
    for place, story in _coqa_stories(source):
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
            dialogue_question = CoqaQuestion(
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
            yield _with_answers(dialogue_question, answers, inner) if gold else dialogue_question
            history.append(_coqa_turn(dialogue_question.question, answers, inner))


def _answers(story: dict[str, Any], place: Place, number: int, gold: bool) -> list[list[dict[str, Any]]]:
    """Return the answers to all questions of a story, by person; none if there are none and none are needed."""
    if "answers" not in story and not gold:
        return []
    columns = [[answer for _, answer in place.each(story, "answers", "answer")]]
    more = place.take(story, "additional_answers", dict) if "additional_answers" in story else {}
    inside = place.inner("additional answers")
    columns += [[answer for _, answer in inside.each(more, key, f"person {key}, answer")] for key in more]
    for column in columns:
        if len(column) != number:
            place.refuse(f"{counted(len(column), 'answer')} to {counted(number, 'question')}", place.remedy)
    return columns


def _with_answers(question: CoqaQuestion, answers: Sequence[dict[str, Any]], place: Place) -> CoqaQuestion:
    texts = tuple(place.text(record, "input_text") for record in answers)
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
        index = passage.find(text) if text else -1
        return (None if index < 0 else (index, index + len(text))), True
    inside = passage[start:end]
    start += len(inside) - len(inside.lstrip())
    return (start, start + len(inside.strip())), False


def _coqa_turn(question: str, answers: Sequence[dict[str, Any]], place: Place) -> Turn:
    """Return a question with its first answer, if there is one, as a turn of the history of later questions."""
    if not answers:
        return Turn(question)
    start, end = (answers[0].get(key) for key in ("span_start", "span_end"))
    there = isinstance(start, int) and isinstance(end, int) and 0 <= start < end
    return Turn(question, place.text(answers[0], "input_text"), *((start, end) if there else ()))
