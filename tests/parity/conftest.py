"""Helpers shared by the comparisons with transformers: models of theirs, padded inputs, and gradients by our names."""

from dataclasses import replace

import torch
from transformers import BertConfig
from transformers.models.eurobert.modeling_eurobert import EuroBertRMSNorm
from transformers.pytorch_utils import Conv1D

from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.nn.encoders.transformer import Transformer

SETTINGS = BertSettings(layers=2, width=32, heads=4, feed_forward=64, positions=64, init_std=0.3)
"""A small BERT with weights large enough that different inputs have different outputs."""


def their_config(tokenizer, labels, **other):
    """Return transformers' configuration of a model of the shape `SETTINGS` with these labels."""
    return BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=SETTINGS.width,
        num_hidden_layers=SETTINGS.layers,
        num_attention_heads=SETTINGS.heads,
        intermediate_size=SETTINGS.feed_forward,
        max_position_embeddings=SETTINGS.positions,
        initializer_range=SETTINGS.init_std,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        **other,
    )


def load_theirs(kind, directory):
    """Load a directory with a class of transformers, and check that all weights match."""
    theirs, report = kind.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values()), report
    return theirs.eval()


@torch.no_grad()
def scale(model, factor):
    """Scale up weights and draw biases and LayerNorms at random, so that every parameter affects the outputs."""
    linear = torch.nn.Linear | Conv1D
    rms_norm = torch.nn.RMSNorm | EuroBertRMSNorm
    for module in model.modules():
        if isinstance(module, linear):
            module.weight.mul_(factor)
        if isinstance(module, torch.nn.LayerNorm | rms_norm):
            module.weight.normal_(1, 0.3)
        if isinstance(module, linear | torch.nn.LayerNorm) and module.bias is not None:
            module.bias.normal_(0, 0.3)
        if not isinstance(module, linear | torch.nn.LayerNorm | rms_norm | torch.nn.Embedding):
            for parameter in module.parameters(recurse=False):  # XLNet's attention
                parameter.mul_(factor)
    return model.eval()


def pad(samples):
    """Return token ids, segments and attention mask of samples, each (samples, longest)."""
    ids, segments, mask = (torch.zeros(len(samples), max(map(len, samples)), dtype=torch.int64) for _ in range(3))
    for row, sample in enumerate(samples):
        ids[row, : len(sample)] = torch.from_numpy(sample.ids)
        segments[row, : len(sample)] = torch.from_numpy(sample.segments)
        mask[row, : len(sample)] = 1
    return ids, segments, mask


def gradients_by_our_names(theirs, directory, heads=None):
    """Return the gradients of transformers' model by our names of the parameters.

    Gradients have the names and shapes of weights: they are saved like a checkpoint, which is then read by us.

    Args:
        theirs: the model, after the backward pass.
        directory: to write; it must not exist.
        heads: the heads to return; None: all.
    """
    gradients = {name: value.grad.contiguous() for name, value in theirs.named_parameters() if value.grad is not None}
    query = dict(theirs.named_parameters()).get("transformer.mask_emb")  # XLNet's, which heads of tasks do not use
    unused = {"transformer.mask_emb": query.data} if query is not None and query.grad is None else {}
    theirs.save_pretrained(directory, state_dict=gradients | unused)  # under the names of published files
    read = huggingface.read(directory)
    found = {f"encoder.{name}": value for name, value in read.encoder.items() if not unused or name != "query"}
    for head in read.heads if heads is None else heads:
        found |= {f"objectives.{head}.{name}": value for name, value in read.heads[head].items()}
    return found


def our_gradients(learner):
    """Return the gradients of a learner, without parameters that have none."""
    return {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}


def assert_same_gradients(ours, theirs, *, slack=0.0, zero=()):
    """Check that gradients agree within 1e-4 of their norm.

    Args:
        ours: by name.
        theirs: by the same names.
        slack: additional tolerance of each difference.
        zero: names of gradients that are 0 in theory; their norms are compared with the largest norm instead.
    """
    assert ours.keys() == theirs.keys()
    largest = max(value.norm() for value in theirs.values())
    for name, value in theirs.items():
        if name in zero:
            assert max(value.norm(), ours[name].norm()) <= 1e-5 * largest, f"gradient of {name}: not 0"
        else:
            difference, norm = (ours[name].float() - value).norm(), value.norm()
            assert difference <= 1e-4 * norm + slack, f"gradient of {name}: {difference} of {norm}"


def change_tokens(monkeypatch, change):
    """Plant a fault: replace fields of the tokens that the encoder reads by those that `change` returns."""
    forward = Transformer.forward
    monkeypatch.setattr(
        Transformer, "forward", lambda self, tokens, *more: forward(self, replace(tokens, **change(tokens)), *more)
    )
