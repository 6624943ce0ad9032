"""Losses and accuracies over prepared batches."""

import math

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.objectives.objective import Part
from unmask.training.evaluate import add_parts, as_numbers, evaluate, is_finite, summarize

from .conftest import CPU


def test_evaluation_equals_a_hand_computation(small, trainer):
    one = trainer(small(objective={"masked_lm": {"weight": 2.0}, "next_sentence": {"weight": 0.5}}))
    samples = one.prepare(one.source.take(one.source.start, sequences=15)[0])
    batch = collate(samples)
    metrics = evaluate(one.learner, [collate(samples[:4]), collate(samples[4:])], CPU)
    learner = one.learner.eval()
    with torch.inference_mode():
        encoded = learner.encoder(batch.tokens)
        expected = {"loss": 0.0}
        for name, part in learner.parts.items():
            logits = part.predict(learner.encoder, encoded, batch).double().numpy()
            gold = batch.labels[{"masked_lm": "masked"}.get(name, name)].numpy()
            probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            expected[f"{name}_loss"] = -np.log(probabilities[np.arange(len(gold)), gold]).mean()
            expected[f"{name}_accuracy"] = (logits.argmax(1) == gold).mean()
            expected["loss"] += {"masked_lm": 2.0, "next_sentence": 0.5}[name] * expected[f"{name}_loss"]
    assert metrics == pytest.approx(expected, rel=1e-5)
    one.learner.train()
    evaluate(one.learner, [batch], CPU)
    assert one.learner.training


def test_sums_become_means_over_targets_and_a_weighted_loss():
    sums = {"first.loss": 6.0, "first.accuracy": 2.0, "second.loss": 5.0, "none.loss": 0.0}
    metrics = summarize(sums, {"first": 4, "second": 10, "none": 0}, {"first": 2.0, "second": 0.5, "none": 1.0})
    assert metrics == {"loss": 2.0 * 1.5 + 0.5 * 0.5, "first_loss": 1.5, "first_accuracy": 0.5, "second_loss": 0.5}
    nothing = summarize({"none.loss": 0.0, "none.accuracy": 0.0}, {"none": 0}, {"none": 1.0})
    assert list(nothing) == ["loss"] and math.isnan(nothing["loss"])
    assert is_finite(nothing) and not is_finite({"loss": math.nan, "first_loss": math.nan})


def test_batch_sums_are_added_in_float64():
    sums = {}
    for value in (1e8, 1.0, 1.0):
        add_parts(sums, {"a": Part(torch.tensor(value), {"accuracy": torch.tensor(1)})})
    assert as_numbers(sums) == {"a.loss": 1e8 + 2, "a.accuracy": 3.0}
    assert as_numbers({}) == {}
