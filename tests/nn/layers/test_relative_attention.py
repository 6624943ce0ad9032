"""Relative attention: distances, queries beside tokens, memory, local starts."""

from dataclasses import replace

import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.tokens import Reading
from unmask.nn.layers.relative import RelativeAttention, distance_table, fastest
from unmask.nn.layers.relative_kernels import fused, plain, views

WIDTH, HEADS = 64, 4


def attention_of(kernel=fastest, scale=0.3):
    torch.manual_seed(0)
    attention = RelativeAttention(WIDTH, HEADS, 0.0)
    attention.kernel = kernel
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return attention.double().eval()


def run(attention, tokens, memory=None, *, seed=0, **others):
    generator = torch.Generator().manual_seed(seed)
    count = len(tokens.ids) + len(tokens.reading.queries)
    x = torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)
    size = 0 if memory is None else memory.shape[1]
    longest = max(group.longest for group in tokens.groups)
    table = distance_table(size + longest, WIDTH, x)
    return attention(x, memory, table, views(tokens, size, None, x), **others)


def memory_of(sequences, size=6):
    return torch.randn(sequences, size, WIDTH, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_the_table_has_sines_and_cosines_of_distances():
    table = distance_table(4, 6, torch.zeros((), dtype=torch.float64))
    assert table.shape == (7, 6)
    frequencies = 10_000.0 ** -(torch.arange(0, 6, 2, dtype=torch.float64) / 6)
    for row, distance in zip(table, range(3, -4, -1), strict=True):
        torch.testing.assert_close(row, torch.cat([(distance * frequencies).sin(), (distance * frequencies).cos()]))


@pytest.mark.parametrize("lengths", [(5,), (1, 1), (3, 9, 9, 40, 41), (60, 60, 2)], ids=str)
def test_kernels_are_equal_in_both_directions_and_with_memory(ordered, lengths):
    tokens = collate(ordered(lengths, backward=[number % 2 for number in range(len(lengths))])).tokens
    for memory in (None, memory_of(len(lengths))):
        ours, theirs = (run(attention_of(kernel), tokens, memory) for kernel in (fused, plain))
        torch.testing.assert_close(ours, theirs)


def test_each_sequence_is_computed_as_if_alone(ordered):
    """Groups, padding and other directions make no difference."""
    samples = ordered((4, 7, 7, 30), backward=(0, 1, 0, 1))
    batch, memory = collate(samples), memory_of(4)
    attention = attention_of()
    x = torch.randn(len(batch.tokens.ids) + len(batch.tokens.reading.queries), WIDTH, dtype=torch.float64)

    def attend(tokens, x, memory):
        longest = max(group.longest for group in tokens.groups)
        table = distance_table(6 + longest, WIDTH, x)
        return attention(x, memory, table, views(tokens, 6, None, x))

    whole = attend(batch.tokens, x, memory)
    count = len(batch.tokens.ids)
    first, asked = 0, 0
    for number, (_, key) in enumerate(batch.keys):
        sample = samples[key]
        own = slice(first, first + len(sample))
        queries = slice(count + asked, count + asked + len(sample.positions["targets"]))
        alone = attend(collate([sample]).tokens, torch.cat([x[own], x[queries]]), memory[number : number + 1])
        torch.testing.assert_close(torch.cat([whole[own], whole[queries]]), alone)
        first, asked = own.stop, queries.stop - count


@pytest.mark.parametrize("kernel", [fused, plain])
@pytest.mark.parametrize("has_order", [False, True])
def test_sequences_in_a_common_row_do_not_attend_to_each_other(ordered, kernel, has_order):
    samples = [sample.changed(positions={}, labels={}) for sample in ordered((5, 30, 9, 20, 14, 3, 41))]
    if not has_order:
        samples = [sample.changed(reading=Reading()) for sample in samples]
    tokens, attention = collate(samples).tokens, attention_of(kernel)
    assert tokens.packed.sequences < len(tokens.offsets) - 1

    def run(tokens):
        x = torch.randn(len(tokens.ids), WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        seen = views(tokens, 0, None, x.requires_grad_())
        out = attention(x, None, distance_table(max(view.keys for view in seen), WIDTH, x), seen)
        return out, *torch.autograd.grad(out.square().sum(), [x, attention.distance.weight, attention.segments])

    expected = run(replace(tokens, packed=None))
    torch.testing.assert_close(run(tokens), expected)
    merged = replace(tokens.packed, owner=torch.zeros_like(tokens.packed.owner))
    with pytest.raises(AssertionError):  # the comparison notices sequences that are not kept apart
        torch.testing.assert_close(run(replace(tokens, packed=merged)), expected)


def test_only_queries_or_some_rows_are_the_same_rows(ordered):
    tokens, attention = collate(ordered((5, 9, 9))).tokens, attention_of()
    whole = run(attention, tokens)
    count = len(tokens.ids)
    torch.testing.assert_close(run(attention, tokens, queries_alone=True), whole[count:])
    rows = torch.tensor([3, 0, 20])
    torch.testing.assert_close(run(attention, tokens, rows=rows), whole[rows])


def test_memory_has_the_same_effect_as_being_part_of_the_sequence(ordered):
    """Keys, distances and segments are those of one longer sequence."""
    (sample,) = ordered((12,))
    sample = sample.changed(reading=replace(sample.reading, order=None), positions={}, segments=sample.segments * 0)
    attention, x = attention_of(), torch.randn(12, WIDTH, dtype=torch.float64)
    short = collate([sample.changed(ids=sample.ids[8:], segments=sample.segments[8:])]).tokens
    table = distance_table(12, WIDTH, x)
    whole = attention(x, None, table, views(collate([sample]).tokens, 0, None, x))
    later = attention(x[8:], x[None, :8], table, views(short, 8, None, x))
    torch.testing.assert_close(later, whole[8:])


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("backward", [False, True])
def test_a_local_start_attends_to_an_offset_in_the_text(ordered, offset, backward):
    (sample,) = ordered((21,), backward=(backward,))
    tokens = collate([sample.changed(reading=replace(sample.reading, order=None), positions={})]).tokens
    torch.manual_seed(0)
    attention = RelativeAttention(WIDTH, HEADS, 0.0)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    attention.attend_at((offset,))
    found = []

    def kernel(inputs, rows, dropout):
        one_hot = torch.eye(rows.group.longest).expand(HEADS, 1, -1, -1)
        found.append(plain(inputs._replace(values=one_hot), rows, dropout))
        return plain(inputs, rows, dropout)

    attention.kernel = kernel
    x = torch.nn.functional.layer_norm(torch.randn(21, WIDTH), (WIDTH,))
    attention(x, None, distance_table(21, WIDTH, x), views(tokens, 0, None, x))
    probabilities = found[0][:, 0, 10]  # (heads, keys)
    expected = 10 - offset if backward else 10 + offset
    assert int(probabilities[0].argmax()) == expected
    assert probabilities[0, expected] > 0.3 > 3 * probabilities[1:].amax()
