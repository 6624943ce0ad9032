"""What can go wrong for a user, said clearly.

The command line prints these errors in one line, without a traceback, and exits with their `status`.
A mistake of ours raises whatever it raises, with its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike


class UnmaskError(Exception):
    """What the user did not cause (a full disk, a loss that is not finite again and again)."""

    status = 1


class UserError(UnmaskError):
    """What the user can mend.

    Args:
        message: what is wrong, without a full stop at the end.
        file: the file in question.
        line: its line, counted from 1.
        remedy: what to do about it.
    """

    status = 2

    def __init__(
        self, message: str, *, file: str | PathLike[str] | None = None, line: int | None = None, remedy: str = ""
    ) -> None:
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(place + message + (f"; {remedy}" if remedy else ""))


class InputWarning(UserWarning):
    """What a model was asked in Python and did not read whole: texts that were cut, texts that are empty; counted."""


def counted(number: int, noun: str) -> str:
    """Write a number and its noun: 1 document, 2,000 documents."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which of the `known` names was probably meant, or list them all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def refuse_string(texts: Iterable[str]) -> None:
    """Refuse one string where several are wanted: its letters would be taken for them.

    Raises:
        UserError: it is one.
    """
    if isinstance(texts, str):
        raise UserError(
            f"'{texts[:40]}' is one text", remedy="give an iterable of texts, such as the lines of an open file"
        )
