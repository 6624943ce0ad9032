"""NeoBERT beside an independent reference, which follows the description of the published model.

The reference is written with complex numbers and a padded batch of one sequence, and reads the file that we write.
"""

import json

import pytest
import safetensors.torch
import torch
from torch.nn.functional import linear, silu

from unmask.data.batches.batch import Sample, collate
from unmask.families.checkpoints import huggingface
from unmask.families.neobert import NeoBertSettings
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead

from .conftest import assert_exported, assert_served

SHAPE = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 40}
SETTINGS = NeoBertSettings(**SHAPE, init_std=0.3)
VOCABULARY = 50


def norm(x, weight, epsilon=1e-5):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight


def rotate(x):
    """Return (length, heads, head width) rotated: adjacent pairs are complex numbers."""
    length, _, size = x.shape
    angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    turned = (
        torch.view_as_complex(x.reshape(length, -1, size // 2, 2))
        * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    return torch.view_as_real(turned).flatten(2)


def reference(tensors, ids, heads=2, layers=2):
    """Return the output of the body for one sequence, (length, width), from tensors by their published names."""
    x = tensors["model.encoder.weight"][ids]
    length, width = x.shape
    for number in range(layers):
        layer = {
            name.removeprefix(f"model.transformer_encoder.{number}."): value
            for name, value in tensors.items()
            if name.startswith(f"model.transformer_encoder.{number}.")
        }
        projected = linear(norm(x, layer["attention_norm.weight"]), layer["qkv.weight"])
        query, key, value = projected.view(length, heads, 3 * width // heads).chunk(3, -1)
        scores = torch.einsum("ihd,jhd->hij", rotate(query), rotate(key)) / (width // heads) ** 0.5
        mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), value).reshape(length, width)
        x = x + linear(mixed, layer["wo.weight"])
        first, second = linear(norm(x, layer["ffn_norm.weight"]), layer["ffn.w12.weight"]).chunk(2, -1)
        x = x + linear(silu(first) * second, layer["ffn.w3.weight"])
    return norm(x, tensors["model.layer_norm.weight"])


def build(settings=SETTINGS):
    torch.manual_seed(0)
    body = settings.build(VOCABULARY).eval()
    for name, parameter in body.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1, 0.3)
    return body


def read_file(directory):
    tensors = safetensors.torch.load_file(directory / "model.safetensors")
    return {name: value.requires_grad_() for name, value in tensors.items()}


def test_outputs_masked_lm_logits_and_gradients_are_those_of_the_reference(tmp_path):
    body = build()
    head = OBJECTIVES["masked_lm"]().build(BuildContext(body))
    torch.nn.init.normal_(head.decoder.bias)
    huggingface.write(tmp_path / "model", body, {"masked_lm": head.state_dict()})
    tensors = read_file(tmp_path / "model")
    ids = torch.arange(3, 20)
    expected = reference(tensors, ids)
    logits = linear(expected, tensors["decoder.weight"], tensors["decoder.bias"])
    every = torch.arange(17).numpy()
    batch = collate([Sample(key=(0,), ids=ids.numpy(), positions={"masked": every})])
    encoded = body(batch.tokens)
    torch.testing.assert_close(encoded.last, expected, rtol=0, atol=1e-5)
    ours = head.predict(body, encoded, batch)
    torch.testing.assert_close(ours, logits, rtol=0, atol=1e-5 * float(logits.detach().abs().max()))

    weights = torch.randn(logits.shape)
    (ours * weights).sum().backward()
    (logits * weights).sum().backward()
    gradients = tmp_path / "gradients"
    gradients.mkdir()
    safetensors.torch.save_file(
        {name: value.grad for name, value in tensors.items() if value.grad is not None}, gradients / "model.safetensors"
    )
    (gradients / "config.json").write_text((tmp_path / "model/config.json").read_text())
    found = huggingface.read(gradients)
    for part, values in ((body, found.encoder), (head, found.heads["masked_lm"])):
        parameters = dict(part.named_parameters())
        for name, value in values.items():
            assert (parameters[name].grad - value).norm() <= 1e-4 * value.norm(), name
    assert len(found.encoder) == len([name for name, _ in body.named_parameters() if "pooler" not in name])


def test_a_directory_is_read_as_it_is_written(tmp_path):
    body = build()
    heads = {"classification": ClassificationHead(SETTINGS.head, 2).state_dict()}
    huggingface.write(tmp_path, body, heads, ("a", "b"))
    found = huggingface.read(tmp_path)
    assert (found.settings, found.vocabulary, found.labels) == (SETTINGS, VOCABULARY, ("a", "b"))
    assert all(value.equal(found.encoder[name]) for name, value in body.state_dict().items())
    assert {"dense.weight", "dense.bias", "classifier.weight"} < read_file(tmp_path).keys()


def test_the_published_config_is_read(tmp_path):
    published = {
        **{"architectures": ["NeoBERTLMHead"], "model_type": "neobert", "vocab_size": 30522, "max_length": 4096},
        **{"hidden_size": 768, "num_hidden_layers": 28, "num_attention_heads": 12, "intermediate_size": 3072},
        **{"hidden_act": "SwiGLU", "norm_eps": 1e-05, "embedding_init_range": 0.02, "decoder_init_range": 0.02},
        **{"pad_token_id": 0, "dropout": 0},
    }
    (tmp_path / "config.json").write_text(json.dumps(published))
    assert huggingface.read_settings(tmp_path) == NeoBertSettings(layers=28, width=768, heads=12, feed_forward=2048)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope": False}, "rope: False is not supported, only True"),
        ({"ngpt": True}, "ngpt: True is not supported, only False"),
        ({"hidden_act": "gelu"}, "unknown hidden_act 'gelu'"),
    ],
)
def test_variants_of_the_published_code_are_refused(changes, message, tmp_path):
    huggingface.write(tmp_path, build(), {})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(UserError, match=message):
        huggingface.read(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"feed_forward": 20}, "feed_forward must be a multiple of 8"), ({"width": 6}, "heads of even width, not 3")],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NeoBertSettings(**SHAPE | settings)


def test_a_model_is_exported_and_served(tokenizer, tmp_path):
    settings = NeoBertSettings(**SHAPE | {"layers": 1}, init_std=0.3)
    assert_exported(settings, tokenizer, tmp_path)
    assert_served(settings, tokenizer)
