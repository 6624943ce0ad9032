"""An encoder that distinguishes words, and labeled texts of which some labels are wrong."""

import numpy as np
import pytest

from unmask.inference.backend import TorchBackend
from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.training.machine import choose_machine

NAMES = ("dog", "cat", "house", "river")
"""Words that determine the labels of texts."""
OTHERS = "near the sea old town behind school under tree after rain before noon".split()  # noqa: SIM905


@pytest.fixture
def encoder(tmp_path, recipe, tokenizer):
    """An encoder whose random weights are large enough to distinguish words."""
    shape = recipe.encoder.__class__(layers=1, width=96, heads=2, feed_forward=64, positions=64, init_std=0.2)
    save_model(tmp_path / "encoder", Model(build_encoder(shape, tokenizer.size), tokenizer), "")
    return tmp_path / "encoder"


@pytest.fixture
def backend(encoder):
    """What computes with it."""
    return TorchBackend(load_model(encoder), choose_machine("cpu", "float32"))


def texts_of(classes, rng, size=2):
    """Return different texts, each with the words of some classes, (texts, classes) bool."""
    texts = []
    for number, row in enumerate(classes):
        words = [NAMES[at] for at in np.flatnonzero(row)] + rng.choice(OTHERS, size).tolist()
        texts.append(" ".join(rng.permutation(words)) + f" {number}")
    return texts


@pytest.fixture
def planted():
    """Returns texts of three classes, their labels, and which labels are wrong."""

    def plant(number=240, rate=0.1, seed=0):
        rng = np.random.default_rng(seed)
        true = np.arange(number) % 3
        wrong = rng.random(number) < rate
        labels = np.where(wrong, (true + rng.integers(1, 3, number)) % 3, true)
        return texts_of(np.eye(3, dtype=bool)[true], rng), [NAMES[label] for label in labels], wrong

    return plant
