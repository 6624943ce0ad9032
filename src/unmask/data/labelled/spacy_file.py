"""Reader of `.spacy`, the binary training data of spaCy.

Input: a file of `DocBin`. Output: texts with the spans of the entities. It needs the package spacy, which knows the
hashes of the strings; tokens of spaCy are not used, so that training and prediction split texts alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from unmask.data.labelled.spans import Annotated, Span
from unmask.data.text.files import display_name, refuse_encoding
from unmask.support.errors import UserError


def read_spacy(path: str | Path, *, gold: bool) -> Iterator[Annotated]:
    """Yield the texts of a file, with spans if `gold`; they are numbered from 1.

    Raises:
        UserError: spacy is not installed, the file is damaged, or an encoding is part of its path.
    """
    refuse_encoding(path)
    name = display_name(path)
    try:
        spacy = import_module("spacy")
        archive = import_module("spacy.tokens").DocBin()
    except ImportError as error:
        raise UserError(
            "needs the package spacy", file=name, remedy="pip install spacy, or convert the file to JSON tuples"
        ) from error
    try:
        documents = list(archive.from_disk(path).get_docs(spacy.blank("xx").vocab))
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"cannot be read as .spacy ({error})", file=name) from error
    for number, document in enumerate(documents, 1):
        spans = [Span(one.start_char, one.end_char, one.label_, one.text) for one in document.ents] if gold else []
        if document.text.strip() or not gold:
            yield Annotated(document.text, spans, name, number)
