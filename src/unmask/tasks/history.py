"""The history of a dialogue in the input: earlier turns before the question, or their answers marked in the passage.

Input: questions with the earlier turns of their dialogues. Output: what is asked about the passage of each.

Prepended: [CLS] question [SEP] answer [SEP] … question [SEP] passage [SEP], with the current question last (Reddy et
al. 2019 also put earlier turns before it: gen_seq2seq_data.py of stanfordnlp/coqa-baselines). Marked: the question
alone, and the earlier answers enclosed in [MASK] tokens in the passage. Choi et al. 2018 (dialog_qa.py of AllenNLP) and
Qu et al. 2019 ("history answer embedding") add an embedding to the tokens of earlier answers instead, which needs a
body of its own; a token works with any body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from unmask.data.labelled.dialogue_files import DialogueQuestion, Turn
from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.support.errors import UserError, check_unicode
from unmask.tasks.passage_windows import Asked


class History(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [task.history].

    Attributes:
        turns: maximum number of earlier turns that are read, the last ones; 0: none.
        form: where: "prepended" to the question, or "marked" in the passage, which shows answers alone.
    """

    turns: int = 2
    form: Literal["prepended", "marked"] = "prepended"

    def __post_init__(self) -> None:
        if self.turns < 0:
            raise ValueError("turns must not be negative")
        if not self.turns and self.form == "marked":
            raise ValueError("form has no effect without turns")


def ask_in_dialogue(
    tokenizer: Tokenizer, examples: Sequence[DialogueQuestion], history: History, most: int
) -> tuple[list[Asked], tuple[str, ...]]:
    """Return what is asked in each example, and messages for the user about turns that were left out.

    Args:
        tokenizer: the tokenizer.
        examples: the questions.
        history: how the earlier turns are read.
        most: maximum number of tokens of a question and its history; the oldest turns that do not fit are left out.
    """
    recent = [question.history[max(0, len(question.history) - history.turns) :] for question in examples]
    texts = {text: None for example, turns in zip(examples, recent, strict=True) for text in _texts(example, turns)}
    ids = dict(zip(texts, tokenizer.encode_many(list(texts)), strict=True))
    separator = np.array([tokenizer.sep], np.int32)
    counts: Counter[str] = Counter()
    asked = []
    for example, turns in zip(examples, recent, strict=True):
        question = ids[example.question]
        cut, question, marked = len(question) > most, question[:most], list[tuple[int, int]]()
        if history.form == "marked":
            marked = [(turn.start, turn.end) for turn in turns if turn.start is not None and turn.end is not None]
            counts["earlier answers not marked because they are not in the passage"] += len(turns) - len(marked)
        else:
            earlier = [[part for text in _parts(turn) for part in (ids[text], separator)] for turn in turns]
            question, left_out = _prepend(earlier, question, most)
            counts[f"earlier turns left out because they exceed {most} tokens"] += left_out
            counts["earlier turns without an answer"] += sum(not turn.answer for turn in turns)
        asked.append(Asked(question, cut, tuple(dict.fromkeys(marked))))
    return asked, tuple(f"{what}: {count:,}" for what, count in counts.items() if count)


def as_turns(history: Sequence[tuple[str, str]], passage: str) -> tuple[Turn, ...]:
    """Return questions and answers as turns; answers are located at their first occurrence in the passage.

    Raises:
        UserError: a question is empty, or the history does not consist of pairs.
    """
    if any(isinstance(pair, str) or len(pair) != 2 for pair in history):
        raise UserError("the history does not consist of pairs", remedy="give a question and its answer for each turn")
    check_unicode(text for pair in history for text in pair)
    if not all(question.strip() for question, _ in history):
        raise UserError("a question in the history is empty", remedy="remove it")
    turns = []
    for question, answer in history:
        start = passage.find(answer) if answer else -1
        turns.append(Turn(question, answer, *((start, start + len(answer)) if start >= 0 else ())))
    return tuple(turns)


def describe_history(example: DialogueQuestion) -> str:
    """Return the earlier turns as text, one line each."""
    return "\n".join(f"{turn.question} — {turn.answer}" for turn in example.history)


def _texts(example: DialogueQuestion, turns: Sequence[Turn]) -> list[str]:
    return [example.question, *(text for turn in turns for text in _parts(turn))]


def _parts(turn: Turn) -> tuple[str, ...]:
    return (turn.question, turn.answer) if turn.answer else (turn.question,)


def _prepend(turns: Sequence[Sequence[Ids]], question: Ids, most: int) -> tuple[Ids, int]:
    """Return the last turns that fit before a question, with it, and the number of turns that do not fit."""
    parts, length = [question], len(question)
    for number, turn in enumerate(reversed(turns)):
        length += sum(map(len, turn))
        if length > most:
            return np.concatenate(parts), len(turns) - number
        parts = [*turn, *parts]
    return np.concatenate(parts), 0
