"""Schemes in which tags spell entities: which one a file is written in, and how each writes an entity.

IOB1 (Ramshaw and Marcus 1995): B- only where an entity follows another one of its type at once; IOB2 (Tjong Kim Sang
and Veenstra 1999): B- on every first word; BIOES, also as BMES, BMEWO and BILOU: first, inner and last words and
entities of a single word told apart. All are read by the same rules (`metrics.token_classification.chunks`), so which
one it is matters only to say what is irregular in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from unmask.metrics.token_classification import Chunk, chunks, split_tag

Scheme = Literal["IOB1", "IOB2", "BIOES"]

PREFIXES = ("BI", "BIES", "BMES", "BMEW", "BILU")
"""What occurs together in one file."""


def write_tags(found: Sequence[Chunk], number: int, scheme: Scheme = "IOB2") -> list[str]:
    """Return the tags of `number` words that spell these entities, which are in order and do not overlap."""
    tags = ["O"] * number
    before = Chunk("", -1, -1)
    for chunk in found:
        inner = chunk.stop - chunk.start - 1
        if scheme == "BIOES":
            roles = "B" + "I" * (inner - 1) + "E" if inner else "S"
        else:
            follows = (before.type, before.stop) == (chunk.type, chunk.start)
            roles = ("B" if scheme == "IOB2" or follows else "I") + "I" * inner
        tags[chunk.start : chunk.stop] = [f"{role}-{chunk.type}" for role in roles]
        before = chunk
    return tags


def recognise(sentences: Sequence[Sequence[str]]) -> tuple[Scheme, list[int]]:
    """Say in which scheme the sentences of a file are tagged.

    Args:
        sentences: the tags of each.

    Returns:
        The scheme that fits most entities, and how many of each sentence's it does not fit.
    """
    roles = {split_tag(tag)[0] for tag in {tag for tags in sentences for tag in tags}}
    candidates: tuple[Scheme, ...] = ("BIOES",) if roles & {"E", "S"} else ("IOB2", "IOB1")
    counts = {scheme: [_irregular(tags, scheme) for tags in sentences] for scheme in candidates}
    best = min(candidates, key=lambda scheme: sum(counts[scheme]))
    return best, counts[best]


def _irregular(tags: Sequence[str], scheme: Scheme) -> int:
    """Count entities that the scheme would write otherwise."""
    found = chunks(tags)
    written = write_tags(found, len(tags), scheme)
    return sum(
        any(split_tag(tags[place]) != split_tag(written[place]) for place in range(chunk.start, chunk.stop))
        for chunk in found
    )
