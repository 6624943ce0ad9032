"""Spellings of labels: those that people see as the same, and those that may be no labels.

Input: labels, with the number of examples of each, and texts. Output: notes. Alike are `Positive` and `positive `, `1`
and `1.0`, composed and decomposed letters. Labels and texts that may be none are what programs write for missing
values; labels may also be several in one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation

MAYBE_MISSING = frozenset(("NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "\\N", "?", "-"))
"""What R, spreadsheets, databases, Python and SNLI write for a missing value, and what may be the name of a class."""
NO_CLASS = "-1"
"""What data sets of the Hub have in place of the number of a missing class."""
MISSING_TEXTS = MAYBE_MISSING | {"NaN", "nan", "<NA>"}
"""What they and data frames write for a missing text."""
_JOINED = re.compile(r"\s*(?:[,;|/+&\s]|\band\b)\s*")
"""What may be between two labels."""
QUOTES = "\"'`´‘’‚‛“”„‟«»‹›「」『』"
_DASH = re.compile("[\u2010-\u2015\u2212]")
TRUTH = {"true": "1", "false": "0"}
"""As pandas and spreadsheets write numbers and truth values into one column."""
LONGEST_NUMBER = 40
MOST_SHOWN = 5
_INVISIBLE = ("Cf", "Cc", "Mn")
"""Categories of characters that cannot be seen alone: formats, controls; of marks only variation selectors count."""


def fold_label(label: str) -> str:
    """Return what is the same for labels that differ only in what people hardly see.

    That is Unicode composition, full-width and other compatible forms, case, invisible characters, surrounding spaces
    and quotation marks, runs of spaces, kinds of dashes, and how a number or a truth value is written.
    """
    dashed = _DASH.sub("-", unicodedata.normalize("NFKC", label))
    visible = "".join(character for character in dashed if not _is_invisible(character))
    folded = " ".join(visible.casefold().split())
    while folded and (folded[0] in QUOTES or folded[-1] in QUOTES):
        folded = folded.strip(QUOTES).strip()
    folded = unicodedata.normalize("NFC", folded)
    return TRUTH.get(folded) or _as_number(folded) or folded


def alike(labels: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of different labels that people see as the same, in order of first appearance."""
    groups: dict[str, dict[str, None]] = {}
    for label in labels:
        groups.setdefault(fold_label(label), {}).setdefault(label)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def describe_alike(counts: Mapping[str, int]) -> list[str]:
    """Return a note about each group of labels that look the same, given the number of examples of each label."""
    groups = alike(counts)
    notes = [
        "labels that look the same, but are learned as different ones: "
        + ", ".join(f"{shown(label)} ({counts[label]:,})" for label in group)
        for group in groups[:MOST_SHOWN]
    ]
    if len(groups) > MOST_SHOWN:
        notes.append(f"{len(groups) - MOST_SHOWN:,} more groups of labels look the same")
    return notes


def describe_missing(counts: Mapping[str, int], *, several: bool = False) -> list[str]:
    """Return a note about labels that may be missing values.

    Args:
        counts: the number of examples of each label.
        several: whether a text may have several labels, or none.
    """
    remedy = "remove these rows, or for no label leave these cells empty" if several else "remove these rows"
    found = {label: counts[label] for label in counts if _may_be_missing(label, counts)}
    return _describe_missing("labels", found, remedy)


def _may_be_missing(label: str, labels: Collection[str]) -> bool:
    """Return whether one of the labels may be a missing one; - beside +, and -1 beside 0 and 1 alone, are classes."""
    if label == NO_CLASS:
        return {"0", "1", "2"}.issubset(labels)
    return label in MAYBE_MISSING and not (label == "-" and "+" in labels)


def describe_missing_texts(texts: Iterable[str]) -> list[str]:
    """Return a note about texts that may be missing values."""
    return _describe_missing("texts", Counter(text for text in texts if text in MISSING_TEXTS), "remove these rows")


def _describe_missing(what: str, counts: Mapping[str, int], remedy: str) -> list[str]:
    found = ", ".join(f"'{value}' ({count:,})" for value, count in counts.items())
    return [f"{what} that may stand for a missing one: {found}; if so, {remedy}"] if found else []


def describe_joined(counts: Mapping[str, int]) -> list[str]:
    """Return a note about labels that are several others, given the number of examples of each label."""
    joined = [label for label in counts if len(parts := _JOINED.split(label)) > 1 and all(map(counts.get, parts))]
    some = ", ".join(f"{shown(label)} ({counts[label]:,})" for label in joined[:MOST_SHOWN])
    more = f", and {len(joined) - MOST_SHOWN:,} more" if len(joined) > MOST_SHOWN else ""
    what = "labels that consist of others, each of which is learned as one of its own"
    return [f"{what}: {some}{more}"] if joined else []


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
