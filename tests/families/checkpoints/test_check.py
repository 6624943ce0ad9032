"""Weights that do not match the config are refused before memory is allocated (C4, C5, C15)."""

import json
import tracemalloc

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.families.checkpoints.check import body_on_meta
from unmask.objectives import OBJECTIVES
from unmask.support.errors import InputWarning, counted

from ... import forking
from .conftest import (
    DECODER,
    HEADS,
    WORDS,
    assert_load_refused,
    assert_read_refused,
    configure,
    form_of,
    only_on_meta,
    put,
    shape_of,
    weights,
)


@pytest.mark.parametrize("layers", [1, 3, 10**9, 10**18])
def test_C4_another_number_of_layers(directory, layers):
    configure(directory, num_hidden_layers=layers)
    said = (
        f"config.json specifies {counted(layers, 'layer')}, but the weights have 2"
        if layers < 1000
        else "layers must be at most 1000"
    )
    assert_load_refused(directory, said)


@pytest.mark.parametrize("name", ["encoder.layer.7", "encoder.layer.01", "encoder.layer." + "9" * 5000])
def test_C4_a_layer_with_another_number(directory, name):
    renamed = {n.replace("encoder.layer.1.", f"{name}."): value for n, value in weights(directory).items()}
    put(directory, renamed)
    assert_load_refused(directory, "layers")


@pytest.mark.parametrize("prefix", ["auto_model.", "model.bert.", "encoder."])
def test_prefixes_of_other_programs_are_named(directory, prefix):
    put(directory, {f"{prefix}{name.removeprefix('bert.')}": value for name, value in weights(directory).items()})
    assert_load_refused(directory, f"remove '{prefix}' from the names", "model_type")


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "type_vocab_size"]
)
def test_C5_a_huge_size_is_refused_before_allocation(directory, key, monkeypatch):
    build = BertSettings.build
    monkeypatch.setattr(BertSettings, "build", lambda *args: only_on_meta(build(*args)))
    monkeypatch.setattr(huggingface, "read_tensors", lambda *args: pytest.fail("weights were read"))
    configure(directory, **{key: 10**10})
    tracemalloc.start()
    assert_load_refused(directory, "has shape" if key == "vocab_size" else "must be at most", 10**10)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


ENCODER = ["embeddings.position_embeddings.weight", "embeddings.LayerNorm.bias"] + [
    f"encoder.layer.1.{part}"
    for part in ("attention.self.key.weight", "attention.output.LayerNorm.weight", "intermediate.dense.bias")
]
PARTS = ["pooler.dense.bias", "cls.predictions.bias", "cls.predictions.transform.dense.weight"]


@pytest.mark.parametrize("name", [*ENCODER, *PARTS, "cls.seq_relationship.bias"])
def test_C15_partial_weights_are_refused(directory, name):
    tensors = weights(directory)
    del tensors[name if name.startswith("cls.") else f"bert.{name}"]
    put(directory, tensors)
    assert_load_refused(directory, directory / "model.safetensors", name, "missing")


@pytest.mark.parametrize("name", [f"bert.{ENCODER[2]}", WORDS, "bert.pooler.dense.bias", "cls.seq_relationship.weight"])
@pytest.mark.parametrize("shape", [(), (0,), (16,), (16, 17), (3, 16), (16, 16, 1)])
def test_a_wrong_shape_is_refused(directory, name, shape):
    if weights(directory)[name].shape == shape:
        shape = (1,)
    put(directory, weights(directory) | {name: torch.ones(shape)})
    assert_load_refused(directory, name.removeprefix("bert."), "has shape")


@pytest.mark.parametrize("change", [lambda words: words + 1, lambda words: words.flip(0)])
def test_an_untied_decoder_is_refused(directory, change):
    tensors = weights(directory)
    put(directory, tensors | {DECODER: change(tensors[WORDS])})
    assert_load_refused(directory, directory / "model.safetensors", "to which config.json ties it")


def test_the_encoder_of_a_model_with_a_decoder_of_its_own_is_read(directory):
    tensors, expected = weights(directory), huggingface.read(directory)
    put(directory, tensors | {DECODER: tensors[WORDS] + 1})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.warns(InputWarning, match="decoder has weights of its own.*heads of the pretraining are left out"):
        found = huggingface.read(directory)
    assert not found.heads.keys() & OBJECTIVES.keys()
    assert found.encoder.keys() == expected.encoder.keys()
    assert all(torch.equal(found.encoder[name], value) for name, value in expected.encoder.items())


