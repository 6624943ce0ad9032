"""GPT's settings and body: causal, without segments, pooler and normalized embeddings."""

import msgspec
import pytest

from unmask.families.checkpoints import huggingface
from unmask.families.gpt import GptSettings
from unmask.model.model import load_model
from unmask.nn.encoders.encoder import BOTH_SIDES, LEFT_TO_RIGHT, POOLER
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead

SHAPE = {"layers": 1, "width": 8, "heads": 2, "positions": 12}


def test_the_body_follows_from_the_paper():
    settings = GptSettings(**SHAPE)
    assert (settings.feed_forward, settings.causal, settings.summary, settings.pretraining) == (
        32,
        True,
        "extract",
        "first",
    )
    shapes = {name: tuple(value.shape) for name, value in settings.build(20).state_dict().items()}
    assert shapes["blocks.0.feed_forward.up.weight"] == (32, 8)
    assert not any(part in name for name in shapes for part in ("segments", "pooler", "embeddings.norm"))
    assert LEFT_TO_RIGHT in settings.provides and not settings.provides & {BOTH_SIDES, POOLER}
    assert not settings.head.bias


def test_initial_weights_are_not_truncated():
    body = GptSettings(layers=1, width=64, heads=2, init_std=0.1).build(1000)
    weight = body.state_dict()["embeddings.words.weight"]
    assert weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert weight.abs().max() > 0.3


def test_what_gpt_does_not_have_is_refused():
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'gelu'"):
        msgspec.convert({"kind": "gpt", **SHAPE, "activation": "gelu"}, GptSettings)
    with pytest.raises(msgspec.ValidationError, match="unknown field `segments`"):
        msgspec.convert({"kind": "gpt", **SHAPE, "segments": 2}, GptSettings)
    with pytest.raises(ValueError, match="epsilon must lie between 0 and 1"):
        GptSettings(**SHAPE, epsilon=1.0)


def test_a_classifier_of_another_program_is_refused(tokenizer, tmp_path):
    """In transformers it reads the last token of the text itself, here one that is put after it."""
    settings = GptSettings(layers=1, width=8, heads=2, positions=16)
    head = ClassificationHead(settings.head, 2).published()
    tokenizer.save(tmp_path)
    huggingface.write(tmp_path, settings.build(tokenizer.size), {"classification": head}, ("a", "b"))
    with pytest.raises(UserError, match=r"config\.json: this classifier of another program reads texts without"):
        load_model(tmp_path)
