"""Permutation language modeling: the loss of the query stream, what is read of the encoder, the report."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import collate
from unmask.families.xlnet import XlnetSettings
from unmask.objectives.flops import body_flops, forward_flops, head_flops
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.permutation_lm import PermutationLMSettings

VOCABULARY = 100


@pytest.fixture
def learner():
    body = XlnetSettings(layers=2, width=16, heads=2, feed_forward=32, dropout=0.0, init_std=0.3).build(VOCABULARY)
    head = PermutationLMSettings().build(BuildContext(body))
    torch.nn.init.normal_(head.bias)
    return Learner(body, {"permutation_lm": head}).eval()


@pytest.fixture
def batch(learner, ordered):
    return collate([learner.prepare(sample) for sample in ordered((5, 9, 9, 30))])


def test_the_loss_is_that_of_the_targets_given_what_their_queries_see(learner, batch):
    encoded = learner.encoder(batch.tokens)
    logits = encoded.queries @ learner.encoder.words.weight.T + learner.parts["permutation_lm"].bias
    gold = batch.tokens.ids[batch.tokens.reading.queries]
    part = learner(batch)["permutation_lm"]
    torch.testing.assert_close(part.sum, cross_entropy(logits, gold, reduction="sum"))
    assert int(part.metrics["accuracy"]) == int((logits.argmax(1) == gold).sum())
    assert batch.counts == {"permutation_lm": len(gold)} == {"permutation_lm": 1 + 2 + 3 + 4}


def test_the_last_layer_is_computed_for_queries_alone(learner, batch):
    keep = learner.keep(batch)
    assert keep.rows.shape == (0,)
    whole, some = learner.encoder(batch.tokens), learner.encoder(batch.tokens, keep)
    torch.testing.assert_close(some.queries, whole.queries)
    assert whole.last.any() and not some.last.any()
    everything = body_flops(learner.encoder, batch.tokens) + head_flops(
        learner.parts["permutation_lm"], learner.encoder, batch
    )
    assert forward_flops(learner, batch) < 0.8 * everything


def test_the_report_compares_with_the_most_frequent_token(learner, batch):
    head = learner.parts["permutation_lm"]
    gold = batch.labels["targets"]
    token = int(gold[0])
    found = head.baseline("permutation_lm", [batch], token)
    assert found == {"permutation_lm_accuracy": pytest.approx(float((gold == token).float().mean()))}
    (note,) = head.notes("permutation_lm", {}, found)
    assert note.endswith("% of the targets of permutation_lm.")
