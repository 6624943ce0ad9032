"""What tokens and queries see: the order, memory, padding, directions, segments; and which distances they read."""

from dataclasses import replace

import numpy as np
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.tokens import Reading
from unmask.nn.layers.relative_kernels import views


def seen(rows):
    """Return which keys rows attend to, (sequences, longest, keys)."""
    return rows.mask == 0


def test_tokens_see_ranks_up_to_their_own_and_queries_only_lower_ones(ordered):
    samples = ordered((7, 7, 7))
    (view,) = views(collate(samples).tokens, 0, None, torch.zeros(()))
    for number, sample in enumerate(samples):
        order = sample.reading.order
        assert np.array_equal(seen(view.tokens)[number], order[None] <= order[:, None])
        targets = sample.positions["targets"]
        assert np.array_equal(seen(view.queries)[number, : len(targets)], order[None] < order[targets, None])
    assert view.queries.seeing.all()


def test_without_an_order_all_tokens_see_each_other_and_no_padding(ordered):
    samples = [
        sample.changed(reading=replace(sample.reading, order=None), positions={}) for sample in ordered((3, 9, 9))
    ]
    (view,) = views(collate(samples).tokens, 0, None, torch.zeros(()))
    assert view.queries is None
    assert seen(view.tokens).sum(-1).tolist() == [[3], [9], [9]]
    same = [sample.changed(reading=Reading(), positions={}) for sample in ordered((9, 9))]
    (view,) = views(collate(same).tokens, 0, None, torch.zeros(()))
    assert view.tokens.mask is None


def test_memory_is_seen_as_far_as_it_exists(ordered):
    tokens = collate(ordered((6, 6, 6))).tokens
    (view,) = views(tokens, 4, torch.tensor([0, 3, 4]), torch.zeros(()))
    for rows in (view.tokens, view.queries):
        assert seen(rows)[:, :, :4].sum(-1)[:, 0].tolist() == [0, 3, 4]
        assert seen(rows)[1, :, :4].tolist() == [[False, True, True, True]] * rows.group.longest
    (whole,) = views(tokens, 4, None, torch.zeros(()))
    assert seen(whole.tokens)[:, :, :4].all()


def test_a_query_that_sees_nothing_is_marked(ordered):
    (sample,) = ordered((3,))
    alone = sample.changed(
        reading=replace(sample.reading, order=np.array([0, 1, 2])), positions={"targets": np.array([0, 2])}
    )
    (view,) = views(collate([alone]).tokens, 0, None, torch.zeros(()))
    assert view.queries.seeing.view(-1).tolist() == [False, True]


def test_segments_are_compared_and_memory_belongs_to_the_first(ordered):
    samples = ordered((8, 8))
    (view,) = views(collate(samples).tokens, 2, None, torch.zeros(()))
    for number, sample in enumerate(samples):
        own = sample.segments
        expected = np.concatenate([np.zeros(2, np.int64), own])[None] != own[:, None]
        assert np.array_equal(view.tokens.other[number], expected)
        targets = sample.positions["targets"]
        assert np.array_equal(view.queries.other[number, : len(targets)], expected[targets])


def test_directions_are_in_groups_of_their_own_with_negated_distances(ordered):
    tokens = collate(ordered((5, 5, 5, 5), backward=(0, 1, 0, 1))).tokens
    forward, backward = views(tokens, 3, None, torch.zeros(()))
    assert [view.group.backward for view in (forward, backward)] == [False, True]
    assert [view.sequences for view in (forward, backward)] == [slice(0, 2), slice(2, 4)]
    most = 12  # a table may be for longer sequences
    table = torch.arange(most - 1, -most, -1.0)[:, None]
    for view, sign in ((forward, 1), (backward, -1)):
        found = view.distances(table, most)[:, 0]
        assert len(found) == 5 + view.keys - 1
        for row in range(5):
            for key in range(-3, 5):
                assert found[4 - row + 3 + key] == sign * (row - key)
