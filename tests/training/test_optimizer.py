"""AdamW and LAMB follow their formulas step by step; depth and shape of a parameter decide its rate and its decay."""

import msgspec
import numpy as np
import pytest
import pytorch_optimizer
import torch
from torch import nn

from unmask.recipes.recipe import read_recipe
from unmask.training.optimizer import total_norm
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.settings import OPTIMIZERS
from unmask.workflows.pretraining.start import build_learner

KINDS = ["adamw", "lamb"]
SETTINGS = AdamWSettings(learning_rate=0.1, betas=(0.8, 0.9), epsilon=1e-3, weight_decay=0.3)
STEPS = 6


def of_kind(kind, **changes):
    """Return `SETTINGS` for a kind of optimizer."""
    return OPTIMIZERS[kind](**{**msgspec.structs.asdict(SETTINGS), **changes})


def network():
    torch.manual_seed(0)
    return nn.ModuleDict({"words": nn.Embedding(7, 4), "dense": nn.Linear(4, 3), "norm": nn.LayerNorm(3)}).double()


def gradients(module, rng):
    """Set random gradients; one word never occurs."""
    for name, parameter in module.named_parameters():
        parameter.grad = torch.from_numpy(rng.normal(size=parameter.shape)).to(parameter.dtype)
        if name == "words.weight":
            parameter.grad[2] = 0


def values(module):
    return {name: value.detach().numpy().copy() for name, value in module.named_parameters()}


def assert_close(first, second):
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=1e-9, err_msg=name)


class Formulas:
    """Algorithm 2 of You et al. 2020 (LAMB), and AdamW, in numpy; `fault` plants a fault."""

    def __init__(self, module, settings, fault=""):
        self.weights, self.settings, self.fault = values(module), settings, fault
        self.moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in self.weights.items()}

    def step(self, gradients, number, factor):
        settings = self.settings
        for name, gradient in gradients.items():
            first, second = self.moments[name]
            first = settings.betas[0] * first + (1 - settings.betas[0]) * gradient
            second = settings.betas[1] * second + (1 - settings.betas[1]) * gradient**2
            self.moments[name] = first, second
            if settings.bias_correction:
                first = first / (1 - settings.betas[0] ** (number + 1))
                second = second / (1 - settings.betas[1] ** (number + 1))
            self.weights[name] -= settings.learning_rate * factor * self.direction(name, first, second)

    def direction(self, name, first, second):
        epsilon = 1e-6 if self.fault == "epsilon" else self.settings.epsilon
        weight, matrix = self.weights[name], name in ("words.weight", "dense.weight")
        step = first / (np.sqrt(second) + epsilon)
        if matrix or self.fault == "biases decay":
            step += self.settings.weight_decay * weight
        if self.settings.kind == "adamw" or not (matrix or self.fault == "biases are adapted"):
            return step
        norm = np.linalg.norm(weight)
        if norm == 0 or np.linalg.norm(step) == 0:
            return step
        return (min(norm, 1) if self.fault == "clipped" else norm) / np.linalg.norm(step) * step


FAULTS = ["epsilon", "biases decay", "biases are adapted", "clipped"]


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize(
    ("kind", "fault"), [*((kind, "") for kind in KINDS), *(("lamb", fault) for fault in FAULTS), ("adamw", FAULTS[1])]
)
def test_each_step_follows_the_formulas(kind, bias_correction, fault):
    settings = of_kind(kind, bias_correction=bias_correction)
    module = network()
    optimizer, expected, rng = settings.build(module), Formulas(module, settings, fault), np.random.default_rng(0)
    for number in range(STEPS):
        factor = 1 - number / 10
        gradients(module, rng)
        expected.step({name: value.grad.numpy().copy() for name, value in module.named_parameters()}, number, factor)
        assert optimizer.step(factor) == pytest.approx(0.1 * factor)
        assert all(parameter.grad is None for parameter in module.parameters())
        if not fault:
            assert_close(values(module), expected.weights)
    if fault:
        with pytest.raises(AssertionError):
            assert_close(values(module), expected.weights)


