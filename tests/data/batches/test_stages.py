"""Stages are consecutive and partition the steps of a run."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.sources import Stage, stage_at, stage_ends


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 200))
def test_every_step_has_one_stage_and_every_stage_its_share(weights, total):
    shares = [weight / sum(weights) for weight in weights]
    stages = [Stage(share=share, length=8) for share in shares]
    numbers = [stage_at(stages, step, total) for step in range(total)]
    assert numbers == sorted(numbers)
    counts = Counter(numbers)
    assert [sum(counts[index] for index in range(end + 1)) for end in range(len(stages))] == stage_ends(stages, total)
    assert all(abs(counts[index] - share * total) <= 1 for index, share in enumerate(shares))


@pytest.mark.parametrize(("total", "ends"), [(1_000_000, [900_000, 1_000_000]), (10, [9, 10]), (1, [1, 1])])
def test_stages_of_the_paper(total, ends):
    assert stage_ends([Stage(share=0.9, length=128), Stage(share=0.1, length=512)], total) == ends
