"""Parity with transformers' BertForPreTraining: the same weights have the same outputs, losses and gradients.

Both directions are tested: its `save_pretrained` read by us, our directory read by its `from_pretrained`. Weights are
scaled up, and biases and LayerNorms are drawn at random, so that outputs differ between inputs and every parameter
affects them.

Outputs agree within 1e-5 of their largest magnitude (at least 1: logits of scaled weights are far from 1), each
parameter's gradient within 1e-4 of its norm. Gradients are compared in our layout, where query, key and value are one
tensor, because the gradient of a key's bias alone is 0 in theory and noise in practice.
"""

from contextlib import nullcontext

import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import BertConfig, BertForPreTraining

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.checkpoints import huggingface
from unmask.nn.layers import fused_attention, score_blocks
from unmask.nn.layers.block import SelfAttention
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import Pooler
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.next_sentence import NextSentence
from unmask.objectives.objective import BuildContext

from .conftest import (
    assert_same_gradients,
    change_tokens,
    gradients_by_our_names,
    load_theirs,
    our_gradients,
    pad,
    scale,
)

SIZES = {
    "2x128": {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2},
    "4x256": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4},
    "3x96": {"num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 12, "hidden_act": "gelu_new"},
}
TEXTS = [(n,) for n in (1, 2, 17, 128, 510)] + [(1, 1), (5, 9), (100, 200), (3, 506)]
SHORT = [(n,) for n in (1, 2, 17, 60)] + [(1, 1), (5, 9), (20, 30)]


def config(size, **other):
    width = SIZES[size]["hidden_size"]
    return BertConfig(vocab_size=1000, intermediate_size=4 * width, **SIZES[size] | other)