@pytest.mark.parametrize("layers", [1, 3, 10**9, 10**18])
def test_C4_another_number_of_layers_in_every_family(name, family_directory, layers):
    family = form_of(name)
    key = family.config["layers"]
    configure(family_directory, **{key: layers})
    if name == "albert" and layers < 10:  # one of the shared layers is stored, whatever their number
        assert huggingface.read(family_directory).settings.layers == layers
        configure(family_directory, **{key: 3, "num_hidden_groups": 3})
    if name == "albert, not shared":
        configure(family_directory, num_hidden_groups=layers)
    assert_read_refused(family_directory, "layer")


def test_C5_a_huge_size_is_refused_before_allocation_in_every_family(name, family_directory, monkeypatch):
    build = type(shape_of(name)).build
    monkeypatch.setattr(type(shape_of(name)), "build", lambda *args: only_on_meta(build(*args)))
    monkeypatch.setattr(huggingface, "read_tensors", lambda *args: pytest.fail("weights were read"))
    family = form_of(name)
    every = ("width", "embedding", "feed_forward", "positions", "segments")
    sizes = [family.config[key] for key in every if key in family.config]
    assert ("embedding_size" in sizes) == (family.model_type in ("albert", "electra", "roformer"))
    whole = (family_directory / "config.json").read_text()
    for key in ("vocab_size", *sizes):
        configure(family_directory, **{key: 10**10})
        assert_read_refused(
            family_directory, *(("has shape", str(10**10)) if key == "vocab_size" else ("must be at most", "not"))
        )
        (family_directory / "config.json").write_text(whole)


@pytest.fixture
def every_third(request):
    """Returns every third of some tensors, or with --exhaustive all; layers have the same ones."""
    return lambda names: list(names)[:: 1 if request.config.getoption("--exhaustive") else 3]


def test_C15_partial_weights_are_refused_in_every_family(name, family_directory, every_third):
    """Remove tensors of the encoder and of the head in turn."""
    tensors, family = weights(family_directory), form_of(name)
    head = family.heads[HEADS.get(name, "masked_lm")]
    # determined by the settings; or the only tensor of its head
    optional = ("unmask.", "roformer.encoder.embed_positions", "lm_loss.bias", "lm_head.weight")
    lacking = [key for key in tensors if not key.startswith(optional)]
    assert len(lacking) > 10
    for key in every_third(lacking):
        put(family_directory, {other: value for other, value in tensors.items() if other != key})
        assert_read_refused(family_directory, key.removeprefix(family.prefix), "missing")
    assert all(any(key.startswith(part) for key in tensors) for part in head.values())


def test_a_wrong_shape_is_refused_in_every_family(name, family_directory, every_third):
    tensors, family = weights(family_directory), form_of(name)
    for key in every_third(tensors):
        if key.startswith("unmask."):
            continue
        put(family_directory, tensors | {key: torch.ones(3, 5)})
        assert_read_refused(family_directory, key.removeprefix(family.prefix).rpartition(".")[0])


def test_sizes_are_checked_without_torchs_compiler():
    program = """if True:
        import sys
        from unmask.families.checkpoints.check import check_size
        from unmask.recipes.recipe import read_recipe
        for name in ("bert-mini", "modernbert-tiny", "elmo-mini"):
            check_size(lambda: read_recipe(name).encoder.build(100), "")
        print("torch._dynamo" in sys.modules)
    """
    done = forking.run(["-c", program], imported="torch")
    assert done.stdout == "False\n", "importing it takes a second"


class ListSettings(BertSettings, frozen=True, kw_only=True, tag="list"):
    """Settings of a plug-in, with a field that has no hash."""

    listed: list[int]


def test_bodies_without_memory_are_shared_by_equal_settings_of_any_fields():
    def body(*listed):
        shape = ListSettings(layers=1, width=16, heads=2, feed_forward=32, positions=8, listed=[*listed])
        return body_on_meta(shape, 10)

    assert body(1, 2) is body(1, 2)
    assert body(1, 2) is not body(1, 3)
    assert all(parameter.is_meta for parameter in body(1).parameters())
