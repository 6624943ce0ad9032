"""The exact search for the best spans of a passage, given the logits of their starts and ends."""

from __future__ import annotations

import numpy as np


def best_spans(starts: np.ndarray, ends: np.ndarray, longest: int, number: int) -> list[tuple[float, int, int]]:
    """Return the spans of at most `longest` tokens with the highest sums of logits, unordered.

    Args:
        starts, ends: logits, each (tokens,).
        longest: maximum length of a span in tokens.
        number: maximum number of spans.

    Returns:
        The score, the first token and the last token of each span.
    """
    tokens = len(starts)
    if not tokens:
        return []
    width = min(longest, tokens)
    beyond = np.full(width - 1, -np.inf, ends.dtype)
    band = np.lib.stride_tricks.sliding_window_view(np.concatenate([ends, beyond]), width)  # (tokens, width)
    scores = (band + starts[:, None]).ravel()  # (tokens * width,): by start, then by end - start
    chosen = np.argpartition(-scores, min(number, scores.size) - 1)[:number]
    return [
        (float(scores[index]), int(index // width), int(index // width + index % width))
        for index in chosen
        if scores[index] > -np.inf
    ]
