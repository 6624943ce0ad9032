"""Bidirectional language modeling: the loss of both directions, rare words, and the sampled softmax."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Reading
from unmask.nn.encoders.encoder import Encoded
from unmask.objectives.bidirectional_lm import BidirectionalLM, BidirectionalLMSettings
from unmask.objectives.flops import head_flops

WIDTH, WORDS = 6, 50


def batch_of(objective, keys=((0, 3, 0), (0, 3, 1)), most=WORDS):
    rng = np.random.default_rng(0)
    samples = [
        Sample(
            key=key,
            ids=np.zeros((4, 3)),
            labels={"following": rng.integers(0, most, 4)},
            reading=Reading(backward=number % 2 == 1),
        )
        for number, key in enumerate(keys)
    ]
    return collate([objective.prepare(sample, "lm") for sample in samples])


def states(batch):
    torch.manual_seed(0)
    return Encoded(torch.randn(len(batch.tokens.ids), WIDTH), {})


def test_the_loss_is_that_of_both_directions():
    objective = BidirectionalLM(WIDTH, WORDS)
    batch = batch_of(objective)
    part = objective.score(None, found := states(batch), batch)
    losses = cross_entropy(objective.predict(None, found, batch), batch.labels["following"], reduction="none")
    torch.testing.assert_close(part.sum, losses.sum())
    torch.testing.assert_close(part.metrics["forward"], 2 * losses[:4].sum())
    torch.testing.assert_close(part.metrics["backward"], 2 * losses[4:].sum())
    assert batch.counts == {"lm": 8}


def test_rarer_words_are_the_last_one():
    objective = BidirectionalLM(WIDTH, WORDS)
    batch = batch_of(objective, most=3 * WORDS)
    gold = batch.labels["following"]
    assert (gold >= WORDS).any()
    found = states(batch)
    expected = cross_entropy(objective.predict(None, found, batch), gold.clamp(max=WORDS - 1), reduction="sum")
    torch.testing.assert_close(objective.score(None, found, batch).sum, expected)


def test_drawn_words_are_log_uniform_and_the_same_throughout_a_step():
    objective = BidirectionalLM(WIDTH, 1000, samples=200)
    drawn = [objective._draw(batch_of(objective, keys=((0, window, 0), (0, window, 1)))) for window in range(400)]
    again = objective._draw(batch_of(objective, keys=((0, 7, 3), (0, 7, 2))))
    assert torch.equal(drawn[7], again)
    assert not torch.equal(drawn[7], drawn[8])
    assert all(len(words.unique()) == len(words) for words in drawn)
    counts = torch.cat(drawn).bincount(minlength=1000) / len(drawn)
    expected = objective._log_expected(torch.arange(1000)).exp()
    torch.testing.assert_close(counts[:10], expected[:10], atol=0.06, rtol=0)
    assert counts[500:].mean() == pytest.approx(float(expected[500:].mean()), rel=0.05)


@torch.no_grad()
def test_the_sampled_softmax_is_tensorflows():
    objective = BidirectionalLM(WIDTH, WORDS, samples=12).train()
    batch = batch_of(objective)
    found, gold = states(batch), batch.labels["following"]
    drawn = objective._draw(batch)
    shares = [math.log((rank + 2) / (rank + 1)) / math.log(WORDS + 1) for rank in range(WORDS)]
    expected = torch.tensor([math.log(1 - (1 - share) ** 12) for share in shares])
    logits = objective.predict(None, found, batch) - expected
    total = 0.0
    for row, right in zip(logits, gold.tolist(), strict=True):
        among = [right, *(word for word in drawn.tolist() if word != right)]
        total += float(row[among].logsumexp(0) - row[right])
    part = objective.score(None, found, batch)
    assert float(part.sum) == pytest.approx(total, rel=1e-5)
    assert torch.isin(gold, drawn).any(), "a right word that is drawn competes with itself only once"
    objective.eval()
    full = cross_entropy(objective.predict(None, found, batch), gold, reduction="sum")
    torch.testing.assert_close(objective.score(None, found, batch).sum, full)


@torch.no_grad()
def test_a_right_word_that_is_drawn_does_not_outdo_itself_by_rounding():
    torch.manual_seed(0)
    objective, rows = BidirectionalLM(64, WORDS, samples=12), torch.randn(500, 64)
    gold = linear(rows, objective.decoder, objective.bias).argmax(1)
    _, correct = objective._sampled(torch.arange(WORDS), rows, gold)
    assert correct == len(gold)


def test_sampling_takes_the_operations_of_the_drawn_words():
    objective = BidirectionalLM(WIDTH, WORDS, samples=12)
    batch = batch_of(objective)
    assert head_flops(objective, None, batch) == 2 * 8 * WIDTH * 12
    assert head_flops(objective.eval(), None, batch) == 2 * 8 * WIDTH * WORDS


def test_the_report_has_perplexities():
    metrics = {"lm_forward": math.log(50), "lm_backward": math.log(1200)}
    notes = BidirectionalLM(WIDTH, WORDS).notes("lm", metrics, {"lm_accuracy": 0.05})
    assert notes[0] == "Perplexity: 50.0 forwards, 1,200.0 backwards."
    assert "5.00 % of the targets of lm" in notes[1]


def test_settings():
    assert BidirectionalLMSettings.of_head({"decoder": torch.zeros(7, 2), "bias": torch.zeros(7)}, 2).vocabulary == 7
    for wrong in ({"vocabulary": 1}, {"samples": -1}):
        with pytest.raises(ValueError, match="must"):
            BidirectionalLMSettings(**wrong)
