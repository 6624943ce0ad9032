"""Validation of text that comes from a program or a command line rather than from a decoded file."""

from __future__ import annotations

from collections.abc import Iterable

from unmask.support.errors import UserError


def check_unicode(texts: Iterable[str]) -> None:
    """Check that texts are strings that can be encoded as UTF-8.

    Python decodes bytes of the command line that are not UTF-8 to lone surrogates, which cannot be encoded.

    Raises:
        UserError: a text is not a string, or contains a lone surrogate.
    """
    for text in texts:
        if not isinstance(text, str):
            raise UserError(
                f"{text!r:.60} is not a string", remedy="pass strings (for pairs, the second texts as texts_b)"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 20) : error.start + 20].encode(errors="replace").decode()
            raise UserError(
                f"'{shown}': character {error.start + 1} of the text is a lone surrogate, not a valid character",
                remedy="pass UTF-8",
            ) from error
