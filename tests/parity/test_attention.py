"""Attention probabilities of each family beside those of transformers, for the same weights."""

import numpy as np
import pytest
import torch

from unmask.data.batches.frame import Frame
from unmask.inference.influence import read_attention
from unmask.nn.layers import plain_attention, relative_kernels

from .conftest import scale
from .test_family import EXTRACT, SHAPES, from_theirs, theirs_of

HEADS = {"gpt": "causal_lm", "xlnet": "classification"}
FAMILIES = [shape for shape in SHAPES if "," not in shape]


def pair(shape):
    """Return a pair of texts as the family reads it."""
    rng = np.random.default_rng(0)
    summary = {"gpt": "extract", "xlnet": "last"}.get(shape, "first")
    frame = Frame(cls=2, sep=3, extract=EXTRACT if summary == "extract" else None, last=summary == "last")
    return frame.wrap(rng.integers(5, 300, 20), rng.integers(5, 300, 17))


def both(shape, directory):
    """Return our attention and that of transformers, (layers, heads, tokens, tokens)."""
    head = HEADS.get(shape, "masked_lm")
    theirs = scale(theirs_of(shape, head, attn_implementation="eager"), 8)
    sample = pair(shape)
    inputs = {"input_ids": torch.from_numpy(sample.ids)[None]}
    if getattr(theirs.config, "type_vocab_size", 1) > 1 or shape == "xlnet":
        inputs["token_type_ids"] = torch.from_numpy(sample.segments)[None]
    expected = torch.cat(theirs(**inputs, output_attentions=True).attentions).detach().numpy()
    return read_attention(from_theirs(theirs, head, directory).encoder, sample), expected


@pytest.mark.parametrize("shape", FAMILIES)
def test_attention_equals_that_of_transformers(shape, tmp_path):
    ours, theirs = both(shape, tmp_path / "theirs")
    assert ours.shape == theirs.shape == (len(ours), 4, 40, 40)
    assert len(ours) == SHAPES[shape][1].get("num_hidden_layers", 2)
    assert np.abs(ours - theirs).max() < 1e-5
    assert np.abs(theirs - 1 / 40).max() > 0.05, "not uniform"


def test_bert_equals_transformers_too(tmp_path, monkeypatch):
    monkeypatch.setitem(SHAPES, "bert", ("Bert", {**SHAPES["electra, not narrow"][1], "max_position_embeddings": 128}))
    ours, theirs = both("bert", tmp_path / "theirs")
    assert np.abs(ours - theirs).max() < 1e-5


def test_planted_faults_are_found(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:  # local attention that attends to everything
        patch.setattr(plain_attention, "attended_positions", lambda group, spec, device: None)
        ours, theirs = both("modernbert", tmp_path / "local")
        assert np.abs(ours - theirs).max() > 1e-3
    shift = relative_kernels._shift
    with monkeypatch.context() as patch:  # distances off by one key
        patch.setattr(relative_kernels, "_shift", lambda *given: shift(*given).roll(1, -1))
        ours, theirs = both("xlnet", tmp_path / "shifted")
        assert np.abs(ours - theirs).max() > 1e-3
