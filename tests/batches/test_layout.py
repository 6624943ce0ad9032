"""Stages follow each other and share out the steps of a run without rest."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.batches.layout import LayoutSettings
from unmask.batches.stages import Stage, stage_at, stage_ends


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 200))
def test_every_step_has_one_stage_and_every_stage_its_share(weights, total):
    shares = [weight / sum(weights) for weight in weights]
    stages = [Stage(share=share, length=8) for share in shares]
    numbers = [stage_at(stages, step, total) for step in range(total)]
    assert numbers == sorted(numbers)
    counts = Counter(numbers)
    assert [sum(counts[place] for place in range(end + 1)) for end in range(len(stages))] == stage_ends(stages, total)
    assert all(abs(counts[place] - share * total) <= 1 for place, share in enumerate(shares))


@pytest.mark.parametrize(("total", "ends"), [(1_000_000, [900_000, 1_000_000]), (10, [9, 10]), (1, [1, 1])])
def test_stages_of_the_paper(total, ends):
    assert stage_ends([Stage(share=0.9, length=128), Stage(share=0.1, length=512)], total) == ends


def test_a_length_is_one_stage():
    assert LayoutSettings(length=64).all_stages == (Stage(share=1.0, length=64),)
    assert [stage_at(LayoutSettings(length=64).all_stages, step, 5) for step in range(5)] == [0] * 5
