"""What no objective reads of the last layer is not computed: losses and gradients are those of computing it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.model.model import build_encoder
from unmask.nn.encoders.encoder import Keep
from unmask.objectives import learner as learner_module
from unmask.objectives.flops import forward_flops
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.next_sentence import NextSentence
from unmask.objectives.objective import BuildContext
from unmask.objectives.span_boundary import SpanBoundarySettings
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.token_classification import TokenClassificationHead

SHAPE = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 48, "positions": 64}
BODIES = {
    "bert": BertSettings(**SHAPE),
    "albert": AlbertSettings(**SHAPE, embedding=16, shared="all"),
    "modernbert": ModernBertSettings(**SHAPE),
    "mean": ModernBertSettings(**SHAPE, classifier_pooling="mean"),
}
OBJECTIVES = {
    "masked_lm": lambda body, context: {"masked_lm": MaskedLM(context)},
    "pairs": lambda body, context: {"masked_lm": MaskedLM(context), "next_sentence": NextSentence(context)},
    "spans": lambda body, context: {
        "masked_lm": MaskedLM(context),
        "span_boundary": SpanBoundarySettings().build(context),
    },
    "classification": lambda body, context: {"classification": ClassificationHead(body.head, 3)},
    "text and tags": lambda body, context: {
        "classification": ClassificationHead(body.head, 3),
        "token_classification": TokenClassificationHead(body.head, 5),
    },
    "tags": lambda body, context: {"token_classification": TokenClassificationHead(body.head, 5)},
}


def learner_of(body, objectives):
    encoder = build_encoder(BODIES[body], 100)
    return Learner(encoder, OBJECTIVES[objectives](encoder, BuildContext(encoder)))


def batch_of(learner):
    """Return three sequences of which a few tokens are read, the first one by two objectives."""
    rng, samples = np.random.default_rng(0), []
    for length in (9, 20, 31):
        masked = np.array([3, 4, 7])
        sample = Sample(key=(length,), ids=rng.integers(5, 100, length), segments=np.zeros(length, np.int64))
        positions = {"summary": np.zeros(1, np.int64), "masked": masked, "first": np.array([0, 5])}
        labels = {"masked": rng.integers(5, 100, 3), "next_sentence": np.ones(1, np.int64)}
        labels |= {"classification": np.ones(1, np.int64), "token_classification": np.array([1, 4])}
        samples.append(learner.prepare(sample.add(positions=positions, labels=labels)))
    return collate(samples)


def results(learner, batch):
    learner.zero_grad()
    loss = learner(batch)
    sum(part.sum for part in loss.values()).backward()
    gradients = {name: value.grad for name, value in learner.named_parameters() if value.grad is not None}
    return {name: part.sum.detach() for name, part in loss.items()}, gradients


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("objectives", OBJECTIVES)
@pytest.mark.parametrize("body", BODIES)
def test_losses_and_gradients_are_those_of_all_rows(body, objectives, recompute, monkeypatch):
    if objectives == "pairs" and body in ("modernbert", "mean"):
        pytest.skip("has no segments")
    torch.manual_seed(0)
    learner = learner_of(body, objectives).eval()
    learner.encoder.recompute = recompute
    batch, seen = batch_of(learner), []
    learner.encoder.blocks[-1].register_forward_hook(lambda block, inputs, output: seen.append(len(output)))
    ours = results(learner, batch)
    spared = forward_flops(learner, batch)
    monkeypatch.setattr(learner_module, "MOST_ROWS", 0)
    torch.testing.assert_close(ours, results(learner, batch), rtol=1e-5, atol=1e-6)
    whole = body == "mean" and "classification" in learner.parts
    assert (min(seen) < len(batch.tokens.ids)) == (not whole)
    assert (spared < forward_flops(learner, batch)) == (not whole)


def test_a_layer_that_is_kept_is_whole():
    torch.manual_seed(0)
    learner = learner_of("bert", "masked_lm").eval()
    batch = batch_of(learner)
    rows = batch.positions["masked"]
    found = learner.encoder(batch.tokens, Keep(frozenset({2}), rows=rows))
    assert torch.equal(found.layers[2], learner.encoder(batch.tokens).last)
    some = learner.encoder(batch.tokens, Keep(rows=rows)).last
    torch.testing.assert_close(some[rows], found.last[rows])
    assert not some.index_fill(0, rows, 0).any()


def test_a_batch_without_targets_has_a_gradient():
    learner = learner_of("bert", "masked_lm").eval()
    batch = batch_of(learner)
    empty = {"masked": torch.zeros(0, dtype=torch.int64)}
    batch = replace(batch, positions={**batch.positions, **empty}, labels={**batch.labels, **empty})
    losses, gradients = results(learner, batch)
    assert losses["masked_lm"] == 0
    assert not any(value.any() for value in gradients.values())
