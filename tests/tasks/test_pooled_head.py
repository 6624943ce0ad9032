"""Head over the pooled [CLS]: where dropout is applied, with and without a pooler, and its costs."""

import re

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.families.checkpoints import huggingface
from unmask.families.gpt import GptSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.nn.encoders.encoder import POOLER
from unmask.nn.layers.dropout import Dropout
from unmask.objectives.flops import head_flops
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.pooled_head import PooledHead

SHAPE = {"vocab_size": 30, "num_labels": 3, "max_position_embeddings": 16}
BODY = {**SHAPE, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
DISTIL = {**SHAPE, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
ROBERTA = {**BODY, "max_position_embeddings": 18}
MODERN = {**BODY, **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0)}
FAMILIES = {  # the config, and the modules through which the vector of a text goes
    "Bert": ({**BODY, "hidden_dropout_prob": 0.2}, ["dense", 0.2, "out"]),
    "Bert, its own": ({**BODY, "hidden_dropout_prob": 0.2, "classifier_dropout": 0.3}, ["dense", 0.3, "out"]),
    "Roberta": ({**ROBERTA, "hidden_dropout_prob": 0.2}, [0.2, "dense", 0.2, "out"]),
    "Roberta, its own": ({**ROBERTA, "classifier_dropout": 0.3}, [0.3, "dense", 0.3, "out"]),
    "Albert": ({**BODY, "embedding_size": 4, "hidden_dropout_prob": 0.2}, ["dense", 0.1, "out"]),
    "Albert, its own": ({**BODY, "embedding_size": 4, "classifier_dropout_prob": 0.3}, ["dense", 0.3, "out"]),
    "Electra": ({**BODY, "embedding_size": 4, "hidden_dropout_prob": 0.2}, [0.2, "dense", 0.2, "out"]),
    "Electra, its own": ({**BODY, "embedding_size": 4, "classifier_dropout": 0.3}, [0.3, "dense", 0.3, "out"]),
    "ModernBert": ({**MODERN, "classifier_dropout": 0.3}, ["dense", 0.3, "out"]),
    "DistilBert": ({**DISTIL, "dropout": 0.1}, ["dense", 0.2, "out"]),
    "DistilBert, its own": ({**DISTIL, "seq_classif_dropout": 0.3}, ["dense", 0.3, "out"]),
}


def record_calls(modules):
    """Return a list to which modules append when they run: dropout layers their rate, linear layers their name."""
    calls = []
    for module, name in modules:
        rate = {torch.nn.Dropout: "p", Dropout: "rate"}.get(type(module))
        entry = name if rate is None else getattr(module, rate)
        module.register_forward_hook(lambda *_, entry=entry: calls.append(entry) if entry else None)
    return calls


@pytest.mark.parametrize("name", FAMILIES)
def test_dropout_is_where_transformers_has_it(name, tmp_path):
    """RoBERTa and ELECTRA also have it before the dense layer. Parity tests run without dropout and miss this."""
    config, expected = FAMILIES[name]
    kind = getattr(transformers, f"{name.partition(',')[0]}ForSequenceClassification")
    theirs = kind(kind.config_class(**config)).train()
    theirs.save_pretrained(tmp_path)
    calls = record_calls(
        (module, "out" if re.search(r"(^classifier|out_proj)$", path) else "dense")
        for path, module in theirs.named_modules()
        if isinstance(module, torch.nn.Linear | torch.nn.Dropout)
        and not re.search(r"\.(embeddings|encoder|transformer)\b|embeddings_project|^model\.", path)
    )
    sample = Frame(2, 3).wrap(np.array([5, 6, 7]))
    theirs(input_ids=torch.from_numpy(sample.ids)[None])
    assert calls == expected

    found = huggingface.read(tmp_path)
    encoder, head = found.settings.build(found.vocabulary), ClassificationHead(found.settings.head, 3)
    modules = {head.below: "", head.dropout: "", encoder.pooler: "dense", head.out: "out"}  # `below` may be `dropout`
    calls = record_calls(modules.items())
    batch = collate([sample])
    head.predict(encoder, encoder(batch.tokens), batch)
    assert calls == expected


# Pooler


def batch_of(head, *lengths):
    rng = np.random.default_rng(0)
    return collate([head.prepare(Frame(2, 3).wrap(rng.integers(5, 30, length)), "part") for length in lengths])


def test_the_pooled_vector_is_read_if_the_body_has_a_pooler():
    settings = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=16, dropout=0.0)
    encoder, head = settings.build(30), PooledHead(settings.head, 3).eval()
    batch = batch_of(head, 3, 5)
    encoded = encoder(batch.tokens)
    assert POOLER in encoder.provides
    pooled = encoder.pooler(encoded.last[batch.positions["summary"]])
    torch.testing.assert_close(head.predict(encoder, encoded, batch), head.out(pooled))


def test_the_last_hidden_state_is_read_if_the_body_has_no_pooler():
    settings = GptSettings(layers=1, width=8, heads=2, positions=16, dropout=0.0)
    encoder, head = settings.build(30), PooledHead(settings.head, 3).eval()
    batch = batch_of(head, 3, 5)
    encoded = encoder(batch.tokens)
    assert POOLER not in encoder.provides
    rows = encoded.last[batch.positions["summary"]]
    torch.testing.assert_close(head.predict(encoder, encoded, batch), head.out(rows))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_vector_of_a_text_is_that_of_cls_or_the_mean(pooling):
    settings = ModernBertSettings(layers=1, width=8, heads=2, feed_forward=16, classifier_pooling=pooling)
    encoder, head = settings.build(30), PooledHead(settings.head, 3).eval()
    batch = batch_of(head, 3, 5)
    encoded = encoder(batch.tokens)
    texts = encoded.last.split([5, 7])
    rows = torch.stack([text[0] if pooling == "cls" else text.mean(0) for text in texts])
    torch.testing.assert_close(head.predict(encoder, encoded, batch), head.out(encoder.pooler(rows)))


def test_a_sequence_is_one_term_of_the_loss_and_its_cost_is_counted_once():
    settings = BertSettings(layers=1, width=8, heads=2, feed_forward=16, positions=16)
    head = PooledHead(settings.head, 3, bias=False)
    batch = batch_of(head, 3, 5, 9)
    assert batch.counts == {"part": 3}
    assert head.out.bias is None
    assert head_flops(head, settings.build(30), batch) == 3 * 2 * (8 * 8 + 8 * 3)
