"""What tasks over labelled rows share: rows of one text or two as samples, and a tenth of them held out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import NamedTuple

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.rng import derive_rng
from unmask.errors import UserError
from unmask.labelled.labelled_file import NAMES, Row
from unmask.tasks.mistake import Passage
from unmask.tasks.task import DEV_SHARE
from unmask.text.unicode import check_unicode
from unmask.tokenizers.tokenizer import Ids, Tokenizer


def as_rows(texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Row]:
    """Return texts, or pairs of them, as rows without a label.

    Raises:
        UserError: not as many second texts as first ones, or one is no Unicode.
    """
    texts, texts_b = list(texts), None if texts_b is None else list(texts_b)
    check_unicode(chain(texts, texts_b or ()))
    if texts_b is None:
        return [Row({"text": text}, "", 0) for text in texts]
    if len(texts) != len(texts_b):
        raise UserError(f"{len(texts)} texts and {len(texts_b)} second texts are no pairs")
    return [Row({"text": one, "text_b": other}, "", 0) for one, other in zip(texts, texts_b, strict=True)]


def are_pairs(rows: Sequence[Row], wanted: bool | None = None) -> bool:
    """Say whether rows are pairs of texts.

    Args:
        rows: all pairs, or none.
        wanted: what they must be, as a model has learnt from nothing else; None: either.

    Raises:
        UserError: some are pairs and some are not, or they are not what is wanted; names file and line.
    """
    if wanted is None:
        wanted = bool(rows) and "text_b" in rows[0].values
        known = f"the first example is {'a pair of texts' if wanted else 'one text'}"
    else:
        known = f"the model has learnt from {'pairs of texts' if wanted else 'single texts'}"
    for row in rows:
        if ("text_b" in row.values) != wanted:
            raise UserError(
                f"{'one text' if wanted else 'a pair of texts'}, but {known}",
                file=row.file or None,
                line=row.line or None,
                remedy="give the second text: a column text_b, or --text-b" if wanted else "leave the second text away",
            )
    return wanted


class FramedRows(NamedTuple):
    """Rows as samples.

    Attributes:
        samples: one for each row, its key (0, its number).
        cut: of each row, whether it was cut to fit.
        notes: how many were cut, and how many have nothing to read, a line each.
    """

    samples: list[Sample]
    cut: list[bool]
    notes: tuple[str, ...]


def frame_rows(tokenizer: Tokenizer, rows: Sequence[Row], length: int, *, pairs: bool | None = None) -> FramedRows:
    """Return rows, all of one text or all of two, as samples of at most `length` tokens.

    Raises:
        UserError: see `are_pairs`; `length` has no room for text.
    """
    frame = Frame.of(tokenizer)
    pairs = are_pairs(rows, pairs)
    if (room := frame.capacity(length, texts=1 + pairs)) < 1:
        special = length - room
        raise UserError(
            f"task.length is {length}, but a pair has {special} special tokens",
            remedy=f"pass --set task.length={special + 2} or more",
        )
    columns = [tokenizer.encode_many([row.values[name] for row in rows]) for name in NAMES[: 1 + pairs]]
    made, cut = [], []
    for number, texts in enumerate(zip(*columns, strict=True)):
        sample, kept = cut_and_wrap(frame, texts, length)
        cut.append(sum(kept) < sum(map(len, texts)))
        made.append(sample.named((0, number)))
    empty = sum(
        not all(len(ids) and row.values[name].strip() for ids, name in zip(texts, NAMES, strict=False))
        for row, *texts in zip(rows, *columns, strict=True)
    )
    counts = {
        f"{'pairs' if pairs else 'texts'} are longer than {length} tokens and were cut": sum(cut),
        "pairs have an empty text" if pairs else "texts are empty": empty,
    }
    notes = tuple(f"{count:,} of {len(rows):,} {what}" for what, count in counts.items() if count)
    return FramedRows(made, cut, notes)


def cut_and_wrap(frame: Frame, texts: Sequence[Ids], length: int) -> tuple[Sample, tuple[int, ...]]:
    """Return a text, or a pair, as a sample of at most `length` tokens, and how many of each text's tokens it holds."""
    first, *second = map(len, texts)
    kept = cut_longer(first, sum(second), frame.capacity(length, texts=len(texts)))[: len(texts)]
    return frame.wrap(*(ids[:here] for ids, here in zip(texts, kept, strict=True))), kept


def cut_longer(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how much of two texts is kept where the last token of the longer one goes until both fit.

    Of equally long ones the second loses (`_truncate_seq_pair` of google-research/bert). transformers differs by one
    token where both are cut and `room` is odd: there the longer one, or the second, keeps one more.
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return room - half, half


def hold_out(rows: Sequence[Row], strata: Sequence[Hashable], seed: int) -> tuple[list[Row], list[Row]]:
    """Split a seeded tenth off, the same share of each stratum.

    Args:
        rows: to split.
        strata: of each row, its label for example.
        seed: decides which.

    Returns:
        The rows to train on, and those to score on.

    Raises:
        UserError: too few rows.
    """
    by_stratum: dict[Hashable, list[int]] = {}
    for index, stratum in enumerate(strata):
        by_stratum.setdefault(stratum, []).append(index)
    chosen: set[int] = set()
    seen = 0
    for place, numbers in enumerate(by_stratum.values()):
        seen += len(numbers)
        wanted = round(DEV_SHARE * seen) - len(chosen)  # of small strata by turns one or none
        most = min(math.ceil(DEV_SHARE * len(numbers)), len(numbers) - 1)  # what rare ones owe is not a small one's
        order = derive_rng(seed, "dev", place).permutation(len(numbers))
        chosen.update(numbers[rank] for rank in order[: min(wanted, most)])
    if not chosen:
        few = f"{len(rows)} examples are too few to hold a tenth out"
        if len(by_stratum) == len(rows) > 1 / DEV_SHARE:
            few = f"each of {len(rows)} examples has another label"
        raise UserError(few, file=rows[0].file, remedy="pass --dev FILE (numbers are learnt by: finetune regression)")
    train = [row for index, row in enumerate(rows) if index not in chosen]
    return train, [row for index, row in enumerate(rows) if index in chosen]


def passages(row: Row) -> tuple[Passage, ...]:
    """Return the texts of a row for whoever reads them."""
    if "text_b" not in row.values:
        return (Passage(row.values["text"]),)
    return (Passage(row.values["text"], "first text"), Passage(row.values["text_b"], "second text"))
