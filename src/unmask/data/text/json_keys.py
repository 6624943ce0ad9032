"""Refusal of JSON objects in which a key occurs twice: decoders use the last value and drop the other.

Input: a text in JSON, and what it was decoded to. Output: nothing, or an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

_KEY = re.compile(rb'"\s*:')


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary; the `object_pairs_hook` of untrusted files.

    Raises:
        ValueError: a key occurs twice.
    """
    table = dict(pairs)
    if len(table) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r:.60}")
    return table


def check_keys(text: str | bytes, value: Any) -> None:
    """Check that no object has a key twice.

    After a key is a colon, and before that a quotation mark; others are in strings. The text is decoded again, slowly,
    only if there are more of them than keys.

    Args:
        text: the text in JSON.
        value: what it was decoded to.

    Raises:
        ValueError: a key occurs twice.
        RecursionError: it is nested too deeply.
    """
    content = text.encode() if isinstance(text, str) else text
    number = _num_keys(value)
    if content.count(b":") > number and len(_KEY.findall(content)) > number:
        json.loads(content, object_pairs_hook=refuse_duplicates)


def _num_keys(value: Any) -> int:
    """Return the number of keys of all objects in a value."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    number = len(inside) if isinstance(value, dict) else 0
    for inner in inside:
        if isinstance(inner, (dict, list)):
            number += _num_keys(inner)
    return number
