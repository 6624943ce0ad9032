"""Cross-entropy over the vocabulary in chunks: equal to the direct computation, without storing all logits."""

import subprocess
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from unmask.nn.layers import vocabulary
from unmask.nn.layers.vocabulary import BLOCK, count_correct, draw, log_probabilities, vocabulary_loss


def inputs(rows=50, width=16, size=300, dtype=torch.float64):
    shapes = (rows, width), (size, width), (size,)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes], torch.randint(size, (rows,))


def gradients(loss, tensors, scale=0.3):
    return torch.autograd.grad(loss * scale, tensors)


def relative(value, expected):
    return float((value - expected).norm() / expected.norm())


@pytest.mark.parametrize("chunk", [1, 300, 7 * 300 + 1, 1 << 23])
def test_loss_gradients_and_accuracy_equal_the_direct_computation(monkeypatch, chunk):
    monkeypatch.setitem(vocabulary.CHUNK, "cpu", chunk)
    tensors, gold = inputs()
    logits = linear(*tensors)
    gold[:20] = logits[:20].argmax(1)
    expected = cross_entropy(logits, gold, reduction="sum")
    loss, correct = vocabulary_loss(*tensors, gold)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss.dtype == torch.float32
    assert int(correct) == int((logits.argmax(1) == gold).sum()) >= 20
    for ours, theirs in zip(gradients(loss, tensors), gradients(expected, tensors), strict=True):
        assert relative(ours, theirs) < 1e-6


def test_bf16_is_accurate_up_to_rounding():
    tensors, gold = inputs(dtype=torch.bfloat16)
    exact = [value.detach().double().requires_grad_() for value in tensors]
    loss, _ = vocabulary_loss(*tensors, gold)
    expected = cross_entropy(linear(*exact), gold, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=2e-3)
    for ours, theirs in zip(gradients(loss, tensors), gradients(expected, exact), strict=True):
        assert relative(ours.double(), theirs) < 0.02


def test_without_targets():
    tensors, gold = inputs(rows=0)
    loss, correct = vocabulary_loss(*tensors, gold)
    assert (loss.item(), int(correct)) == (0, 0)
    assert not any(gradient.any() for gradient in gradients(loss, tensors))


def test_the_loss_of_a_probability_of_0_is_finite():
    """exp(-1000) is 0 in float32; the loss is 87 nats then, and its gradient still has the right direction."""
    decoder = torch.tensor([[1000.0], [0.0]])
    rows = torch.ones(1, 1, requires_grad=True)
    loss, _ = vocabulary_loss(rows, decoder, torch.zeros(2), torch.tensor([1]))
    assert 80 < loss.item() < 90
    assert gradients(loss, [rows], 1.0)[0].tolist() == [[1000.0]]


def test_evaluation_keeps_no_gradient():
    tensors, gold = inputs()
    with torch.no_grad():
        loss, _ = vocabulary_loss(*tensors, gold)
    assert not loss.requires_grad


PEAK = """
import resource, torch
from unmask.nn.layers.vocabulary import vocabulary_loss
torch.set_num_threads(1)
decoder = torch.randn(30522, 8, requires_grad=True)
for rows in (100, 1000):
    states = torch.randn(rows, 8, requires_grad=True)
    vocabulary_loss(states, decoder, torch.zeros(30522), torch.zeros(rows, dtype=torch.int64))[0].backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_targets():
    """The logits of 1,000 targets alone would take 110 MB more than those of 100."""
    few, many = map(int, subprocess.check_output([sys.executable, "-c", PEAK]).split())
    assert many - few < 60


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lowest", [0, -3, -2000])
@pytest.mark.parametrize("values", [1, 2, 3, 1000])
def test_of_equal_logits_the_first_wins(values, lowest, dtype):
    """Whether all logits of a row are above 0, some of them, or none."""
    logits = torch.randint(lowest, lowest + values, (500, 7)).to(dtype)
    gold = torch.randint(7, (500,))
    expected = sum(row.index(max(row)) == right for row, right in zip(logits.tolist(), gold.tolist(), strict=True))
    assert int(count_correct(logits, gold)) == expected > 0


def rows_of_probabilities(rows, size, dtype=torch.float32):
    return (torch.randn(rows, size) * 3).to(dtype).softmax(1), torch.rand(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 30522])
def test_draws_are_the_inverse_of_the_cumulative_sum(size, dtype):
    probabilities, uniform = rows_of_probabilities(200, size, dtype)
    drawn = draw(probabilities, uniform)
    sums = probabilities.double().cumsum(1)
    wanted, at = uniform * sums[:, -1], drawn[:, None]
    above = sums.gather(1, at).squeeze(1)
    below = above - probabilities.double().gather(1, at).squeeze(1)
    assert bool((below <= wanted + 1e-6).all())  # up to rounding in float32
    assert bool((wanted < above + 1e-6).all())


def test_draws_do_not_depend_on_how_a_batch_is_split():
    probabilities, uniform = rows_of_probabilities(70, 3000)
    whole = draw(probabilities, uniform)
    for cut in (1, 2, 3, 33):
        parts = zip(probabilities.split(cut), uniform.split(cut), strict=True)
        assert torch.cat([draw(*part) for part in parts]).equal(whole)


def test_ids_with_probability_0_are_never_drawn():
    """Also at the ends of blocks, where two sums of the same numbers round differently."""
    probabilities = torch.rand(5000, 3 * BLOCK + 7)
    probabilities[:, ::2] = 0
    probabilities[:, BLOCK : 2 * BLOCK] = 0
    probabilities[:, -20:] = 0
    for uniform in (torch.rand(5000), torch.zeros(5000), torch.full((5000,), 1 - 2**-24)):
        assert bool((probabilities.gather(1, draw(probabilities, uniform)[:, None]) > 0).all())
    sums = probabilities.cumsum(1)
    edge = (sums[:, BLOCK - 1] / sums[:, -1]).clamp(max=1 - 2**-24)
    assert bool((probabilities.gather(1, draw(probabilities, edge)[:, None]) > 0).all())


@pytest.mark.parametrize("size", [5, 3 * BLOCK, 3 * BLOCK + 7])
def test_a_diverged_run_draws_valid_ids(size):
    """So that the loss reports the divergence."""
    drawn = draw(torch.full((3, size), torch.nan), torch.tensor([0.0, 0.5, 0.9]))
    assert bool(((drawn >= 0) & (drawn < size)).all())


@pytest.mark.parametrize("chunk", [1, 7 * 300 + 1, 1 << 23])
def test_log_probabilities_equal_the_direct_computation(monkeypatch, chunk):
    monkeypatch.setitem(vocabulary.CHUNK, "cpu", chunk)
    tensors, gold = inputs(dtype=torch.float32)
    with torch.inference_mode():
        expected = linear(*tensors).log_softmax(1).gather(1, gold[:, None]).squeeze(1)
        torch.testing.assert_close(log_probabilities(*tensors, gold), expected)
        assert log_probabilities(tensors[0][:0], *tensors[1:], gold[:0]).shape == (0,)
