"""Make dialogues and questions about several paragraphs of SQuAD's questions, in QuAC's, CoQA's and HotpotQA's formats.

Input: questions of SQuAD. Output: JSON files as these data sets publish them. What is made:

- Dialogues about three sentences of different passages: about each, one or two of its questions in their order, names
  of the turns before replaced by "it", and then "When was that?" or "Is it said when that was?". One or two of the
  sentences have a year: which sentence is meant, and so what to answer, follows from the turns before alone.
- Questions that need two paragraphs: a question that one sentence answers by a name, "and in which hall is that shown?"
  A paragraph that is made up tells in which halls this name and three others are shown, and whether they are open. The
  others are in none of the sentences, so that a model need not understand the question, but must read both paragraphs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unmask.data.labelled.question_files import Question
from unmask.data.text.sentences import split_sentences

YEAR = re.compile(r"\b(?:1\d|20)\d\d\b")
TIME = re.compile(r"\b(?:when|years?|date|time)\b", re.IGNORECASE)
PROPER = re.compile(r"(?<=\s)[A-Z][\w.'-]+(?: [A-Z][\w.'-]+)*")
WORDS = range(6, 41)
"""Numbers of words that sentences may have."""
HELD = 4
"""One article in this many is held out to be scored."""
TOGETHER = 3
"""Number of sentences that are joined."""
NAMES = 4
"""Number of names in the paragraph that is made up."""
CLOSED = 0.3
"""Share of the questions about paragraphs that ask for yes or no."""
FORMS = ("quac", "coqa", "hotpotqa", "guide", "unsupported")
"""What can be made."""
GUIDE = "Guide"
"""Title of the paragraph that is made up."""


class Source(NamedTuple):
    """A sentence of a passage, its only year or "", and pairs of a question and an answer that is in it."""

    text: str
    year: str
    asked: tuple[tuple[str, str], ...]


class Turn(NamedTuple):
    """A question, its answer in a sentence ("": it has none), and what the answer means."""

    question: str
    sentence: str
    answer: str
    yesno: str = "x"
    followup: str = "n"


def held_out(questions: Iterable[Question]) -> tuple[list[Question], list[Question]]:
    """Return the questions about some articles and those about the others, which are held out."""
    parts: tuple[list[Question], list[Question]] = ([], [])
    for one in questions:
        parts[int(one.place.split(",")[0].split()[1]) % HELD == 1].append(one)
    return parts


def write_made(form: str, path: Path, questions: Sequence[Question]) -> Path:
    """Write what is made of some questions.

    Args:
        form: "quac", "coqa" or "hotpotqa"; of the latter also "guide", without the paragraphs beside the one that is
            made up, and "unsupported", without the sentences that support the answers.
        path: the file.
        questions: what it is made of.
    """
    content: Any
    sources = _sources(questions)
    if form in ("quac", "coqa"):
        write = _quac if form == "quac" else _coqa
        content = {"data": [write(f"d{number}", *one) for number, one in enumerate(_dialogues(sources))]}
    else:
        content = list(_bridges(sources))
        for one in content:
            one["context"] = [pair for pair in one["context"] if form != "guide" or pair[0] == GUIDE]
            one["supporting_facts"] = [] if form == "unsupported" else one["supporting_facts"]
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf8")
    return path


def _sources(questions: Sequence[Question]) -> list[Source]:
    """Return the sentences with questions that are not about time, in a fixed random order."""
    asked: dict[tuple[str, str], dict[str, str]] = {}
    for one in questions:
        for sentence, start in _located(one.passage):
            answer = one.answers[0]
            if answer.start is not None and start <= answer.start <= start + len(sentence) - len(answer.text):
                asked.setdefault((one.passage, sentence), {}).setdefault(one.question.strip(), answer.text)
    sources = []
    for (_, text), pairs in asked.items():
        years = YEAR.findall(text)
        kept = tuple(
            (question, answer)
            for question, answer in pairs.items()
            if not TIME.search(question) and not YEAR.search(question + answer)
        )
        if len(years) < 2 and len(text.split()) in WORDS and kept:
            sources.append(Source(text, "".join(years), kept[:2]))
    random.Random(0).shuffle(sources)
    return sources


def _located(passage: str) -> Iterator[tuple[str, int]]:
    start = 0
    for sentence in split_sentences(passage):
        start = passage.index(sentence, start)
        yield sentence, start


def _dialogues(sources: Sequence[Source]) -> Iterator[tuple[str, list[Turn]]]:
    """Yield texts and turns: of the sentences of a text one or two have a year, not the same one."""
    rng = random.Random(1)
    dated = [one for one in sources if one.year]
    undated = [one for one in sources if not one.year]
    while min(len(dated), len(undated)) >= TOGETHER:
        years = rng.randint(1, TOGETHER - 1)
        chosen = [(dated if number < years else undated).pop() for number in range(TOGETHER)]
        if len({one.year for one in chosen if one.year}) == years:
            turns = [turn for one in chosen for turn in _talk(one, rng)]
            rng.shuffle(chosen)
            yield " ".join(one.text for one in chosen), turns


def _talk(source: Source, rng: random.Random) -> Iterator[Turn]:
    before = ""
    for question, answer in source.asked:
        yield Turn(_shortened(question, before), source.text, answer, followup="y" if source.year else "n")
        before += f" {question} {answer}"
    if rng.random() < 0.5:
        yield Turn("When was that?", source.text, source.year, followup="m")
    else:
        yield Turn("Is it said when that was?", source.text, source.year, "y" if source.year else "n", "m")


def _shortened(question: str, before: str) -> str:
    """Return a question with the longest name of the turns before as a pronoun."""
    names = [name for name in PROPER.findall(question) if name in before]
    return question.replace(max(names, key=len), "it", 1) if names else question


def _quac(name: str, text: str, turns: Sequence[Turn]) -> dict[str, Any]:
    context, questions = f"{text} CANNOTANSWER", []
    for number, turn in enumerate(turns):
        answer = turn.answer or "CANNOTANSWER"
        start = context.index(answer, context.index(turn.sentence) if turn.answer else 0)
        span = {"text": answer, "answer_start": start}
        known = {"id": f"{name}_q#{number}", "question": turn.question, "yesno": turn.yesno, "followup": turn.followup}
        questions.append({**known, "answers": [span], "orig_answer": span})
    return {"title": name, "paragraphs": [{"id": name, "context": context, "qas": questions}]}


def _coqa(name: str, text: str, turns: Sequence[Turn]) -> dict[str, Any]:
    answers = []
    for number, turn in enumerate(turns, start=1):
        free = {"y": "yes", "n": "no", "x": turn.answer or "unknown"}[turn.yesno]
        start, end, span = -1, -1, "unknown"
        if free != "unknown":
            start, span = text.index(turn.sentence), turn.sentence
            end = start + len(span)
        rationale = {"span_start": start, "span_end": end, "span_text": span}
        answers.append({"input_text": free, "turn_id": number, **rationale})
    questions = [{"input_text": turn.question, "turn_id": number} for number, turn in enumerate(turns, start=1)]
    return {"id": name, "source": "wikipedia", "story": text, "questions": questions, "answers": answers}


def _bridges(sources: Sequence[Source]) -> Iterator[dict[str, Any]]:
    """Yield records of HotpotQA's files: a text that answers a question, another text, and a guide to some names."""
    rng = random.Random(2)
    named = [(one.text, *one.asked[0]) for one in sources if _is_name(*one.asked[0])]
    for number, (text, question, name) in enumerate(named):
        other = named[number - 1][0]
        strange = [it for _, _, it in named if it not in text + other and name not in it and it not in name]
        if name in other or len(set(strange)) < NAMES - 1:
            continue
        names = [name, *rng.sample(sorted(set(strange)), NAMES - 1)]
        rng.shuffle(names)
        halls, states = rng.sample(range(10, 100), NAMES), rng.choices(("open", "closed"), k=NAMES)
        facts = zip(names, halls, states, strict=True)
        lines = [f"{it} is shown in hall {hall}, which is {state}." for it, hall, state in facts]
        texts = [text, other] if rng.random() < 0.5 else [other, text]
        context = [[f"Text {place}", [it]] for place, it in enumerate(texts, start=1)]
        at, closed, stem = names.index(name), rng.random() < CLOSED, question.rstrip(" ?")
        yield {
            "_id": f"b{number}",
            "question": f"{stem}, and {'is the hall of that open' if closed else 'in which hall is that shown'}?",
            "answer": ("yes" if states[at] == "open" else "no") if closed else str(halls[at]),
            "type": "comparison" if closed else "bridge",
            "level": "medium",
            "context": [*context, [GUIDE, [lines[0], *(f" {line}" for line in lines[1:])]]],
            "supporting_facts": [[f"Text {texts.index(text) + 1}", 0], [GUIDE, at]],
        }


def _is_name(question: str, answer: str) -> bool:
    return answer[0].isupper() and len(answer.split()) <= 4 and answer not in question
