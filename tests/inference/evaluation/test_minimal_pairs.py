"""Accuracies on minimal pairs: of paradigms, of fields and over all, ties, and sentences that cannot be scored."""

import numpy as np
import pytest
import torch

from unmask.data.labelled.minimal_pairs import MinimalPair
from unmask.families.bert import BertSettings
from unmask.inference.backend import TorchBackend
from unmask.inference.evaluation.language_models import evaluate_pairs, score_pairs
from unmask.inference.evaluation.likelihood import Likelihood
from unmask.metrics.intervals import wilson
from unmask.model.model import Model
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.support.errors import UserError
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display

QUIET = Display(quiet=True)


@pytest.fixture
def likelihood(tokenizer):
    torch.manual_seed(0)
    settings = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=24, dropout=0.0, init_std=0.5)
    encoder = settings.build(tokenizer.size)
    heads = {"masked_lm": MaskedLM(BuildContext(encoder)).published()}
    return Likelihood(TorchBackend(Model(encoder, tokenizer, heads), choose_machine("cpu", "float32")))


@pytest.fixture
def pairs(documents):
    """60 pairs of three paradigms in two fields; the sentences of every tenth pair have the same tokens."""
    made = []
    for number, text in enumerate(documents[:60]):
        good = " ".join(text.split()[:6])
        bad = good.upper() if number % 10 == 0 else " ".join(text.split()[5::-1])
        paradigm, field = (("order", "syntax"), ("case", "syntax"), ("gender", "morphology"))[min(2, number % 5)]
        made.append(MinimalPair(good, bad, paradigm, field, "a.jsonl", number + 1))
    return made


def test_accuracies_are_means_over_paradigms_and_ties_count_half(likelihood, pairs):
    result = evaluate_pairs(likelihood, pairs, QUIET)
    right: dict[str, list[float]] = {}
    for pair in pairs:
        good, bad = (float(values.sum()) for values in likelihood(likelihood.encode([pair.good, pair.bad])))
        same = pair.bad == pair.good.upper()
        right.setdefault(pair.paradigm, []).append(0.5 if same else float(good > bad))
    means = {name: 100 * np.mean(values) for name, values in right.items()}
    assert {name: found["accuracy"] for name, found in result["by_paradigm"].items()} == pytest.approx(means)
    assert {name: found["pairs"] for name, found in result["by_paradigm"].items()} == {
        name: len(values) for name, values in right.items()
    }
    fields = {"morphology": means["gender"], "syntax": (means["order"] + means["case"]) / 2}
    assert {name: found["accuracy"] for name, found in result["by_field"].items()} == pytest.approx(fields)
    assert result["metrics"]["accuracy"] == pytest.approx(np.mean(list(means.values())))
    low, high = result["intervals"]["accuracy"]
    assert low < result["metrics"]["accuracy"] < high
    assert "6 of 60 pairs have equal scores, and are counted as half right" in result["notes"]
    assert result["examples"] == 60


def test_the_interval_of_a_paradigm_is_that_of_wilson(likelihood, pairs):
    scores, _ = score_pairs(likelihood, pairs, QUIET)
    chosen = [pair for pair, (good, bad) in zip(pairs, scores, strict=True) if good != bad]
    result = evaluate_pairs(likelihood, [pair for pair in chosen if pair.paradigm == "gender"], QUIET)
    found = result["by_paradigm"]["gender"]
    low, high = wilson(found["accuracy"] / 100, found["pairs"] - 1)
    assert (found["low"], found["high"]) == pytest.approx((100 * low, 100 * high))


def test_a_sentence_that_cannot_be_scored_is_refused(likelihood):
    for sentence, message in (
        ("the dog " * 20, r"a\.jsonl:7: a sentence has 40 tokens.*at most 22"),
        ("\x7f", "no token"),
    ):
        pair = MinimalPair("the dog", sentence, "x", "y", "a.jsonl", 7)
        with pytest.raises(UserError, match=message):
            score_pairs(likelihood, [pair], QUIET)


def test_words_outside_the_vocabulary_are_noted(likelihood):
    pair = MinimalPair("the dog", "the \u4e00", "x", "y", "a.jsonl", 1)
    result = evaluate_pairs(likelihood, [pair], QUIET)
    assert "1 of 1 pair has words outside the vocabulary" in result["notes"]
