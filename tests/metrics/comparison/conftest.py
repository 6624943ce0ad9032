"""Planted scores of arms."""

import pytest

from unmask.metrics.comparison.multibootstrap import Scores


@pytest.fixture
def planted():
    """A function that returns scores of arms in percent, with normal effects of seeds, examples and both."""

    def draw(rng, means, *, seeds=5, examples=300, seed_effect=1.0, example_effect=20.0, noise=20.0, lowest=None):
        common = rng.normal(0, example_effect, examples)
        arms = {}
        for number, mean in enumerate(means):
            effects = rng.normal(0, seed_effect, (seeds, 1)) + common + rng.normal(0, noise, (seeds, examples))
            arms[f"arm-{number}"] = Scores(range(seeds), (mean + effects)[..., None], lowest=lowest)
        return arms

    return draw
