"""Reader of brat's standoff format: a text, and its annotations in a file of the same name that ends in `.ann`.

Input: a `.ann` or `.txt` file, or a folder of them, searched at any depth. Output: a text with spans per file. A line
`T1 TAB LABEL START END TAB TEXT` is a span; `START END;START END` is one of several parts, which words with tags cannot
express. A line `R1 TAB LABEL Arg1:T1 Arg2:T2` is a relation, if they are wanted. Events, attributes, normalizations and
notes are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from unmask.data.labelled.spans import Annotated, Link, Reading, Span
from unmask.data.text.files import (
    MAX_JSON,
    decode_text,
    display_name,
    encoding_of,
    open_bytes,
    read_at_most,
    read_text_lines,
    with_encoding,
)
from unmask.support.errors import UserError

_BOUND = re.compile(r"(T\S*)\t(.+?) (\d+ \d+(?:;\d+ \d+)*)(?:\t(.*))?")
_RELATION = re.compile(r"R\S*\t(\S+) \S+:(\S+) \S+:(\S+)\s*")
_OTHER = re.compile(r"[ERAMN*#]\S*\t")


def is_brat(path: str | Path) -> bool:
    """Return whether a path is a text with annotations beside it, annotations, or a folder that contains such files."""
    path = Path(path)
    if path.is_dir():
        return next(path.rglob("*.ann"), None) is not None
    if path.suffix == ".ann":
        return True
    return path.suffix == ".txt" and path.with_suffix(".ann").is_file()


def read_brat(path: str | Path, reading: Reading, *, gold: bool) -> Iterator[Annotated]:
    """Yield the texts of a file or folder, with spans if `gold`.

    Raises:
        UserError: a line is malformed, or annotations have no text.
    """
    encoding, path = encoding_of(path), Path(path)
    texts = sorted({one.with_suffix(".txt") for one in path.rglob("*.ann")}) if path.is_dir() else []
    if path.is_dir():
        without = [one for one in sorted(path.rglob("*.txt")) if not one.with_suffix(".ann").is_file()]
        if gold and without:
            reading.omitted["texts without a file of annotations"] += len(without)
        elif not gold:
            texts = sorted([*texts, *without])
    for text in texts or [path.with_suffix(".txt")]:
        annotations = text.with_suffix(".ann")
        if not text.is_file():
            raise UserError(f"there is no text {text.name} beside it", file=annotations)
        content = _read(with_encoding(text, encoding))
        annotated = with_encoding(annotations, encoding)
        spans = list(_read_spans(annotated, content, reading)) if gold else []
        links = list(_read_links(annotated, reading)) if gold and reading.relations else ()
        if not content.strip():
            reading.omitted["empty texts"] += gold
            if gold:
                continue
        yield Annotated(content, spans, str(annotations if gold else text), 1, links=links)


def _read(path: str | Path) -> str:
    """Return a text as it is: line ends count as they are written."""
    with open_bytes(path) as stream:
        raw = read_at_most(stream, MAX_JSON + 1)
    if len(raw) > MAX_JSON:
        raise UserError(f"has more than {MAX_JSON:,} bytes", file=path)
    return decode_text(raw, display_name(path))


def _read_spans(path: str | Path, text: str, reading: Reading) -> Iterator[Span]:
    for number, line in read_text_lines(path):
        if not line.strip() or _OTHER.match(line):
            continue
        bound = _BOUND.fullmatch(line)
        if bound is None:
            raise UserError(
                f"'{line[:60]}' is not a line of annotations",
                file=path,
                line=number,
                remedy="spans must be T1 TAB LABEL START END TAB TEXT",
            )
        name, label, places, stated = bound.groups()
        parts = [tuple(map(int, place.split())) for place in places.split(";")]
        if any(text[before[1] : part[0]].strip() for before, part in pairwise(parts)):  # else only a line end
            reading.inexpressible("discontinuous spans", "annotate a contiguous part of the text", number)
            continue
        yield Span(parts[0][0], parts[-1][1], label, stated, number, name)


def _read_links(path: str | Path, reading: Reading) -> Iterator[Link]:
    """Yield the relations; events and symmetric relations of any number of spans are counted.

    Raises:
        UserError: a line is malformed.
    """
    for number, line in read_text_lines(path):
        if line.startswith(("E", "*")):
            reading.omitted["events" if line.startswith("E") else "relations without a direction (*)"] += 1
        elif line.startswith("R"):
            relation = _RELATION.fullmatch(line)
            if relation is None:
                raise UserError(
                    f"'{line[:60]}' is not a relation",
                    file=path,
                    line=number,
                    remedy="relations must be R1 TAB LABEL Arg1:T1 Arg2:T2",
                )
            yield Link(relation[1], relation[2], relation[3], number)
