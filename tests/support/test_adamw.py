"""AdamW's step in one pass equals torch's in float64, for any shapes, gradients and threads."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from unmask.support import adamw

pytestmark = pytest.mark.skipif(adamw._adamw is None, reason="there was no compiler")
COUNTS = [0, 1, 15, 17, 4095, 4096, 4097, 40_000]
SHARE = st.sampled_from([0.0, 0.5, 0.9, 0.999])


def drawn(count, seed, dtype=torch.float32):
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)).to(dtype)


def made(count, seed=0):
    """Return weights without a step so far, their moments and their copies."""
    zeros = [torch.zeros(count) for _ in range(2)]
    return [drawn(count, seed), *zeros, torch.empty(count, dtype=torch.bfloat16)]


def step(*parameters, **numbers):
    """Take a step of tensors as `made` returns them, and gradients."""
    usual = {"rate": 0.1, "betas": (0.9, 0.999), "epsilon": 1e-8, "decay": 0.0, "taken": 1, "excess": 1.0}
    adamw.step([(adamw.Weights(*tensors), grads) for tensors, grads in parameters], **usual | numbers)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@given(
    counts=st.lists(st.sampled_from(COUNTS), min_size=1, max_size=4),
    narrow=st.lists(st.booleans(), min_size=4, max_size=4),
    betas=st.tuples(SHARE, SHARE),
    rate=st.sampled_from([0.0, 1e-3, 0.1]),
    epsilon=st.sampled_from([1e-8, 1e-3]),
    decay=st.sampled_from([0.0, 0.1, 1.0]),
    excess=st.sampled_from([1.0, 3.7]),
)
def test_steps_are_those_of_torch_in_float64(counts, narrow, betas, rate, epsilon, decay, excess):
    types = [adamw.TYPES[one] for one in narrow[: len(counts)]]
    parameters = [made(count, seed) for seed, count in enumerate(counts)]
    leaves = [weights.double().requires_grad_() for weights, *_ in parameters]
    exact = torch.optim.AdamW(leaves, lr=rate, betas=betas, eps=epsilon, weight_decay=decay)
    numbers = {"rate": rate, "betas": betas, "epsilon": epsilon, "decay": decay, "excess": excess}
    for taken in (1, 2, 3):
        gradients = [
            drawn(count, 10 * seed + taken, dtype)
            for seed, (count, dtype) in enumerate(zip(counts, types, strict=True))
        ]
        before = [grads.clone() for grads in gradients]
        for leaf, grads in zip(leaves, gradients, strict=True):
            leaf.grad = grads.double() / excess
        exact.step()
        step(*zip(parameters, gradients, strict=True), taken=taken, **numbers)
        for leaf, (weights, *_, copies) in zip(leaves, parameters, strict=True):
            torch.testing.assert_close(weights.double(), leaf.detach(), rtol=1e-5, atol=1e-5 * rate + 1e-12)
            assert copies.equal(weights.bfloat16())
        assert all(map(torch.equal, gradients, before)), "gradients are only read"


@given(counts=st.lists(st.sampled_from(COUNTS), max_size=4), narrow=st.booleans())
def test_the_norm_is_that_in_float64(counts, narrow):
    gradients = [drawn(count, seed, adamw.TYPES[narrow]) for seed, count in enumerate(counts)]
    exact = torch.cat([torch.zeros(0), *gradients]).double().norm()
    found = adamw.norm(gradients)
    assert found.dtype == torch.float32 and found.shape == ()
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=0)


def test_the_number_of_threads_changes_nothing(threads):
    results = []
    for number in (1, 2, 3):
        threads(number)
        results.append(made(100_001))
        step((results[-1], drawn(100_001, 1, torch.bfloat16)), excess=2.0, decay=0.1)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_kept(value):
    one, grads = made(33), drawn(33, 1, torch.bfloat16)
    grads[7] = value
    assert not adamw.norm([grads]).isfinite()
    step((one, grads))
    for tensor in (one[0], one[-1]):
        assert tensor.isnan().nonzero().tolist() == [[7]]


def test_gradients_need_not_be_adjacent():
    one, other, grads = made(64), made(64), drawn(64, 1, torch.bfloat16)
    apart = torch.stack([grads, grads], dim=1)[:, 0]
    assert not apart.is_contiguous()
    step((one, grads), (other, apart))
    assert all(map(torch.equal, one, other))
    assert adamw.norm([apart]).equal(adamw.norm([grads]))


def test_weights_may_be_given_other_memory():
    one, other, grads = made(64), made(64), drawn(64, 1)
    weights = adamw.Weights(*one)
    one[0].data = one[0].clone()
    numbers = {"rate": 0.1, "betas": (0.9, 0.999), "epsilon": 1e-8, "decay": 0.0, "taken": 1, "excess": 1.0}
    adamw.step([(weights, grads)], **numbers)
    step((other, grads))
    assert all(map(torch.equal, one, other))
    one[0].data = one[0].double()
    with pytest.raises(ValueError, match="are needed"):
        adamw.step([(weights, grads)], **numbers)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "change", [torch.Tensor.double, lambda tensor: tensor[:3], lambda tensor: tensor.repeat(2)[::2]]
)
def test_what_does_not_belong_together_is_refused(place, change):
    tensors = made(8)
    tensors[place] = change(tensors[place])
    with pytest.raises(ValueError, match="are needed"):
        adamw.Weights(*tensors)


@pytest.mark.parametrize("grads", [torch.zeros(8, dtype=torch.float16), torch.zeros(7)])
def test_other_gradients_are_refused(grads):
    with pytest.raises(ValueError, match="are needed"):
        step((made(8), grads))


def test_a_norm_of_other_numbers_is_refused():
    with pytest.raises(ValueError, match="are needed"):
        adamw.norm([torch.zeros(3, dtype=torch.float64)])
