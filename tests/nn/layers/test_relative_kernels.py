"""Relative attention: the fused kernel beside the plain one, and beside the terms written out key by key."""

import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.nn.layers import relative_kernels
from unmask.nn.layers.relative_kernels import Inputs, fused, plain, views

from .conftest import assert_same

HEADS, WIDTH = 3, 8
LENGTHS = (1, 2, 9, 9, 14)


def view_of(ordered, lengths=LENGTHS, memory=0, dtype=torch.float64):
    """Return what tokens and queries attend to; a sequence remembers 0 to `memory` tokens."""
    tokens = collate(ordered(lengths)).tokens
    remembered = torch.arange(len(lengths)) % (memory + 1)
    (view,) = views(tokens, memory, remembered if memory else None, torch.zeros((), dtype=dtype))
    return view


def inputs_of(view, rows, dtype=torch.float64, segments=True):
    random = torch.Generator().manual_seed(1)
    shapes = {
        "content": (HEADS, rows.group.sequences, rows.group.longest, WIDTH),
        "position": (HEADS, rows.group.sequences, rows.group.longest, WIDTH),
        "segment": (HEADS, rows.group.sequences, rows.group.longest, 1),
        "keys": (HEADS, rows.group.sequences, view.keys, WIDTH),
        "values": (HEADS, rows.group.sequences, view.keys, WIDTH),
        "distances": (HEADS, view.group.longest + view.keys - 1, WIDTH),
    }
    made = {
        name: torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        for name, shape in shapes.items()
    }
    return Inputs(**made | ({} if segments else {"segment": None}))


def run(kernel, inputs, rows, dropout=0.0):
    """Return the output of a kernel, and the gradients of all inputs; what is padding counts for nothing."""
    torch.manual_seed(0)
    out = kernel(inputs, rows, dropout)
    weights = torch.randn(out.shape, dtype=torch.float64).to(out.dtype)
    if rows.group.real is not None:
        weights = weights * rows.group.real[:, :, None]
    given = [x for x in inputs if x is not None]
    return out.detach()[weights.bool()], *torch.autograd.grad((out * weights).sum(), given)


@pytest.mark.parametrize("memory", [0, 5])
@pytest.mark.parametrize("stream", ["tokens", "queries"])
@pytest.mark.parametrize("chunk", [1 << 20, 1], ids=["at once", "head by head"])
def test_the_fused_kernel_equals_the_plain_one(ordered, monkeypatch, stream, memory, chunk):
    monkeypatch.setitem(relative_kernels.CHUNK, "cpu", chunk)
    view = view_of(ordered, memory=memory)
    rows = getattr(view, stream)
    for segments in (True, False):
        inputs = inputs_of(view, rows, segments=segments)
        assert_same(run(fused, inputs, rows), run(plain, inputs, rows))


@pytest.mark.parametrize("stream", ["tokens", "queries"])
def test_recomputed_probabilities_are_the_same(ordered, monkeypatch, stream):
    view = view_of(ordered, memory=3)
    rows = getattr(view, stream)
    inputs = inputs_of(view, rows)
    for dropout in (0.0, 0.3):
        kept = run(fused, inputs, rows, dropout)
        with monkeypatch.context() as patch:
            patch.setattr(relative_kernels, "MANY_KEYS", 1)
            assert_same(run(fused, inputs, rows, dropout), kept, atol=0)


def test_gradients_are_those_of_differences(ordered):
    view = view_of(ordered, (3, 5), memory=2)
    for rows in (view.tokens, view.queries):
        inputs = inputs_of(view, rows)

        def compute(*values, rows=rows):
            return fused(Inputs(*values), rows, 0.0)

        assert torch.autograd.gradcheck(compute, tuple(inputs), fast_mode=True)


@pytest.mark.parametrize("stream", ["tokens", "queries"])
def test_scores_are_the_four_terms_of_each_key(ordered, stream):
    """Content, distance, segment and what is hidden, for single keys, by their formulas."""
    view = view_of(ordered, memory=4)
    rows, group = getattr(view, stream), view.group
    inputs = inputs_of(view, rows)
    samples = sorted(ordered(LENGTHS), key=len)
    out = plain(inputs, rows, 0.0)
    for number, sample in enumerate(samples):
        positions = range(len(sample)) if stream == "tokens" else sample.positions["targets"]
        for row, place in enumerate(positions):
            scores = []
            for key in range(-4, len(sample)):
                known = key >= -(number % 5) and (key < 0 or _sees(sample, place, key, stream == "tokens"))
                differs = sample.segments[place] != (0 if key < 0 else sample.segments[key])
                distance = inputs.distances[:, group.longest - 1 + 4 + key - place]  # (heads, head width)
                score = (inputs.content[:, number, row] * inputs.keys[:, number, 4 + key]).sum(1)
                score += (inputs.position[:, number, row] * distance).sum(1)
                score += differs * inputs.segment[:, number, row, 0]
                scores.append(score if known else torch.full_like(score, -torch.inf))
            scores = torch.stack(scores, 1)  # (heads, keys)
            if scores.isinf().all():
                continue
            expected = scores.softmax(1)[:, None] @ inputs.values[:, number, : 4 + len(sample)]
            torch.testing.assert_close(out[:, number, row], expected[:, 0])


def _sees(sample, place, key, is_token):
    own, other = sample.reading.order[place], sample.reading.order[key]
    return other <= own if is_token else other < own


def test_in_bf16_it_is_close_to_exact_attention(ordered):
    view, exact_view = view_of(ordered, memory=5, dtype=torch.bfloat16), view_of(ordered, memory=5)
    for stream in ("tokens", "queries"):
        rows, exact = getattr(view, stream), getattr(exact_view, stream)
        found = run(fused, inputs_of(view, rows, torch.bfloat16), rows)
        for ours, theirs in zip(found, run(plain, inputs_of(view, exact), exact), strict=True):
            assert ours.dtype == torch.bfloat16
            assert (ours.double() - theirs).norm() < 0.03 * theirs.norm()


def test_dropout_keeps_the_mean(ordered):
    view = view_of(ordered, (6, 6))
    rows = view.tokens
    inputs = inputs_of(view, rows)
    inputs = inputs._replace(values=torch.ones_like(inputs.values))
    torch.manual_seed(0)
    for kernel in (fused, plain):
        found = torch.stack([kernel(inputs, rows, 0.5) for _ in range(300)])
        assert found.std() > 0.1
        torch.testing.assert_close(found.mean(0), torch.ones_like(found[0]), rtol=0, atol=0.2)
