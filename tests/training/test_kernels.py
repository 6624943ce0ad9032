"""The public fallbacks give the same numbers as torch's private operators."""

import re
from pathlib import Path

import pytest
import torch

from unmask.training import kernels
from unmask.training.optimizer_settings import AdamWSettings
from unmask.training.settings import OPTIMIZERS

SHAPES = [(5, 3), (7,), (2, 4)]
PRIVATE = [
    *("_foreach_add_", "_foreach_addcmul_", "_foreach_norm", "_foreach_zero_", "_foreach_copy_"),
    "_fused_adamw_",
]


def remove(monkeypatch, *names):
    for name in names:
        monkeypatch.delattr(torch, name)


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


OPERATORS = {
    "_foreach_add_": [
        lambda: kernels.increment_(changed := tensors(0)) or changed,
        lambda: kernels.add_scaled_(changed := tensors(0), tensors(1), -0.3) or changed,
    ],
    "_foreach_addcmul_": [
        lambda: kernels.add_products_(changed := tensors(0), tensors(1), torch.tensor([0.5, -2.0, 3.0])) or changed
    ],
    "_foreach_norm": [lambda: [kernels.norms(tensors(0))]],
    "_foreach_zero_": [lambda: kernels.zero_(changed := tensors(0)) or changed],
    "_foreach_copy_": [
        lambda: kernels.copy_(changed := [one.bfloat16() for one in tensors(0)], tensors(1)) or changed,
    ],
}


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_has_a_fallback_with_the_same_numbers(name, monkeypatch):
    expected = [compute() for compute in OPERATORS[name]]
    remove(monkeypatch, name)
    found = [compute() for compute in OPERATORS[name]]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norm_of_all_tensors(dtype):
    found = kernels.total_norm([tensor.to(dtype) for tensor in tensors(0)])
    expected = torch.cat([tensor.flatten().double() for tensor in tensors(0)]).norm()
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    assert kernels.total_norm([torch.tensor([1.0, torch.inf]), torch.zeros(2, 3).T]).isinf()
    assert kernels.total_norm([torch.tensor([1.0, torch.nan])]).isnan()
    assert kernels.total_norm([]).item() == 0


def trained(settings, steps=5):
    """The weights and moments after some steps with a clipped gradient; operators are looked up when called."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 2))
    optimizer = settings.build(module)
    generator = torch.Generator().manual_seed(1)
    for number in range(steps):
        for parameter in module.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer._excess = torch.tensor([1.0, 3.7][number % 2])  # as `clip` leaves it
        optimizer.step(1.0)
    return [value.detach().clone() for value in module.parameters()], optimizer.state()


@pytest.mark.parametrize("hidden", [["_fused_adamw_"], PRIVATE], ids=["adamw", "all"])
@pytest.mark.parametrize("kind", ["adamw", "lamb"])
@pytest.mark.parametrize("correction", [True, False])
def test_steps_are_those_of_the_fused_kernel(kind, correction, hidden, monkeypatch):
    settings = OPTIMIZERS[kind](learning_rate=0.01, weight_decay=0.1, bias_correction=correction)
    weights, state = trained(settings)
    remove(monkeypatch, *hidden)
    ours, moments = trained(settings)
    torch.testing.assert_close(ours, weights, rtol=1e-6, atol=1e-6)
    assert moments.keys() == state.keys()
    torch.testing.assert_close(moments, state, rtol=1e-6, atol=1e-6)


def test_the_comparison_notices_a_planted_fault(monkeypatch):
    real = kernels.adamw_

    def other(*args, **options):
        real(*args, **{**options, "decay": options["decay"] * 1.1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "adamw_", other)
        faulty, _ = trained(AdamWSettings(learning_rate=0.01, weight_decay=0.1))
    weights, _ = trained(AdamWSettings(learning_rate=0.01, weight_decay=0.1))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(faulty, weights, rtol=1e-6, atol=1e-6)


def test_private_operators_are_called_only_where_their_absence_is_handled():
    """Each file that calls a private operator checks whether it exists, or whether a trial of it succeeded."""
    package = Path(kernels.__file__).parents[1]
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf8")
        for name in set(re.findall(r"torch\.(?:cpu\.)?(_[a-z]\w+)\(", text)):
            assert f'"{name}")' in text, (path, name)
        if "torch.ops.mkldnn" in text:
            assert "onednn_multiplies(" in text, path


def test_all_private_operators_of_onednn_are_tried():
    package = Path(kernels.__file__).parents[1]
    used, tried = (
        set(re.findall(r"mkldnn\.(_\w+(?:\.\w+)?)", path.read_text(encoding="utf8").replace("operators.", "mkldnn.")))
        for path in (package / "nn/layers/linear.py", package / "support/capabilities.py")
    )
    assert used and used <= tried
