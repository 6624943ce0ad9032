"""The Transformer body: its size, settings, layer groups, ragged batches and dropout."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.families.bert import BertSettings
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers import linear
from unmask.nn.layers.dropout import Dropout
from unmask.recipes.recipe import read_recipe, shipped

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


def test_layer_groups_are_the_whole_body_except_the_pooler():
    encoder = SETTINGS.build(VOCABULARY)
    inside = [id(parameter) for group in encoder.layer_groups for parameter in group.parameters()]
    assert len(set(inside)) == len(inside)
    assert [name for name, value in encoder.named_parameters() if id(value) not in inside] == [
        "pooler.weight",
        "pooler.bias",
    ]
    assert encoder.layer_groups[0] is encoder.embeddings
    assert list(encoder.layer_groups[1:]) == list(encoder.blocks)


def encode(encoder, samples):
    """Return each sample's layers by key, computed in one batch."""
    batch = collate(samples)
    with torch.no_grad():
        layers = encoder(batch.tokens, keep=Keep(frozenset({0, 2, 3}))).layers
    cut = torch.stack([layers[number] for number in (0, 2, 3)]).split(batch.tokens.offsets.diff().tolist(), dim=1)
    return dict(zip(batch.keys, cut, strict=True))


@pytest.mark.parametrize("chosen", [range(10), range(3), (9, 0), (4, 9, 4, 5), (3, 8, 7)])
def test_the_output_of_a_sequence_does_not_depend_on_its_batch(chosen):
    encoder = SETTINGS.build(VOCABULARY).eval()
    batch = [samples()[number].named((index,)) for index, number in enumerate(chosen)]
    together = encode(encoder, batch)
    for sample in batch:
        torch.testing.assert_close(together[sample.key], encode(encoder, [sample])[sample.key], rtol=0, atol=1e-5)


def test_the_whole_batch_has_groups_with_and_without_padding():
    assert [group.real is None for group in collate(samples()).tokens.groups] == [False, False, True]


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


@pytest.mark.parametrize("recipe", ["bert-mini", "modernbert-mini", "gpt-mini"])
def test_rows_that_fill_up_the_stream_change_nothing(monkeypatch, recipe):
    tokens = collate(samples((3, 17, 60, 61))).tokens  # 141 tokens
    encoder = read_recipe(recipe, {"encoder.width": 64, "encoder.heads": 2}).encoder.build(VOCABULARY).bfloat16().eval()
    found = []
    for steps in (5, 60):  # 144 rows, 141 rows
        monkeypatch.setattr(linear, "STEPS_PER_OCTAVE", steps)
        encoder.zero_grad()
        encoded = encoder(tokens, Keep(layers=frozenset([0, 2]), rows=torch.arange(0, 141, 2)))
        assert all(len(layer) == 141 for layer in (encoded.last, *encoded.layers.values()))
        (encoded.last.float() ** 2).sum().backward()
        grads = [parameter.grad.to_dense() for parameter in encoder.parameters() if parameter.grad is not None]
        found.append([encoded.last, *encoded.layers.values(), *grads])
    for one, other in zip(*found, strict=True):
        scale = other.float().abs().max().item()
        torch.testing.assert_close(one.float(), other.float(), rtol=0.02, atol=0.02 * scale)
