"""The encoder's size, first weights, ragged batches and dropout, and the gradient of its attention."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from unmask.batches.batch import Sample, collate
from unmask.encoders.transformer import TransformerSettings
from unmask.layers import attention
from unmask.layers.attention import SelfAttention
from unmask.layers.dropout import Dropout, keep
from unmask.recipe import read_recipe, shipped

PARAMETERS = {  # those of transformers.BertModel with vocabulary 30522
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
}
SETTINGS = TransformerSettings(layers=3, width=48, heads=4, feed_forward=96, positions=256, deviation=0.2)
VOCABULARY = 500
LENGTHS = (1, 2, 3, 17, 60, 64, 65, 256, 256, 256)  # two attention groups, one of them padded


def samples(lengths=LENGTHS):
    rng = np.random.default_rng(0)
    draw = [(rng.integers(0, VOCABULARY, n), rng.integers(0, 2, n)) for n in lengths]
    return [Sample(key=(i,), ids=ids, segments=segments) for i, (ids, segments) in enumerate(draw)]


def test_every_shipped_recipe_is_counted():
    assert {name for name in shipped() if name.startswith("bert-")} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_count(name):
    with torch.device("meta"):
        encoder = read_recipe(name).encoder.build(30522)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 5}, "multiple of heads"),
        *(({name: 0}, name) for name in ("layers", "width", "heads", "feed_forward", "positions", "segments")),
        ({"width": -48}, "width"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        *(({name: bad}, name) for name in ("epsilon", "deviation") for bad in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)
def test_settings_refused(changed, message):
    table = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    with pytest.raises(ValueError, match=message):
        TransformerSettings(**table | changed)


def test_same_seed_same_weights():
    def build(seed):
        torch.manual_seed(seed)
        return SETTINGS.build(VOCABULARY).state_dict()

    first, again, other = build(1), build(1), build(2)
    for name, value in first.items():
        assert torch.equal(value, again[name])
        constant = name.endswith("bias") or "norm" in name
        assert torch.equal(value, other[name]) == constant, name


def test_the_levels_are_the_whole_body_but_the_pooler():
    encoder = SETTINGS.build(VOCABULARY)
    inside = [id(parameter) for level in encoder.levels for parameter in level.parameters()]
    assert len(set(inside)) == len(inside)
    assert [name for name, value in encoder.named_parameters() if id(value) not in inside] == [
        "pooler.weight",
        "pooler.bias",
    ]
    assert encoder.levels[0] is encoder.embeddings
    assert list(encoder.levels[1:]) == list(encoder.blocks)


def test_initial_distribution_is_cut_off_at_two_deviations():
    encoder = TransformerSettings(layers=1, width=256, heads=4, feed_forward=1024).build(4000)
    for name, value in encoder.state_dict().items():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(value, torch.full_like(value, float("norm.weight" in name))), name
        else:
            assert value.abs().max() <= 0.04
            count = value.numel()
            assert abs(value.mean()) < 4 * 0.02 / count**0.5
            # the variance of a normal variable cut off at two deviations is 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737
            assert value.std() == pytest.approx(0.02 * 0.7737**0.5, rel=4 / count**0.5)


def encode(encoder, samples):
    """Each sample's layers by its key, from one batch of all."""
    batch = collate(samples)
    with torch.no_grad():
        layers = encoder(batch.tokens, keep=frozenset({0, 2, 3})).layers
    cut = torch.stack([layers[number] for number in (0, 2, 3)]).split(batch.tokens.offsets.diff().tolist(), dim=1)
    return dict(zip(batch.keys, cut, strict=True))


@pytest.mark.parametrize("chosen", [range(10), range(3), (9, 0), (4, 9, 4, 5), (3, 8, 7)])
def test_a_sequence_gives_alone_what_it_gives_in_any_batch(chosen):
    encoder = SETTINGS.build(VOCABULARY).eval()
    batch = [samples()[number].named((place,)) for place, number in enumerate(chosen)]
    together = encode(encoder, batch)
    for sample in batch:
        torch.testing.assert_close(together[sample.key], encode(encoder, [sample])[sample.key], rtol=0, atol=1e-5)


