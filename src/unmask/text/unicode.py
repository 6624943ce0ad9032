"""Text that comes from a program or a command line, not from a file that was decoded."""

from __future__ import annotations

from collections.abc import Iterable

from unmask.errors import UserError


def check_unicode(texts: Iterable[str]) -> None:
    """Refuse what is no text, and half characters, which Python makes of bytes on the command line that are not UTF-8.

    Raises:
        UserError: something is no string, or has a lone surrogate, so that it cannot be written as UTF-8.
    """
    for text in texts:
        if not isinstance(text, str):
            raise UserError(f"{text!r:.60} is no text", remedy="give strings (of pairs the second ones as texts_b)")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 20) : error.start + 20].encode(errors="replace").decode()
            raise UserError(
                f"'{shown}': character {error.start + 1} of the text is no character (a lone surrogate)",
                remedy="give UTF-8",
            ) from error
