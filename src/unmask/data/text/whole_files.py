"""Files beside the weights of a model, text or JSON, that are read whole and written whole.

Input: their paths. Output: their content, or an error that names the file: it cannot be read, is too large, is not
UTF-8 or not JSON, or has a key twice, of which decoders use the last value and drop the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.data.text.files import read_whole
from unmask.data.text.json_keys import refuse_duplicates
from unmask.support.durable import replace_file
from unmask.support.errors import UserError


def read_text(path: Path) -> str:
    """Read a text.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_whole(path).decode()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    except UnicodeDecodeError as error:
        raise UserError("is not UTF-8", file=path) from error


def read_value(path: Path) -> Any:
    """Read any value in JSON.

    Raises:
        UserError: the file cannot be read, is not JSON, or has a key twice.
    """
    try:
        return json.loads(read_text(path), object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not valid JSON ({error})", file=path) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        UserError: see `read_value`; or it is no object.
    """
    content = read_value(path)
    if not isinstance(content, dict):
        raise UserError("does not contain a JSON object", file=path)
    return content


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from an optional file; return an empty one if the file does not exist.

    Raises:
        UserError: see `read_object`.
    """
    return read_object(path) if path.exists() else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, indented for reading."""
    replace_file(path, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())
