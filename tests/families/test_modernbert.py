"""ModernBERT's global and local layers, its settings in config.json, its initial weights, and long sequences."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from tests.nn.kernels import set_kernel
from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.frame import Frame
from unmask.families.checkpoints import huggingface
from unmask.families.modernbert import GLOBAL, LOCAL, ModernBertSettings, read_attention, write_attention
from unmask.model.model import Model, load_model, save_model
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.nn.layers.score_blocks import Blocks, choose
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead

SHAPE = {"layers": 4, "width": 16, "heads": 2, "feed_forward": 24, "positions": 40}
SETTINGS = ModernBertSettings(**SHAPE, window=3)
build = partial(ModernBertSettings, **SHAPE)


def test_every_third_layer_is_global_and_has_the_other_base():
    blocks = build(layers=7).build(20).blocks
    attention = [block.attention for block in blocks]
    assert [part.spec.window for part in attention] == [None, 64, 64, None, 64, 64, None]
    assert [part.spec.rotation.base for part in attention] == [
        160_000.0 if part.spec.window is None else 1e4 for part in attention
    ]
    assert not any(part.spec.rotation.interleaved for part in attention)
    assert [block.attention_norm is None for block in blocks] == [True] + [False] * 6
    assert [block.final_norm is None for block in blocks] == [True] * 6 + [False]
    assert all(block.attention.spec.window is None for block in build(global_every=1).build(20).blocks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 6}, "rotary positions require heads of even width, not 3"),
        *(({name: 0}, f"{name} must be at least 1") for name in ("feed_forward", "window", "global_every")),
        ({"initial_offsets": (-1, 1)}, "initial_offsets are set by biases: set attention_bias = true"),
        ({"epsilon": 0.0}, "epsilon must lie between 0 and 1"),
        *(({"local_base": base}, "local_base must be above 1") for base in (1.0, float("inf"), float("nan"))),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ModernBertSettings(**SHAPE | settings)


OWN = {"layers": 5, "global_every": 2, "window": 7, "global_base": 5e4, "local_base": 3e3}


@pytest.mark.parametrize("spelling", ["ours", "transformers 5"])
def test_attention_is_read_as_it_is_written(spelling):
    config = write_attention(ModernBertSettings(**SHAPE | OWN))
    assert config == {
        "global_attn_every_n_layers": 2,
        "local_attention": 14,
        "global_rope_theta": 5e4,
        "local_rope_theta": 3e3,
    }
    if spelling != "ours":
        config = transformers.ModernBertConfig(num_hidden_layers=5, **config).to_dict()
        assert "global_rope_theta" not in config
    expected = {name: value for name, value in OWN.items() if name != "layers"}
    assert read_attention(config, {"layers": 5}) == expected


PUBLISHED = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_dropout": 0.0,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "embedding_dropout": 0.0,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "reference_compile": None,
    "vocab_size": 50368,
}


@pytest.mark.parametrize("positions", ["absolute", "sans_pos"])
def test_published_configs_are_read(positions, tmp_path):
    """`sans_pos` is in configs of models that were converted from the training code, and has no effect."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | {"position_embedding_type": positions}))
    expected = ModernBertSettings(layers=22, width=768, heads=12, feed_forward=1152, classifier_pooling="mean")
    assert huggingface.read_settings(tmp_path) == expected


def test_defaults_are_those_of_transformers():
    settings = build()
    assert read_attention({}, {"layers": 4}) == {"global_every": 3, "window": 64}
    theirs = read_attention(transformers.ModernBertConfig().to_dict(), {"layers": 22})
    assert theirs == {name: getattr(settings, name) for name in theirs}
    assert len(theirs) == 4


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"norm_bias": True}, "norm_bias: True is not supported, only False"),
        ({"decoder_bias": False}, "decoder_bias: False is not supported, only True"),
        ({"classifier_activation": "silu"}, "classifier_activation: .silu. is not supported, only .gelu."),
        ({"layer_types": [LOCAL] * 4}, "layer_types: not one per layer, of which the first is full_attention"),
        ({"layer_types": [GLOBAL] * 3}, "layer_types: not one per layer"),
        ({"layer_types": [GLOBAL, LOCAL, GLOBAL, GLOBAL]}, "layer_types: full_attention is not every 2 layers"),
        ({"local_attention": "128"}, "local_attention must be an integer"),
        ({"rope_parameters": {GLOBAL: {"rope_type": "yarn"}}}, "rope_type: 'yarn' is not supported, only 'default'"),
    ],
)
def test_what_is_not_supported_is_refused(config, message):
    with pytest.raises(TypeError, match=message):
        read_attention(config, {"layers": 4})


