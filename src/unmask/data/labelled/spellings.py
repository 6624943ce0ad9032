"""Labels that people see as the same: `Positive` and `positive `, `1` and `1.0`, composed and decomposed letters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation

QUOTES = "\"'`´‘’‚‛“”„‟«»‹›「」『』"
TRUTH = {"true": "1", "false": "0"}
"""As pandas and spreadsheets write numbers and truth values into one column."""
LONGEST_NUMBER = 40
MOST_SHOWN = 5
_INVISIBLE = ("Cf", "Cc", "Mn")
"""Categories of characters that cannot be seen alone: formats, controls; of marks only variation selectors count."""


def fold_label(label: str) -> str:
    """Return what is the same for labels that differ only in what people hardly see.

    That is Unicode composition, case, invisible characters, surrounding spaces and quotation marks, runs of spaces, and
    how a number or a truth value is written.
    """
    visible = "".join(character for character in unicodedata.normalize("NFC", label) if not _is_invisible(character))
    folded = " ".join(visible.casefold().split())
    while folded and (folded[0] in QUOTES or folded[-1] in QUOTES):
        folded = folded.strip(QUOTES).strip()
    folded = unicodedata.normalize("NFC", folded)
    return TRUTH.get(folded) or _as_number(folded) or folded


def _is_invisible(character: str) -> bool:
    category = unicodedata.category(character)
    if category == "Mn":
        return 0xFE00 <= ord(character) <= 0xFE0F or 0xE0100 <= ord(character) <= 0xE01EF or character == "\u034f"
    return category in _INVISIBLE and not character.isspace()


def _as_number(text: str) -> str | None:
    """Return a number in one way of writing; None if the text is not one."""
    if not text.isascii() or len(text) > LONGEST_NUMBER or not any(character.isdigit() for character in text):
        return None
    with suppress(InvalidOperation, ValueError):
        number = Decimal(text)
        if number.is_finite():
            return str(number.normalize() + 0) if number else "0"
    return None


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of different labels that people see as the same, in order of first appearance."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(fold_label(label), {}).setdefault(label)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def describe_alike(counts: Mapping[str, int], what: str = "labels") -> list[str]:
    """Return a note about each group of labels that look the same, with their numbers of examples.

    Args:
        counts: number of examples by label.
        what: what they are called.
    """
    groups = alike(counts)
    notes = [
        f"{what} that look the same: " + ", ".join(f"{shown(label)} ({counts[label]:,})" for label in group)
        for group in groups[:MOST_SHOWN]
    ]
    if len(groups) > MOST_SHOWN:
        notes.append(f"{len(groups) - MOST_SHOWN:,} more groups of {what} look the same")
    return notes


def shown(label: str) -> str:
    """Return a label in quotation marks, with the code points of what cannot be seen or is not composed."""
    hidden = [
        f"U+{ord(character):04X}"
        for place, character in enumerate(label)
        if not character.isprintable()
        or unicodedata.combining(character)
        or _is_invisible(character)
        or (character.isspace() and (character != " " or place in (0, len(label) - 1)))
    ]
    return f"'{label}'" + (f" [{' '.join(dict.fromkeys(hidden))}]" if hidden else "")
