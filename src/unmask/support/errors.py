"""Errors for users.

The command line prints these errors on one line, without a traceback, and exits with their `status`. Other exceptions
are bugs, and are shown with a traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from os import PathLike
from typing import Any

from unmask.support.messages import Front, Reference, argument, in_python, marked, name_keys, rendered, speak

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, ends of lines, what reverses the direction of writing, and lone surrogates."""


class UnmaskError(Exception):
    """An error that the user did not cause (a full disk, a loss that is repeatedly not finite).

    `str(error)` is the message as Python users read it: parameters by their names.

    Args:
        message: description of the problem, with references to parameters and settings (`support.messages`).
    """

    status = 1
    shown = False
    """Whether the user has already read it, from another process."""

    def __init__(self, message: str = "") -> None:
        self.message = message
        super().__init__(rendered(message, in_python))

    def text(self, front: Front) -> str:
        """Return the message as a front writes it."""
        return rendered(self.message, front)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.message), self.__dict__


class UserError(UnmaskError):
    """An error that the user can fix.

    Args:
        message: description of the problem, without a period at the end.
        file: the file in question; None or "": none.
        line: line number, starting from 1.
        remedy: how to fix it.
    """

    status = 2

    def __init__(
        self, message: str, *, file: str | PathLike[str] | None = None, line: int | None = None, remedy: str = ""
    ) -> None:
        location = "" if not file else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(location + message + (f"; {remedy}" if remedy else ""))


def rename(error: UnmaskError, file: str | PathLike[str], name: str) -> None:
    """Let an error name a file otherwise, such as by the URL that it is a copy of."""
    UnmaskError.__init__(error, error.message.replace(str(file), name))


@contextmanager
def keys_of(file: object, *names: str) -> Iterator[None]:
    """Let errors and notes write parameters as keys of a file, such as `format = "csv"`, whichever the front.

    Args:
        file: a path, if the parameters are read from a file; anything else: nothing is changed.
        *names: the parameters.
    """
    if not isinstance(file, str | PathLike):
        yield
        return

    def write(reference: Reference) -> str:
        return rendered(name_keys(marked(reference), names), front)

    front = speak(write)
    try:
        yield
    except UnmaskError as error:
        if (message := name_keys(error.message, names)) != error.message:
            UnmaskError.__init__(error, f"{message} (in {file})")
        raise
    finally:
        speak(front)


def _restored(kind: type[UnmaskError], message: str) -> UnmaskError:
    """Return an error that another process has raised."""
    error = kind.__new__(kind, message)
    UnmaskError.__init__(error, message)
    return error


class EmptySource(UserError):
    """Files, or a table, have no examples, or no document that can be read."""


class InputWarning(UserWarning):
    """A warning to users, of what may make results wrong: files that lack something, weights that are not trained."""


class InputNote(InputWarning):
    """A note to users, of what makes no results wrong: texts that were not read completely, engines that failed."""


class SharedDirectoryWarning(InputWarning):
    """A warning that others can change the files of a model."""


def printable(text: str) -> str:
    """Return a text in which control characters are escaped, so that a terminal shows and does not obey them.

    Texts of users and names of files appear in messages; a line end in them would forge another message.
    """
    return _CONTROLS.sub(lambda control: control[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 document" or "2,000 documents"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def counted_as(number: int, description: str) -> str:
    """Return a number with a description in the plural, whose first word that ends in s, not us or ss, is the noun."""
    if number == 1:
        description = re.sub(r"(ies|(?<![us])s)\b", lambda end: "y" if end[0] == "ies" else "", description, count=1)
    return f"{number:,} {description}"


SINGULAR = {"are": "is", "were": "was", "have": "has"}
"""Verbs of several examples, and of one."""


class ShareNote(str):
    """A note about a number of examples, such as "2 of 8 texts are empty"; those of several windows can be added.

    Args:
        number: the number of examples that it is about.
        total: the number of all examples.
        statement: the noun, and what is said of these examples, in the plural: its verbs can be `SINGULAR`; "":
            nothing, which tells how large a window is that the next notes are about.
    """

    number: int
    total: int
    statement: str

    def __new__(cls, number: int, total: int, statement: str) -> ShareNote:
        """Return the note, as text with its numbers."""
        said = statement
        if number == 1:
            said = re.sub(rf"\b({'|'.join(SINGULAR)})\b", lambda verb: SINGULAR[verb[0]], said)
        note = super().__new__(cls, f"{number:,} of {counted_as(total, said)}")
        note.number, note.total, note.statement = number, total, statement
        return note

    def __getnewargs__(self) -> tuple[int, int, str]:  # type: ignore[override]
        return self.number, self.total, self.statement


def check_count(name: str, number: Any, least: int = 1, most: int | None = None) -> None:
    """Check the value of a parameter that is a number of examples, processes, attempts or the like.

    Args:
        name: the parameter.
        number: its value; None: it has none.
        least: the smallest number that it can be.
        most: the largest one; None: there is none.

    Raises:
        UserError: it is another one, or no whole number.
    """
    if number is None:
        return
    if not isinstance(number, Integral) or int(number) < least or (most is not None and int(number) > most):
        numbers = f"of {least} or more" if most is None else f"from {least} to {most:,}"
        raise UserError(f"{argument(name, number)}: not a whole number {numbers}")


def refuse_idle(reason: str, remedy: str = "", /, **parameters: object) -> None:
    """Raise an error if parameters have values, but no effect.

    Args:
        reason: why, as it follows "has no effect": "without …", "on …", or ": …".
        remedy: what to do; "": omit them.
        **parameters: their values; those that are None, False, 0 or empty have none.

    Raises:
        UserError: one has a value.
    """
    if idle := [argument(name) for name, value in parameters.items() if value]:
        verb, them = ("has", "it") if len(idle) == 1 else ("have", "them")
        space = "" if reason.startswith(":") else " "
        raise UserError(f"{', '.join(idle)} {verb} no effect{space}{reason}", remedy=remedy or f"omit {them}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the most similar `known` name, or a list of all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def refuse_string(texts: Iterable[str]) -> None:
    """Raise an error for a single string in place of several, as its characters would be taken for texts.

    Raises:
        UserError: `texts` is a string.
    """
    if isinstance(texts, str):
        raise UserError(
            f"'{texts[:40]}' is one text", remedy="give an iterable of texts, such as the lines of an open file"
        )


def check_unicode(texts: Iterable[object]) -> None:
    """Check that texts are strings that can be encoded as UTF-8.

    Python decodes bytes of the command line that are not UTF-8 to lone surrogates, which cannot be encoded.

    Raises:
        UserError: a text is not a string, or contains a lone surrogate.
    """
    for text in texts:
        if not isinstance(text, str):
            pairs = ", and the second texts of pairs as texts_b" if isinstance(text, list | tuple) else ""
            raise UserError(f"{text!r:.60} is not a string", remedy=f"pass strings{pairs}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 20) : error.start + 20].encode(errors="replace").decode()
            raise UserError(
                f"'{shown}': character {error.start + 1} of the text is a lone surrogate, not a valid character",
                remedy="pass UTF-8",
            ) from error
