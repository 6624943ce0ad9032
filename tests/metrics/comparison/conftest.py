"""Planted scores of arms, and scores of arms on resamples of the examples."""

import numpy as np
import pytest

from unmask.metrics.comparison.multibootstrap import Resampled


def resample(arms, *, resamples=2000, seed=0, lowest=None):
    """Return arms on the same resamples, as products of random weights and their values, (seeds, examples) by name."""
    (number,) = {values.shape[1] for values in arms.values()}
    weights = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), resamples) / number
    return {
        name: Resampled(tuple(range(len(values))), values.mean(1), values @ weights.T, number, lowest)
        for name, values in arms.items()
    }


@pytest.fixture
def planted():
    """A function that returns values of arms in percent, with normal effects of seeds, examples and both."""

    def draw(rng, means, *, seeds=5, examples=300, seed_effect=1.0, example_effect=20.0, noise=20.0):
        common = rng.normal(0, example_effect, examples)
        arms = {}
        for number, mean in enumerate(means):
            effects = rng.normal(0, seed_effect, (seeds, 1)) + common + rng.normal(0, noise, (seeds, examples))
            arms[f"arm-{number}"] = mean + effects
        return arms

    return draw