def test_the_whole_batch_has_groups_with_and_without_padding():
    assert [group.mask is None for group in collate(samples()).tokens.groups] == [False, True]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_has_its_rate_and_scale(rate):
    x = torch.full((1000, 1001), 3.0)
    y = Dropout(rate)(x)
    dropped = y == 0
    assert float(dropped.double().mean()) == pytest.approx(rate, abs=5e-3 * (rate * (1 - rate)) ** 0.5)  # 5 deviations
    torch.testing.assert_close(y[~dropped], torch.full_like(y[~dropped], 3 / (1 - rate)))
    for axis in (0, 1):  # no row or column is favoured
        assert (dropped.double().mean(axis) - rate).abs().max() < 6 * (rate * (1 - rate) / 1000) ** 0.5


def test_dropout_is_keyed_and_off_in_evaluation():
    encoder = SETTINGS.build(VOCABULARY)
    tokens = collate(samples()).tokens

    def run(seed):
        torch.manual_seed(seed)
        return encoder(tokens).last

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    encoder.eval()
    assert torch.equal(run(1), run(2))
    x = torch.ones(9)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_each_dropout_draws_anew():
    torch.manual_seed(0)
    first, second = (keep(torch.Size([4096]), 0.5, torch.float32) for _ in range(2))
    assert 0.45 < float((first == second).float().mean()) < 0.55


def attend(x, layer, dropout, lengths):
    """SelfAttention over a ragged batch, by torch's own attention over one sequence at a time."""
    heads, rows = layer.heads, []
    for part in x.split(lengths):
        query, key, value = layer.qkv(part).view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (heads, length, …)
        if dropout is None:
            out = scaled_dot_product_attention(query, key, value)
        else:
            chances = (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
            out = (chances * dropout.pop(0)) @ value
        rows.append(layer.out(out.transpose(0, 1).reshape(len(part), -1)))
    return torch.cat(rows)


def gradients(output, weights, tensors):
    return torch.autograd.grad((output * weights).sum(), tensors)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("lengths", [(7,), (6, 6, 6), (3, 5, 9)], ids=["one", "equal", "padded"])
def test_attention_and_its_gradient_equal_torchs(lengths, rate, monkeypatch):
    made = collate(samples(lengths)).tokens
    (group,) = made.groups
    assert (group.mask is not None) == (len(set(lengths)) > 1)
    factors = keep(torch.Size([len(lengths), 4, group.longest, group.longest]), rate, torch.float64)
    monkeypatch.setattr(attention, "keep", lambda shape, rate, dtype: factors.view(shape))
    layer = SelfAttention(16, 4, rate).double()
    x = torch.randn(sum(lengths), 16, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    cut = [factor[:, :n, :n] for factor, n in zip(factors, lengths, strict=True)] if rate else None
    ours, expected = layer(x, made.groups), attend(x, layer, cut, lengths)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    tensors = (x, *layer.parameters())
    for one, other in zip(gradients(ours, weights, tensors), gradients(expected, weights, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_attention_passes_gradcheck(padded, rate):
    inputs = tuple(torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()[:, None, None] if padded else None

    def run(*inputs):
        torch.manual_seed(0)
        return attention._Attention.apply(*inputs, mask, rate)

    assert torch.autograd.gradcheck(run, inputs)
    if padded:  # nothing of padding is seen
        key_gradient = torch.autograd.grad(run(*inputs).sum(), inputs[1:])
        assert all(not gradient[0, :, 2:].any() for gradient in key_gradient)


@pytest.mark.parametrize("planted", ["scale", "factors", "mask"])
def test_the_comparison_notices_a_planted_fault(planted, monkeypatch):
    if planted == "scale":
        right = torch.baddbmm
        monkeypatch.setattr(torch, "baddbmm", lambda *args, alpha: right(*args, alpha=alpha * 1.01))
    elif planted == "factors":
        right_mul = torch.Tensor.mul_
        monkeypatch.setattr(
            torch.Tensor, "mul_", lambda x, y: x if isinstance(y, torch.Tensor) and x.dim() == 3 else right_mul(x, y)
        )
    else:
        monkeypatch.setattr(attention, "_bias", lambda mask, shape, dtype: torch.zeros((), dtype=dtype))
    with pytest.raises(AssertionError):
        test_attention_and_its_gradient_equal_torchs((3, 5, 9), 0.3, monkeypatch)
