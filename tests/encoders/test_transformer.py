"""The encoder's size, first weights, ragged batches and dropout, and the gradient of its attention."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from unmask.batches.batch import Sample, collate
from unmask.encoders.encoder import Keep
from unmask.families.bert import BertSettings
from unmask.families.gpt import GptSettings
from unmask.layers import fused_attention
from unmask.layers.attention import SelfAttention
from unmask.layers.attention_spec import AttentionSpec
from unmask.layers.dropout import Dropout, draw, keep
from unmask.layers.fused_attention import fused
from unmask.recipe import read_recipe, shipped

PARAMETERS = {  # those of transformers.BertModel with vocabulary 30522
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
}
SETTINGS = BertSettings(layers=3, width=48, heads=4, feed_forward=96, positions=256, init_std=0.2)
VOCABULARY = 500
LENGTHS = (1, 2, 3, 17, 60, 64, 65, 256, 256, 256)  # three attention groups, two of them padded


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
        *(({name: bad}, name) for name in ("epsilon", "init_std") for bad in (0.0, -1.0, float("nan"), float("inf"))),
    ],
)
def test_settings_refused(changed, message):
    table = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    with pytest.raises(ValueError, match=message):
        BertSettings(**table | changed)


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
    inside = [id(parameter) for level in encoder.layer_groups for parameter in level.parameters()]
    assert len(set(inside)) == len(inside)
    assert [name for name, value in encoder.named_parameters() if id(value) not in inside] == [
        "pooler.weight",
        "pooler.bias",
    ]
    assert encoder.layer_groups[0] is encoder.embeddings
    assert list(encoder.layer_groups[1:]) == list(encoder.blocks)


def test_initial_distribution_is_cut_off_at_two_deviations():
    encoder = BertSettings(layers=1, width=256, heads=4, feed_forward=1024).build(4000)
    for name, value in encoder.state_dict().items():
        if "norm" in name or name.endswith("bias"):
            assert torch.equal(value, torch.full_like(value, float("norm.weight" in name))), name
        else:
            assert value.abs().max() <= 0.04
            count = value.numel()
            assert abs(value.mean()) < 4 * 0.02 / count**0.5
            # the variance of a normal variable cut off at two deviations is 1 - 4 phi(2) / (2 Phi(2) - 1) = 0.7737
            assert value.std() == pytest.approx(0.02 * 0.7737**0.5, rel=4 / count**0.5)


def test_gpts_initial_distribution_is_not_cut_off():
    encoder = GptSettings(layers=1, width=256, heads=4).build(4000)
    for name in ("embeddings.words.weight", "blocks.0.feed_forward.up.weight"):
        value = encoder.state_dict()[name]
        assert value.std() == pytest.approx(0.02, rel=4 / value.numel() ** 0.5)
        assert (value.abs() > 0.04).float().mean() == pytest.approx(0.0455, abs=0.002)


def encode(encoder, samples):
    """Each sample's layers by its key, from one batch of all."""
    batch = collate(samples)
    with torch.no_grad():
        layers = encoder(batch.tokens, keep=Keep(frozenset({0, 2, 3}))).layers
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
    assert [group.real is None for group in collate(samples()).tokens.groups] == [False, False, True]


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
    first, second = (keep(torch.Size([4096]), 0.5, torch.float32, (draw(),)) for _ in range(2))
    assert 0.45 < float((first == second).float().mean()) < 0.55


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [1e-9, 0.001, 0.1, 0.5, 0.9, 1 - 1e-9])
def test_what_is_kept_is_one_at_the_rate_for_numbers_of_any_size(dtype, rate):
    kept = keep(torch.Size([999, 1003]), rate, dtype, (1, 2))
    assert set(kept.unique().tolist()) == {0, 1}
    assert float(kept.double().mean()) == pytest.approx(1 - rate, abs=2e-5 + 5e-3 * (rate * (1 - rate)) ** 0.5)
    assert torch.equal(kept, keep(kept.shape, rate, dtype, (1, 2)))
    assert not torch.equal(kept, keep(kept.shape, rate, dtype, (1, 3)))


def attend(x, layer, dropout, lengths):
    """SelfAttention over a ragged batch, by torch's own attention over one sequence at a time."""
    heads, rows = layer.heads, []
    for part in x.split(lengths):
        query, key, value = layer.qkv(part).view(len(part), 3, heads, -1).permute(1, 2, 0, 3)  # (heads, length, …)
        if dropout is None:
            out = scaled_dot_product_attention(query, key, value, is_causal=layer.causal)
        else:
            scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
            later = torch.ones_like(scores, dtype=torch.bool).triu(1) & layer.causal
            probabilities = scores.masked_fill(later, -torch.inf).softmax(-1)
            out = (probabilities * dropout.pop(0)) @ value
        rows.append(layer.out(out.transpose(0, 1).reshape(len(part), -1)))
    return torch.cat(rows)


def gradients(output, weights, tensors):
    return torch.autograd.grad((output * weights).sum(), tensors)


