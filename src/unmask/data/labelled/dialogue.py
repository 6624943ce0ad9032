"""Questions in dialogues about a passage, as the readers of QuAC and CoQA return them."""

from __future__ import annotations

import msgspec

from unmask.data.labelled.squad_file import Question


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
