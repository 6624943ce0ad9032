"""Tagging schemes for entities: detection of the scheme of a file, and conversion of entities to tags.

IOB1 (Ramshaw and Marcus 1995): B- only if an entity immediately follows another one of the same type; IOB2 (Tjong Kim
Sang and Veenstra 1999): B- on every first word; BIOES, also known as BMES, BMEWO and BILOU: different prefixes for
first, inner and last words and for entities of a single word. All are read by the same rules
(`metrics.token_classification.chunks`), so the scheme is needed only to count irregular entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from unmask.metrics.token_classification import Chunk, chunks, split_tag

Scheme = Literal["IOB1", "IOB2", "BIOES"]

PREFIXES = ("BI", "BIES", "BMES", "BMEW", "BILU")
"""Sets of prefixes that may occur in the same file."""


def write_tags(found: Sequence[Chunk], number: int, scheme: Scheme = "IOB2") -> list[str]:
    """Return the tags of `number` words for these entities, which must be in order and must not overlap."""
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


def detect_scheme(sentences: Sequence[Sequence[str]]) -> tuple[Scheme, list[int]]:
    """Detect the scheme in which the sentences of a file are tagged.

    Args:
        sentences: the tags of each sentence.

    Returns:
        The scheme that most entities conform to, and for each sentence the number of entities that do not.
    """
    roles = {split_tag(tag)[0] for tag in {tag for tags in sentences for tag in tags}}
    candidates: tuple[Scheme, ...] = ("BIOES",) if roles & {"E", "S"} else ("IOB2", "IOB1")
    counts = {scheme: [_irregular(tags, scheme) for tags in sentences] for scheme in candidates}
    best = min(candidates, key=lambda scheme: sum(counts[scheme]))
    return best, counts[best]


def _irregular(tags: Sequence[str], scheme: Scheme) -> int:
    """Count the entities that are tagged differently in this scheme."""
    found = chunks(tags)
    written = write_tags(found, len(tags), scheme)
    return sum(
        any(split_tag(tags[index]) != split_tag(written[index]) for index in range(chunk.start, chunk.stop))
        for chunk in found
    )