def ragged(texts, vocabulary):
    """Return texts and pairs of random tokens; the first token and a seventh of the others are masked."""
    rng, frame = np.random.default_rng(0), Frame(cls=2, sep=3)
    made = []
    for number, lengths in enumerate(texts):
        sample = frame.wrap(*(rng.integers(5, vocabulary, n) for n in lengths)).named((number,))
        masked = np.unique(np.append(rng.integers(0, len(sample), len(sample) // 7), 0))
        gold = rng.integers(0, vocabulary, len(masked))
        labels = {"masked": gold, "next_sentence": np.array([number % 2])}
        counts = {"masked_lm": len(masked), "next_sentence": 1}
        made.append(sample.add(positions={"masked": masked}, labels=labels, counts=counts))
    return made


def from_theirs(theirs, directory):
    """Return our learner with the weights of transformers' model, read from the directory that it writes."""
    theirs.save_pretrained(directory)
    found = huggingface.read(directory)
    encoder = found.settings.build(found.vocabulary)
    encoder.load_state_dict(found.encoder)
    learner = Learner(encoder, heads(encoder))
    for name, part in learner.parts.items():
        part.load_state_dict(found.heads[name])
    return learner.eval()


def heads(encoder):
    return {
        "masked_lm": MaskedLM(BuildContext(encoder)),
        "next_sentence": NextSentence(BuildContext(encoder)),
    }


def to_theirs(learner, directory):
    """Return transformers' model with our weights, loaded from the directory that we write."""
    huggingface.write(directory, learner.encoder, {name: part.state_dict() for name, part in learner.parts.items()})
    return load_theirs(BertForPreTraining, directory)


def run_theirs(theirs, samples, directory):
    """Return outputs in the order of our batch, the loss that transformers computes, and gradients by our names."""
    samples = [samples[number] for (number,) in collate(samples).keys]
    ids, segments, mask = pad(samples)
    labels = torch.full_like(ids, -100)
    for row, sample in enumerate(samples):
        labels[row, sample.positions["masked"]] = torch.from_numpy(sample.labels["masked"])
    kinds = torch.tensor([int(sample.labels["next_sentence"][0]) for sample in samples])
    body = theirs.bert(ids, attention_mask=mask, token_type_ids=segments)
    out = theirs(ids, attention_mask=mask, token_type_ids=segments, labels=labels, next_sentence_label=kinds)
    theirs.zero_grad()
    out.loss.backward()
    assert all(parameter.grad is not None for parameter in theirs.parameters())
    gradients = gradients_by_our_names(theirs, directory)
    outputs = {
        "last": body.last_hidden_state[mask.bool()],
        "pooled": body.pooler_output,
        "masked_lm": out.prediction_logits[labels >= 0],
        "next_sentence": out.seq_relationship_logits,
        "loss": out.loss,
    }
    return {name: value.detach() for name, value in outputs.items()}, gradients


def run_ours(learner, samples):
    batch = collate(samples)
    encoded = learner.encoder(batch.tokens)
    outputs = {"last": encoded.last, "pooled": learner.encoder.pooler(encoded.last[batch.positions["summary"]])}
    outputs |= {name: part.predict(learner.encoder, encoded, batch) for name, part in learner.parts.items()}
    outputs["loss"] = sum(part.sum / batch.counts[name] for name, part in learner(batch).items())
    learner.zero_grad()
    outputs["loss"].backward()
    return {name: value.detach() for name, value in outputs.items()}, our_gradients(learner)


def assert_parity(learner, theirs, samples, directory):
    expected, their_gradients = run_theirs(theirs, samples, directory)
    outputs, gradients = run_ours(learner, samples)
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        assert outputs[name].shape == value.shape, name
        worst = (outputs[name] - value).abs().max()
        assert worst <= 1e-5 * max(1, value.abs().max()), f"{name}: {worst}"
    for name, value in their_gradients.items():
        assert value.any(), f"the gradient of {name} is 0"
    assert_same_gradients(gradients, their_gradients)
    return outputs


def assert_outputs_differ(outputs):
    """Check that no two rows are closer than a hundred tolerances, as they would be if only [CLS] were read."""
    for name in ("pooled", "next_sentence", "masked_lm"):
        assert torch.pdist(outputs[name]).min() > 1e-3, name


@pytest.mark.parametrize("size", ["2x128", pytest.param("4x256", marks=pytest.mark.exhaustive), "3x96"])
def test_parity_of_their_directory(size, tmp_path):
    theirs = scale(BertForPreTraining(config(size)), 3)
    learner = from_theirs(theirs, tmp_path / "theirs")
    assert_outputs_differ(assert_parity(learner, theirs, ragged(TEXTS, 1000), tmp_path / "gradients"))


@pytest.mark.parametrize("size", ["2x128", pytest.param("4x256", marks=pytest.mark.exhaustive), "3x96"])
def test_parity_of_our_directory(size, tmp_path):
    theirs = BertForPreTraining(config(size))
    learner = scale(from_theirs(theirs, tmp_path / "shape"), 3)
    torch.nn.init.normal_(learner.objectives["masked_lm"].bias)
    theirs = to_theirs(learner, tmp_path / "ours")
    assert_outputs_differ(assert_parity(learner, theirs, ragged(SHORT, 1000), tmp_path / "gradients"))


@pytest.mark.minilm
def test_parity_of_a_published_checkpoint(minilm, tmp_path):
    found = huggingface.read(minilm)
    encoder = found.settings.build(found.vocabulary)
    encoder.load_state_dict(found.encoder)
    learner = Learner(encoder, heads(encoder)).eval()
    theirs = to_theirs(learner, tmp_path / "ours")
    published = safetensors.torch.load_file(minilm / "model.safetensors")
    state = theirs.bert.state_dict()
    assert state.keys() == {name.removeprefix("bert.") for name in published if "position_ids" not in name}
    assert all(torch.equal(value, published[name].float()) for name, value in state.items())
    samples = ragged([(1,), (2,), (17,), (128,), (5, 9), (40, 60)], 30522)
    assert_outputs_differ(assert_parity(learner, theirs, samples, tmp_path / "gradients"))


def change_decoder(monkeypatch, change):
    right = MaskedLM.decoding

    def decoding(self, *given):
        found = right(self, *given)
        return found._replace(decoder=change(found.decoder))

    monkeypatch.setattr(MaskedLM, "decoding", decoding)


def change_modules(learner, kind, **attributes):
    for module in learner.modules():
        if isinstance(module, kind):
            vars(module).update(attributes)


def attend_to_padding(monkeypatch):
    """Plant a fault in attention that pads, as it is where there are no panels."""
    right = score_blocks.by_rows
    monkeypatch.setattr(fused_attention, "panels_multiply", lambda dtype: False)
    monkeypatch.setattr(score_blocks, "by_rows", lambda bias, heads: right(0 * bias, heads))


def pool_losses(monkeypatch):
    """Plant a fault: one mean over the terms of both losses."""
    forward = Learner.forward

    def pooled(self, batch):
        total = sum(batch.counts.values())
        parts = forward(self, batch).items()
        return {name: part._replace(sum=part.sum * batch.counts[name] / total) for name, part in parts}

    monkeypatch.setattr(Learner, "forward", pooled)


def swap_query_and_key(learner):
    weight = learner.encoder.blocks[0].attention.qkv.weight
    weight.data = weight.data.view(3, -1, 128)[[1, 0, 2]].reshape(weight.shape)


FAULTS = {  # the fault planted in our model, and the output that the comparison must report
    "epsilon": (lambda ours, patch: change_modules(ours, torch.nn.LayerNorm, eps=1e-5), "last"),
    "large epsilon": (lambda ours, patch: change_modules(ours, torch.nn.LayerNorm, eps=1e-2), "last"),
    "tanh for exact gelu": (lambda ours, patch: change_modules(ours, torch.nn.GELU, approximate="tanh"), "last"),
    "segments dropped": (
        lambda ours, patch: change_tokens(patch, lambda tokens: {"segments": torch.zeros_like(tokens.segments)}),
        "last",
    ),
    "positions off by one": (
        lambda ours, patch: change_tokens(patch, lambda tokens: {"position_ids": tokens.position_ids + 1}),
        "last",
    ),
    "padding seen": (lambda ours, patch: attend_to_padding(patch), "last"),
    "twice the heads": (
        lambda ours, patch: change_modules(ours, SelfAttention, spec=AttentionSpec(heads=4)),
        "last",
    ),
    "query for key": (lambda ours, patch: swap_query_and_key(ours), "last"),
    "dropout on": (lambda ours, patch: ours.encoder.blocks[1].dropout.train(), "last"),
    "pooler without tanh": (
        lambda ours, patch: patch.setattr(Pooler, "forward", torch.nn.Linear.forward),
        "pooled",
    ),
    "head's bias": (lambda ours, patch: ours.parts["masked_lm"].bias.data.zero_(), "masked_lm"),
    "untied decoder": (lambda ours, patch: change_decoder(patch, lambda weight: weight.flip(0)), "masked_lm"),
    "untied gradient": (
        lambda ours, patch: change_decoder(patch, lambda weight: weight.detach()),
        "gradient of encoder.embeddings.words.weight",
    ),
    "losses pooled": (lambda ours, patch: pool_losses(patch), "loss"),
}


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_parity_notices_a_planted_fault(fault, tmp_path, monkeypatch):
    theirs = scale(BertForPreTraining(config("2x128")), 3)
    torch.nn.init.normal_(theirs.cls.predictions.bias)
    learner = from_theirs(theirs, tmp_path / "theirs")
    plant, complaint = FAULTS.get(fault, (lambda ours, patch: None, ""))
    plant(learner, monkeypatch)
    with pytest.raises(AssertionError, match=f"^{complaint}: ") if fault else nullcontext():
        assert_parity(learner, theirs, ragged(SHORT, 1000), tmp_path / "gradients")