def test_weights_are_initialized_as_in_transformers():
    """The body; heads are drawn with `init_std` here."""
    torch.manual_seed(0)
    ours = ModernBertSettings(layers=2, width=256, heads=4, feed_forward=384).build(2000).state_dict()
    shape = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 384, "vocab_size": 2000}
    theirs = transformers.ModernBertModel(
        transformers.ModernBertConfig(num_hidden_layers=2, pad_token_id=None, **shape)
    )
    weights = theirs.state_dict()
    for name, expected in (
        ("embeddings.words", weights["embeddings.tok_embeddings.weight"]),
        ("blocks.1.attention.qkv", weights["layers.1.attn.Wqkv.weight"]),
        ("blocks.1.attention.out", weights["layers.1.attn.Wo.weight"]),
        ("blocks.0.feed_forward.up", weights["layers.0.mlp.Wi.weight"]),
        ("blocks.0.feed_forward.down", weights["layers.0.mlp.Wo.weight"]),
    ):
        found = ours[f"{name}.weight"]
        assert float(found.std()) == pytest.approx(float(expected.std()), rel=0.02), name
        assert float(found.abs().max()) == pytest.approx(float(expected.abs().max()), rel=0.02), name
    assert (ours["blocks.1.final_norm.weight"] == 1).all()


def tokens_of(*lengths):
    rng = np.random.default_rng(0)
    return collate([Sample(key=(n,), ids=rng.integers(5, 50, length)) for n, length in enumerate(lengths)]).tokens


def test_the_last_layer_is_normalized():
    body, tokens = SETTINGS.build(50).eval(), tokens_of(9, 20)
    encoded = body(tokens, Keep(frozenset({0, 3, 4}), frozenset({1, 2})))
    assert encoded.last.equal(encoded.layers[4])
    torch.testing.assert_close(encoded.last.mean(1), torch.zeros(29), rtol=0, atol=1e-5)
    assert encoded.layers[3].mean(1).abs().max() > 1e-4
    first, second = (encoded.scores[number][0] for number in (1, 2))
    assert first[1, 0, 0].all() and not second[1, 0, 0, 4:].any()
    body.recompute = True
    assert body(tokens).last.equal(encoded.last)


def hidden_states(body, directory):
    """Return all layers of a sequence of 25 tokens, ours and those of transformers."""
    huggingface.write(directory, body, {})
    theirs = transformers.AutoModel.from_pretrained(directory).eval()
    tokens = tokens_of(25)
    with torch.no_grad():
        ours = body(tokens, Keep(frozenset(range(5)))).layers
        expected = theirs(tokens.ids[None], output_hidden_states=True).hidden_states
    return [ours[number] for number in range(5)], [layer[0] for layer in expected]


def respecify(attention, **changes):
    attention.spec = replace(attention.spec, **changes)


