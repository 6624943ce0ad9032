"""Reader of HotpotQA's questions about several paragraphs, whose answers have supporting sentences.

Yang et al. 2018, as published (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json): a list of
`{"_id", "question", "answer", "type", "context": [[title, [sentence, …]], …], "supporting_facts": [[title, number]]}`;
or rows of it (question_files.py).
A question has one passage, all paragraphs after each other, each after its title, and where its sentences are. The
answer is "yes", "no" or a span; the file does not say where. Its first occurrence in a supporting sentence is learned,
or else the first one. Paragraphs without sentences are left out. What is used only for scoring is counted: answers that
occur nowhere, supporting facts that name no sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from unmask.data.labelled.json_file import Place, claim, decode_json, is_array
from unmask.data.labelled.question_files import Answer, Question, hotpot_record, read_questions
from unmask.data.labelled.records import has_rows, read_placed
from unmask.data.labelled.table import ExampleTable, Source
from unmask.data.text.files import display_name
from unmask.metrics.question_answering import Fact

CLOSED = ("yes", "no")


class PassageSentence(msgspec.Struct, frozen=True):
    """A sentence of a passage.

    Attributes:
        title, number: the title of its paragraph, and its number there, from 0.
        start, end: its characters in the passage, without surrounding spaces, `end` exclusive.
    """

    title: str
    number: int
    start: int
    end: int

    @property
    def fact(self) -> Fact:
        """What supporting facts name it."""
        return self.title, self.number


class HotpotQuestion(Question, frozen=True):
    """A question about several paragraphs.

    Attributes:
        sentences: the sentences of the passage that are not empty.
        answer: the gold answer, as in the file; empty if answers were not read.
        support: the gold supporting sentences.
        kind: the type of the question, such as "bridge"; empty if the file has none.
        without: number of paragraphs that were left out because they have no sentence.
    """

    sentences: tuple[PassageSentence, ...] = ()
    answer: str = ""
    support: tuple[Fact, ...] = ()
    kind: str = ""
    without: int = 0


def read_hotpotqa(paths: Sequence[Source], *, gold: bool = True) -> list[HotpotQuestion]:
    """Read all questions of some files.

    Args:
        paths: JSON files, optionally compressed, or rows (question_files.py); `-` is standard input.
        gold: whether to read answers; if not, they may be missing.

    Raises:
        UserError: a file does not have this format, a question is empty, has no sentence, or an id occurs twice in a
            file; the message names the location.
    """
    return read_questions(paths, lambda source: _read_hotpotqa(source, gold))


def describe_paragraphs(questions: Sequence[HotpotQuestion]) -> list[str]:
    """Return a line for each kind of thing that was left out or is used only for scoring, with its number."""
    known = [{sentence.fact for sentence in question.sentences} for question in questions]
    counts = {
        "paragraphs left out because they have no sentence": sum(question.without for question in questions),
        "answers that occur nowhere in their paragraphs, and are used only for scoring": sum(
            bool(question.answer) and question.answer not in CLOSED and not question.answers for question in questions
        ),
        "sentences whose title and number another one has": sum(
            len(question.sentences) - len(facts) for question, facts in zip(questions, known, strict=True)
        ),
        "supporting facts that name no sentence, and are used only for scoring": sum(
            fact not in facts for question, facts in zip(questions, known, strict=True) for fact in question.support
        ),
    }
    return [f"{what}: {count:,} ({len(questions):,} questions)" for what, count in counts.items() if count]


def join_paragraphs(
    paragraphs: Sequence[tuple[str, Sequence[str]]], *, titled: bool = True
) -> tuple[str, tuple[PassageSentence, ...], int]:
    """Return paragraphs as one passage, its sentences, and the number of paragraphs without any.

    Args:
        paragraphs: title and sentences of each paragraph. Sentences have the spaces between them.
        titled: whether titles are part of the text.
    """
    parts, sentences, length, without = list[str](), list[PassageSentence](), 0, 0
    for title, texts in paragraphs:
        if not any(text.strip() for text in texts):
            without += 1
            continue
        parts += (["\n"] if parts else []) + ([f"{title}: "] if titled else [])
        length = sum(map(len, parts))
        for number, text in enumerate(texts):
            if text.strip():
                start = length + len(text) - len(text.lstrip())
                sentences.append(PassageSentence(title, number, start, start + len(text.strip())))
            parts.append(text)
            length += len(text)
    return "".join(parts), tuple(sentences), without


def _read_hotpotqa(source: Source, gold: bool) -> Iterator[HotpotQuestion]:
    seen: dict[str, str] = {}
    for place, record in _records(source):
        question = _hotpot_question(hotpot_record(record, place), place, gold)
        claim(seen, question.id, place)
        yield question


def _records(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    if isinstance(source, ExampleTable) or (has_rows(source) and not is_array(source)):
        yield from read_placed(source, "HotpotQA")
        return
    top = Place(display_name(source), form="HotpotQA")
    content = decode_json(cast(Path, source), top)
    if not isinstance(content, list):
        top.refuse(f"{type(content).__name__}, not a list of questions", top.remedy)
    yield from top.each({"questions": content}, "questions", "question")


def _hotpot_question(record: dict[str, Any], place: Place, gold: bool) -> HotpotQuestion:
    name = place.text(record, "_id")
    place = place.named(f"id {name}")
    passage, sentences, without = join_paragraphs(list(_paragraphs(record, place)))
    if not sentences:
        place.refuse("no paragraph has a sentence", "remove the question")
    question = HotpotQuestion(
        name,
        place.text(record, "question"),
        passage,
        file=place.file,
        place=place.path,
        sentences=sentences,
        kind=str(record.get("type", "")),
        without=without,
    )
    if not gold:
        return question
    answer = place.text(record, "answer")
    support = tuple(dict.fromkeys(_facts(record, place)))
    spans = () if answer in CLOSED else _locate(answer, question, support)
    return msgspec.structs.replace(question, answer=answer, support=support, answers=spans, impossible=answer in CLOSED)


def _paragraphs(record: Mapping[str, Any], place: Place) -> Iterator[tuple[str, list[str]]]:
    context = place.take(dict(record), "context", list)
    for number, pair in enumerate(context, start=1):
        match pair:
            case [str() as title, list() as texts] if all(isinstance(text, str) for text in texts):
                yield title, texts
            case _:
                place.inner(f"paragraph {number}").refuse("not a title and a list of sentences", place.remedy)


def _facts(record: Mapping[str, Any], place: Place) -> Iterator[Fact]:
    for number, pair in enumerate(place.take(dict(record), "supporting_facts", list), start=1):
        match pair:
            case [str() as title, int() as sentence]:
                yield title, sentence
            case _:
                place.inner(f"supporting fact {number}").refuse("not a title and a number", place.remedy)


def _locate(answer: str, question: HotpotQuestion, support: Sequence[Fact]) -> tuple[Answer, ...]:
    """Return the occurrence of an answer that is learned: in a supporting sentence, if there is one."""
    passage = question.passage
    inside = [
        passage.find(answer, sentence.start, sentence.end)
        for sentence in question.sentences
        if sentence.fact in support
    ]
    start = next((offset for offset in inside if offset >= 0), passage.find(answer))
    return (Answer(answer, start),) if start >= 0 else ()