def masks(rate, lengths, monkeypatch):
    """What each head of each sequence keeps of its probabilities, scaled; attention is made to draw the same."""
    ((group,), heads) = collate(samples(lengths)).tokens.groups, 4
    if not rate:
        return None
    kept = keep(torch.Size([len(lengths) * heads, group.longest, group.longest]), rate, torch.float64, (0,))
    monkeypatch.setattr(fused_attention, "_kept", lambda probabilities, rate, seed, number, part: kept[part])
    by_sequence = kept.unflatten(0, (len(lengths), heads)) / (1 - rate)
    return [factor[:, :n, :n] for factor, n in zip(by_sequence, lengths, strict=True)]


@pytest.mark.parametrize("long", [1, 100], ids=["computed again", "kept"])
@pytest.mark.parametrize("chunk", [100, 1 << 20], ids=["chunks", "at once"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("lengths", [(7,), (6, 6, 6), (3, 5, 9)], ids=["one", "equal", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_attention_and_its_gradient_equal_torchs(causal, lengths, rate, chunk, long, monkeypatch):
    monkeypatch.setattr(fused_attention, "CHUNK", chunk)
    monkeypatch.setattr(fused_attention, "LONG", long)
    tokens = collate(samples(lengths)).tokens
    (group,) = tokens.groups
    assert (group.real is not None) == (len(set(lengths)) > 1)
    assert len(list(fused_attention._chunks(group, 4))) > 1 or chunk > 100
    factors = masks(rate, lengths, monkeypatch)
    layer = SelfAttention(16, 4, rate, causal=causal).double()
    x = torch.randn(sum(lengths), 16, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    ours, expected = layer(x, tokens), attend(x, layer, factors, lengths)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    tensors = (x, *layer.parameters())
    for one, other in zip(gradients(ours, weights, tensors), gradients(expected, weights, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lengths", [(7, 7), (40, 44), (64, 64), (130, 130), (1030, 1024)], ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_attention_in_few_bits_is_near_torchs(causal, lengths, dtype):
    """All ways to a softmax: rows that fill registers or not, many of them, and probabilities computed again."""
    tokens = collate(samples(lengths)).tokens
    layer = SelfAttention(64, 2, 0.0, causal=causal).double()
    for weight in layer.parameters():
        weight.data.mul_(3)
    x = torch.randn(sum(lengths), 64, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    expected = attend(x, layer, None, sorted(lengths))
    gradient = gradients(expected, weights, (x, layer.qkv.weight))
    small = copy.deepcopy(layer).to(dtype)
    y = x.detach().to(dtype).requires_grad_()
    ours = small(y, tokens)
    bound = 0.03 if dtype == torch.bfloat16 else 1e-5
    for one, other in zip(
        (ours, *gradients(ours, weights.to(dtype), (y, small.qkv.weight))), (expected, *gradient), strict=True
    ):
        assert (one.double() - other).norm() < bound * other.norm()


@pytest.mark.parametrize("long", [1, 100], ids=["computed again", "kept"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("lengths", [(4, 4), (2, 4)], ids=["equal", "padded"])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
def test_attention_passes_gradcheck(causal, lengths, rate, heads, long, monkeypatch):
    monkeypatch.setattr(fused_attention, "LONG", long)
    qkv = torch.randn(sum(lengths), 18, dtype=torch.float64, requires_grad=True)
    tokens = collate(samples(lengths)).tokens

    def run(qkv):
        torch.manual_seed(0)
        return fused(qkv, tokens, AttentionSpec(heads, rate, causal))

    assert torch.autograd.gradcheck(run, qkv)


def test_a_sequence_sees_nothing_of_another(monkeypatch):
    qkv = torch.randn(14, 12, requires_grad=True)
    tokens = collate(samples((3, 4, 7))).tokens
    (gradient,) = torch.autograd.grad(fused(qkv, tokens, AttentionSpec(2))[3:7].sum(), qkv)
    seen = gradient.any(1).tolist()
    assert seen == [False] * 3 + [True] * 4 + [False] * 7


@pytest.mark.parametrize("planted", ["scale", "kept", "mask", "padding"])
def test_the_comparison_notices_a_planted_fault(planted, monkeypatch):
    if planted == "scale":
        right = torch.baddbmm
        monkeypatch.setattr(torch, "baddbmm", lambda *args, beta, alpha: right(*args, beta=beta, alpha=alpha * 1.01))
    elif planted == "kept":
        right_mul = torch.Tensor.mul_
        monkeypatch.setattr(
            torch.Tensor, "mul_", lambda x, y: x if isinstance(y, torch.Tensor) and x.dim() == 3 else right_mul(x, y)
        )
    elif planted == "mask":
        right_bias = fused_attention._bias
        monkeypatch.setattr(fused_attention, "_bias", lambda real, *rest: right_bias(torch.ones_like(real), *rest))
    else:  # what padded places gather has a gradient
        right_mul = torch.Tensor.mul_
        monkeypatch.setattr(
            torch.Tensor, "mul_", lambda x, y: x if isinstance(y, torch.Tensor) and x.dim() == 4 else right_mul(x, y)
        )
    with pytest.raises(AssertionError):
        test_attention_and_its_gradient_equal_torchs(False, (3, 5, 9), 0.3, 1 << 20, 100, monkeypatch)