FAULTS = {
    "none": lambda body: None,
    "window": lambda body: respecify(body.blocks[1].attention, window=4),
    "rotation": lambda body: respecify(body.blocks[1].attention, rotation=body.blocks[0].attention.spec.rotation),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_hidden_states_are_those_of_transformers(fault, tmp_path):
    """The last one is normalized in both. A window that is one too large and the wrong rotation are noticed."""
    torch.manual_seed(0)
    body = ModernBertSettings(**SHAPE, window=3, init_std=0.5).build(50).eval()
    FAULTS[fault](body)
    ours, expected = hidden_states(body, tmp_path)
    assert len(ours) == len(expected)
    same = [
        bool((one - other).abs().max() <= 1e-5 * other.abs().max()) for one, other in zip(ours, expected, strict=True)
    ]
    assert same == [True, True, *[fault == "none"] * 3]


def test_narrower_layers_have_the_same_pattern():
    body = SETTINGS.build(50)
    blocks = [body.block(number, 8, 1) for number in range(4)]
    assert [block.attention.spec.window for block in blocks] == [None, 3, 3, None]
    assert blocks[1].feed_forward.up.weight.shape == (24, 8)
    assert blocks[0].attention_norm is None and blocks[3].final_norm is not None
    part = OBJECTIVES["replaced_token"]().build(BuildContext(body))
    assert [block.attention.spec.window for block in part.generator.blocks] == [None, 3, 3, None]


@pytest.mark.parametrize("heads", [("masked_lm",), ("masked_lm", "sentence_order")], ids=str)
def test_the_pooler_is_the_dense_layer_of_the_masked_lm_head_unless_it_was_trained(heads, tmp_path):
    torch.manual_seed(0)
    body = SETTINGS.build(50)
    parts = {name: OBJECTIVES[name]().build(BuildContext(body)).state_dict() for name in heads}
    huggingface.write(tmp_path, body, parts)
    found = huggingface.read(tmp_path)
    assert found.heads.keys() == set(heads)
    expected = parts["masked_lm"] if heads == ("masked_lm",) else body.pooler.state_dict()
    assert found.encoder["pooler.dense.weight"].equal(expected["dense.weight"])
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert theirs.head.dense.weight.equal(parts["masked_lm"]["dense.weight"])


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_a_task_head_without_its_dense_layer_is_refused(kind, tmp_path):
    head = {"TokenClassification": "token_classification", "QuestionAnswering": "question_answering"}.get(kind)
    body = SETTINGS.build(50)
    out = {"out.weight": torch.zeros(2, 16), "out.bias": torch.zeros(2)}
    huggingface.write(tmp_path, body, {head or "classification": out})
    assert huggingface.read(tmp_path).heads.keys() == {head or "classification"}
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    for name in ("head.dense.weight", "head.norm.weight"):
        lacking = {key: value for key, value in state.items() if key != name}
        safetensors.torch.save_file(lacking, tmp_path / "model.safetensors")
        with pytest.raises(UserError, match=f"{name}.* missing|missing, first {name}"):
            huggingface.read(tmp_path)


def test_a_wordpiece_vocabulary_is_written_for_transformers(tokenizer, tmp_path):
    body = SETTINGS.build(tokenizer.size)
    heads = {"classification": ClassificationHead(SETTINGS.head, 2).state_dict()}
    save_model(tmp_path, Model(body, tokenizer, heads, ("a", "b")), "card")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    first, second = tokenizer.encode("the dog"), tokenizer.encode("a river")
    inputs = theirs("the dog", "a river", return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == Frame.of(tokenizer).wrap(first, second).ids.tolist()
    assert "token_type_ids" not in inputs
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert model(**inputs).logits.shape == (1, 2)
    assert load_model(tmp_path).labels == ("a", "b")


@pytest.mark.parametrize("length", [4096, pytest.param(8192, marks=pytest.mark.exhaustive)])
def test_thousands_of_tokens_on_the_fused_kernel(length):
    settings = ModernBertSettings(layers=2, width=16, heads=2, feed_forward=16)
    body, tokens = settings.build(50).eval(), tokens_of(length)
    ours = body(tokens).last
    ours.sum().backward()
    assert ours.isfinite().all() and body.words.weight.grad.isfinite().all()
    assert type(choose(tokens.groups[0], AttentionSpec(2, window=settings.window), ours)) is Blocks
    with torch.no_grad():
        short = tokens_of(1000)
        torch.testing.assert_close(body(short).last, set_kernel(body, plain)(short).last, rtol=0, atol=1e-5)


def test_the_recipe_has_the_size_of_the_published_model():
    recipe = read_recipe("modernbert-base")
    with torch.device("meta"):
        body = recipe.encoder.build(recipe.tokenizer.vocabulary)
        config = transformers.ModernBertConfig(pad_token_id=3)
        theirs = transformers.ModernBertModel(config)
    count = sum(value.numel() for value in body.parameters()) - sum(value.numel() for value in body.pooler.parameters())
    assert count == sum(value.numel() for value in theirs.parameters())
    assert write_attention(recipe.encoder)["local_attention"] == config.local_attention