def test_lamb_is_that_of_another_implementation():
    """pytorch-optimizer differs: it clips the norm of the weights at 10 and adds epsilon to that of the step (neither
    matters here), and by default corrects the bias of the first moment only and adapts biases.
    """
    settings = of_kind("lamb", bias_correction=False, epsilon=1e-12)
    module, other = network(), network()
    optimizer = settings.build(module)
    matrices, vectors = (
        [value for value in other.parameters() if (value.ndim > 1) == wanted] for wanted in (True, False)
    )
    theirs = pytorch_optimizer.Lamb(
        [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0, "adam": True}],
        lr=0.1,
        betas=(0.8, 0.9),
        eps=1e-12,
        weight_decouple=False,
        adam_debias=True,
    )
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        gradients(module, rng)
        for mine, their in zip(module.parameters(), other.parameters(), strict=True):
            their.grad = mine.grad.clone()
        optimizer.step(1.0)
        theirs.step()
        assert_close(values(module), values(other))
    assert max(np.linalg.norm(value) for value in values(module).values()) < 10


@pytest.mark.parametrize("zero", ["weight", "step"])
def test_lamb_without_a_norm_takes_the_step_of_adamw(zero):
    moved = []
    for kind in KINDS:
        module = nn.Linear(3, 2)
        for parameter in module.parameters():
            nn.init.constant_(parameter, 0.0 if zero == "weight" else 0.5)
            parameter.grad = torch.full_like(parameter, 1.0 if zero == "weight" else 0.0)
        of_kind(kind, weight_decay=0.0).build(module).step(1.0)
        moved.append(module.weight.detach())
    assert moved[0].isfinite().all()
    assert moved[0].equal(moved[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_parameter_that_begins_later_takes_the_steps_of_a_new_one(kind, bias_correction):
    """Such as a head of a later stage; before, it neither changes nor has any state."""
    settings = of_kind(kind, bias_correction=bias_correction)
    late, fresh, rng = network(), network(), np.random.default_rng(0)
    optimizer, expected = settings.build(late), settings.build(fresh)
    start = values(late)["dense.weight"].copy()
    for _ in range(STEPS):
        gradients(late, rng)
        late["dense"].weight.grad = None
        optimizer.step(1.0)
        assert (values(late)["dense.weight"] == start).all()
        assert "dense.weight.step" not in optimizer.state()
    resumed = settings.build(late)
    resumed.load(optimizer.state())
    for _ in range(STEPS):
        gradients(late, rng)
        fresh["dense"].weight.grad = late["dense"].weight.grad.clone()
        resumed.step(0.5)
        expected.step(0.5)
        assert (values(late)["dense.weight"] == values(fresh)["dense.weight"]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_the_state_is_restored_to_the_bit(kind, bias_correction):
    """Including a parameter that has had no gradient yet."""
    settings = of_kind(kind, bias_correction=bias_correction)
    module, rng = network().float(), np.random.default_rng(0)
    optimizer = settings.build(module)
    assert optimizer.state() == {}

    def step(module, optimizer, rng, number):
        gradients(module, rng)
        if number < 4:
            module["dense"].weight.grad = None
        optimizer.step(0.5)

    for number in range(3):
        step(module, optimizer, rng, number)
    state = {name: value.clone() for name, value in optimizer.state().items()}
    assert {name.rpartition(".")[0] for name in state} == {name for name in values(module) if name != "dense.weight"}
    again = network().float()
    again.load_state_dict(module.state_dict())
    resumed = settings.build(again)
    resumed.load(state)
    same = np.random.default_rng()
    same.bit_generator.state = rng.bit_generator.state
    for number in range(3, STEPS):
        step(module, optimizer, rng, number)
        step(again, resumed, same, number)
    for name, value in module.state_dict().items():
        assert value.equal(again.state_dict()[name]), name
    for name, value in optimizer.state().items():
        assert value.equal(resumed.state()[name]), name
    resumed.load({})
    assert resumed.state() == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", ["bert", "xlnet"])  # whose biases are matrices, with a row for each head
def test_biases_and_norms_neither_decay_nor_are_adapted(recipe, encoder, kind):
    small = {"encoder.layers": 1, "encoder.width": 16, "encoder.heads": 2, "encoder.feed_forward": 32}
    recipe = recipe if encoder == "bert" else read_recipe("xlnet-mini", small)
    learner, _ = build_learner(recipe, 50, None)
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}

    def moved(gradient, **changed):
        settings = OPTIMIZERS[kind](weight_decay=0.5, learning_rate=0.1, **changed)
        learner.load_state_dict(before, strict=False)
        optimizer = settings.build(learner)
        for value in learner.parameters():
            value.grad = torch.full_like(value, gradient)
        optimizer.step(1.0)
        return {name: value.detach() - before[name] for name, value in learner.named_parameters()}

    def is_vector(name):
        return name.endswith(("bias", "query")) or "norm" in name  # encoder.query is XLNet's first vector of queries

    assert sum(is_vector(name) for name in before) >= 10
    decayed, stepped = moved(0.0), moved(1.0, epsilon=1e-12)
    for name, value in before.items():
        # without a gradient the direction is the decay: AdamW takes a share of it, LAMB the norm of the weights
        share = 0.0 if is_vector(name) else 0.05 if kind == "adamw" else 0.1
        torch.testing.assert_close(decayed[name], -share * value, msg=name)
        if is_vector(name):
            torch.testing.assert_close(stepped[name], torch.full_like(value, -0.1), msg=name)
        elif kind == "lamb":
            torch.testing.assert_close(stepped[name].norm(), 0.1 * value.norm(), rtol=1e-4, atol=0, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_falls_with_the_distance_from_the_head(recipe, kind):
    """learning_rate * layer_decay^(L + 1 - l): layer 0 the embeddings; pooler and heads at the full rate."""
    learner, _ = build_learner(recipe, 50, None)
    before = {name: value.detach().clone() for name, value in learner.named_parameters()}

    def steps(layer_decay):
        learner.load_state_dict(before, strict=False)
        settings = OPTIMIZERS[kind](learning_rate=0.01, layer_decay=layer_decay, weight_decay=0.1)
        optimizer, rng = settings.build(learner, learner.encoder.layer_groups), np.random.default_rng(0)
        for value in learner.parameters():
            value.grad = torch.from_numpy(rng.normal(size=value.shape)).float()
        assert optimizer.step(1.0) == 0.01
        return {name: value.detach() - before[name] for name, value in learner.named_parameters()}

    shares = {"encoder.embeddings": 0.5**3, "encoder.blocks.0": 0.5**2, "encoder.blocks.1": 0.5}
    full, decayed = steps(1.0), steps(0.5)
    seen = set()
    for name, step in full.items():
        prefix = next((prefix for prefix in shares if name.startswith(f"{prefix}.")), "head")
        seen.add(prefix)
        torch.testing.assert_close(decayed[name], step * shares.get(prefix, 1.0), rtol=1e-3, atol=1e-7, msg=name)
    assert seen == {*shares, "head"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norm_of_all_tensors(dtype):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in [(5, 3), (7,), (2, 4)]]
    expected = torch.cat([tensor.flatten().double() for tensor in tensors]).norm()
    torch.testing.assert_close(total_norm(tensors).double(), expected, rtol=1e-6, atol=0)
    assert total_norm([torch.tensor([1.0, torch.inf]), torch.zeros(2, 3).T]).isinf()
    assert total_norm([torch.tensor([1.0, torch.nan])]).isnan()
    assert total_norm([]).item() == 0
