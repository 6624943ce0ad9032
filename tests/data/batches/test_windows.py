"""Windows of a batch: every token once, in order, with the tokens of the same window."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.frame import cut_windows


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 25))
def test_windows_cover_all_tokens_in_order(lengths, size):
    samples = [
        Sample(key=(number,), ids=100 * number + np.arange(length), segments=np.arange(length) % 3)
        for number, length in enumerate(lengths)
    ]
    tokens = collate(samples).tokens
    windows = list(cut_windows(tokens, size))
    assert torch.cat([window.index for window in windows]).sort().values.tolist() == list(range(len(tokens.ids)))
    assert len(windows) == -(-max(lengths) // size)
    for number, window in enumerate(windows):
        part, start = window.tokens, number * size
        assert torch.equal(part.ids, tokens.ids[window.index])
        assert torch.equal(part.segments, tokens.segments[window.index])
        assert torch.equal(part.position_ids + start, tokens.position_ids[window.index])
        expected = [min(size, length - start) for length in sorted(lengths) if length > start]
        assert part.offsets.diff().tolist() == expected
        assert sum(group.sequences for group in part.groups) == len(expected)
        assert [group.stop for group in part.groups][-1] == len(part.ids)
