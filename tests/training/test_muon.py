"""Muon's directions are orthogonal, and its steps are those of torch.optim.Muon, with query, key and value apart."""

import msgspec
import numpy as np
import pytest
import torch

from unmask.recipes.recipe import read_recipe
from unmask.training.optimizer import SCALE, directions, orthogonalize
from unmask.training.optimizer_settings import MuonSettings
from unmask.workflows.pretraining.start import build_learner

SETTINGS = MuonSettings(learning_rate=1e-3, matrix_learning_rate=0.02, momentum=0.9, weight_decay=0.1, clip=0.0)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 4, 16), (2, 16, 4)])
def test_all_singular_values_become_about_one(shape):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(x, full_matrices=False)
    found = orthogonalize(x)
    inside = left.mT @ found @ right.mT  # diagonal, if the singular vectors are the same
    torch.testing.assert_close(inside, torch.diag_embed(inside.diagonal(dim1=1, dim2=2)))
    large = inside.diagonal(dim1=1, dim2=2)[values > 0.02 * torch.linalg.vector_norm(x, dim=(1, 2))[:, None]]
    assert len(large) > 5
    assert ((large > 0.65) & (large < 1.25)).all()


def test_directions_are_scaled_by_shape_and_keep_their_order():
    torch.manual_seed(0)
    matrices = [torch.randn(shape, dtype=torch.float64) for shape in ((8, 8), (4, 16), (8, 8), (16, 4))]
    for matrix, found in zip(matrices, directions(matrices, torch.float64), strict=True):
        expected = orthogonalize(matrix[None])[0] * SCALE * max(matrix.shape) ** 0.5
        torch.testing.assert_close(found, expected)
        assert found.square().mean().sqrt() == pytest.approx(SCALE, rel=0.3)


def test_a_matrix_without_a_gradient_does_not_move():
    assert directions([torch.zeros(4, 4)], torch.float32)[0].equal(torch.zeros(4, 4))


def gradients(learner, rng):
    for value in learner.parameters():
        value.grad = torch.from_numpy(rng.normal(size=value.shape)).float()


def is_inner(name):
    return name.startswith("encoder.blocks.") and name.endswith("weight") and "norm" not in name


@pytest.mark.parametrize("fault", ["", "query, key and value together", "momentum", "decay"])
def test_steps_are_those_of_another_implementation(recipe, fault):
    """torch.optim.Muon for the matrices of the layers, query, key and value being three; torch.optim.AdamW for the
    rest.
    """
    learner, _ = build_learner(recipe, 50, None)
    changed = {"momentum": {"momentum": 0.95}, "decay": {"weight_decay": 0.5}}.get(fault, {})
    settings = msgspec.structs.replace(SETTINGS, **changed)
    optimizer = settings.build(learner, learner.encoder.layer_groups, dtype=torch.bfloat16)
    optimizer.stacked = {} if fault.startswith("query") else optimizer.stacked
    matrices, rest = {}, {}
    for name, value in learner.named_parameters():
        copy = value.detach().clone()
        parts = copy.chunk(3) if "qkv" in name else [copy]
        target = matrices if is_inner(name) else rest
        target[name] = [torch.nn.Parameter(part) for part in parts]
    decayed = [value for name in rest for value in rest[name] if value.ndim > 1]
    vectors = [value for name in rest for value in rest[name] if value.ndim == 1]
    theirs = [
        torch.optim.Muon(
            [value for name in matrices for value in matrices[name]],
            lr=0.02,
            momentum=0.9,
            weight_decay=0.1,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
            lr=1e-3,
            eps=settings.epsilon,
        ),
    ]
    rng = np.random.default_rng(0)
    for _ in range(4):
        gradients(learner, rng)
        for name, value in learner.named_parameters():
            for part, grad in zip((matrices | rest)[name], value.grad.chunk(len((matrices | rest)[name])), strict=True):
                part.grad = grad.clone()
        optimizer.step(1.0)
        for their in theirs:
            their.step()
    wrong = []
    for name, value in learner.named_parameters():
        their = torch.cat([part.detach() for part in (matrices | rest)[name]])
        if not torch.allclose(value, their, rtol=0, atol=2e-3 if is_inner(name) else 1e-6):
            wrong.append(name)
    assert bool(wrong) == bool(fault), wrong
    assert len(matrices) == 4 * recipe.encoder.layers


@pytest.mark.parametrize("encoder", ["bert", "xlnet"])  # whose biases are matrices, with a row for each head
def test_only_matrices_of_the_layers_have_momentum(recipe, encoder):
    small = {"encoder.layers": 1, "encoder.width": 16, "encoder.heads": 2, "encoder.feed_forward": 32}
    learner, _ = build_learner(recipe if encoder == "bert" else read_recipe("xlnet-mini", small), 50, None)
    optimizer = SETTINGS.build(learner, learner.encoder.layer_groups)
    gradients(learner, np.random.default_rng(0))
    optimizer.step(1.0)
    for name, _ in learner.named_parameters():
        assert (f"{name}.momentum" in optimizer.state()) == is_inner(name), name
        assert (f"{name}.exp_avg" in optimizer.state()) != is_inner(name), name


def test_the_state_is_restored_to_the_bit(recipe):
    def trained(steps, state=None, weights=None):
        learner, _ = build_learner(recipe, 50, None)
        optimizer = SETTINGS.build(learner, learner.encoder.layer_groups)
        if state is not None:
            learner.load_state_dict(weights)
            optimizer.load(state)
        for number in steps:
            gradients(learner, np.random.default_rng(number))
            optimizer.clip()
            optimizer.step(1.0)
        weights = {name: value.clone() for name, value in learner.state_dict().items()}
        return {name: value.clone() for name, value in optimizer.state().items()}, weights

    whole, first = trained(range(4)), trained(range(2))
    for expected, found in zip(whole, trained(range(2, 4), *first), strict=True):
        assert expected.keys() == found.keys()
        assert all(value.equal(found[name]) for name, value in expected.items())


def test_clipping_scales_what_enters_the_momentum(recipe):
    def momentum(clip):
        learner, _ = build_learner(recipe, 50, None)
        settings = msgspec.structs.replace(SETTINGS, clip=clip)
        optimizer = settings.build(learner, learner.encoder.layer_groups)
        gradients(learner, np.random.default_rng(0))
        norm = optimizer.clip()
        optimizer.step(1.0)
        return norm, optimizer.state()["encoder.blocks.0.attention.qkv.weight.momentum"]

    norm, clipped = momentum(1.0)
    assert norm > 1
    torch.testing.assert_close(clipped * norm, momentum(0.0)[1])
