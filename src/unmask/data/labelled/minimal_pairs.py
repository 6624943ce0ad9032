"""Reader of minimal pairs: an acceptable sentence, and an unacceptable one that differs from it in little.

Input: BLiMP's JSON Lines (Warstadt et al. 2020), one pair a line, with `sentence_good`, `sentence_bad`, `UID` (the
paradigm) and `field`; a directory stands for all .jsonl files in it. Where a paradigm or a field is not stated, it is
named as the file. Output: pairs, in the order of the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from unmask.data.labelled.json_file import Place
from unmask.data.text.files import decode_line, display_name, files_of, read_text_lines
from unmask.support.errors import UserError

FORM = '{"sentence_good": TEXT, "sentence_bad": TEXT}, with "UID" (the paradigm) and "field" where there are several'
"""What a line is, for messages."""


class MinimalPair(msgspec.Struct, frozen=True):
    """An acceptable and an unacceptable sentence.

    Attributes:
        good, bad: the sentences.
        paradigm: the phenomenon that they differ in, BLiMP's UID.
        field: the field of linguistics that it belongs to.
        file, line: where the pair is.
    """

    good: str
    bad: str
    paradigm: str
    field: str
    file: str
    line: int


def read_pairs(paths: Sequence[str | Path], *, limit: int | None = None) -> list[MinimalPair]:
    """Read the pairs of some files.

    Args:
        paths: files, optionally compressed, or directories.
        limit: number of pairs of each paradigm that are read, the first ones; None: all.

    Raises:
        UserError: there are no pairs, a line is not one, or a paradigm is in two fields.
    """
    pairs, counts, fields = list[MinimalPair](), dict[str, int](), dict[str, str]()
    for path in files_of(paths, ["*.jsonl"]):
        name, own = display_name(path), Path(path).name.partition(".")[0]
        for number, line in read_text_lines(path):
            if not line.strip():
                continue
            place = Place(f"{name}:{number}", form="BLiMP's")
            record = {"UID": own, "field": own, **decode_line(line, name, number)}
            if missing := next((key for key in ("sentence_good", "sentence_bad") if key not in record), None):
                place.refuse(f"'{missing}' is missing", f"lines must be {FORM}")
            good, bad, paradigm, field = (
                place.text(record, key) for key in ("sentence_good", "sentence_bad", "UID", "field")
            )
            field = field.replace("/", "_")  # BLiMP has both syntax_semantics and syntax/semantics
            if fields.setdefault(paradigm, field) != field:
                place.refuse(f"the paradigm {paradigm} is in the fields {fields[paradigm]} and {field}", "correct one")
            counts[paradigm] = counts.get(paradigm, 0) + 1
            if limit is None or counts[paradigm] <= limit:
                pairs.append(MinimalPair(good, bad, paradigm, field, name, number))
    if not pairs:
        raise UserError("there are no pairs of sentences", file=", ".join(map(display_name, paths)))
    return pairs
