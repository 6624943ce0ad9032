"""The tokens of a text as a model reads it, special tokens included, with their offsets in the text.

Input: one text or a pair. Output: the sample that an encoder reads, and the spelling and offsets of each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.text.unicode import check_unicode
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.errors import UserError

SPECIAL = -1
"""Index that stands for the text of special tokens."""


class Token(msgspec.Struct, frozen=True):
    """A token of a text or of a pair of texts.

    Attributes:
        token: the token as spelled in the vocabulary.
        start, end: offsets in its text, in code points, `end` exclusive; both 0 for special tokens.
        text: 0 if it belongs to the first text, 1 to the second one, `SPECIAL` for the special tokens around them.
    """

    token: str
    start: int
    end: int
    text: int


def frame_tokens(tokenizer: Tokenizer, texts: Sequence[str], longest: int) -> tuple[Sample, list[Token]]:
    """Return one text, or two, as a sample, and its tokens.

    Args:
        tokenizer: the model's.
        texts: one or two texts.
        longest: the maximum number of tokens, special tokens included.

    Raises:
        UserError: there are more tokens, or a text is not valid Unicode.
    """
    check_unicode(texts)
    frame, encoded = Frame.of(tokenizer), [tokenizer.encode_offsets(text) for text in texts]
    names = _wrap(frame, [ids for ids, _ in encoded])
    if len(names) > longest:
        raise UserError(
            f"'{texts[0][:40]}…' has {len(names)} tokens, but at most {longest} can be read", remedy="shorten it"
        )
    unread = replace(frame, cls=SPECIAL, sep=SPECIAL, extract=None if frame.extract is None else SPECIAL)
    order = [np.arange(len(ids)) for ids, _ in encoded]
    index, text = _wrap(unread, order), _wrap(unread, [np.full(len(ids), n) for n, (ids, _) in enumerate(encoded)])
    tokens = []
    for spelling, place, number in zip(tokenizer.tokens(names), index.tolist(), text.tolist(), strict=True):
        start, end = (0, 0) if number == SPECIAL else encoded[number][1][place]
        tokens.append(Token(spelling, start, end, number))
    return frame.wrap(*(ids for ids, _ in encoded)), tokens


def _wrap(frame: Frame, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Return one number per token of the framed texts."""
    return replace(frame, spell=lambda ids: ids).wrap(*texts).ids
