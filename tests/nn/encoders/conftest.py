"""Texts of very different lengths, with labels for two tasks."""

import numpy as np
import pytest

from unmask.data.batches.frame import Frame

LENGTHS = (3, 40, 5, 61, 17, 17, 1, 30, 9, 55)


@pytest.fixture
def samples():
    rng, frame = np.random.default_rng(0), Frame(cls=2, sep=3)
    made = []
    for number, length in enumerate(LENGTHS):
        sample = frame.wrap(rng.integers(5, 100, length)).named((0, number))
        labels = {"classification": rng.integers(0, 3, 1), "regression": rng.random(1, np.float32)}
        made.append(sample.add(labels=labels))
    return made
