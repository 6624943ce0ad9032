"""Masked language modeling: the loss recomputed in NumPy, and what the report says about it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.objectives.flops import head_flops
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.masked_lm import MaskedLM, MaskedLMSettings
from unmask.objectives.objective import BuildContext, Decoding, VocabularyObjective, decoder_of

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=0.3)
VOCABULARY = 40


@pytest.fixture
def learner():
    torch.manual_seed(0)
    objective = MaskedLMSettings().build(BuildContext(SETTINGS.build(VOCABULARY)))
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return Learner(SETTINGS.build(VOCABULARY), {"masked_lm": objective}).eval()


def samples():
    """Three samples with two, one and no masked tokens."""
    rng, made = np.random.default_rng(0), []
    for number, masked in enumerate(([2, 5], [1], [])):
        sample = Frame(2, 3).wrap(rng.integers(5, VOCABULARY, 8)).named((number,))
        positions = np.array(masked, np.int64)
        ids = sample.ids.copy()
        ids[positions] = 4
        gold = sample.ids[positions].astype(np.int64)
        made.append(sample.add(ids=ids, positions={"masked": positions}, labels={"masked": gold}))
    return made


def test_the_loss_is_that_of_the_formula_in_numpy(learner):
    """Dense layer, exact GELU, LayerNorm, tied decoder and bias, as in modeling.py of google-research/bert."""
    prepared = [learner.prepare(sample) for sample in samples()]
    assert [sample.counts["masked_lm"] for sample in prepared] == [2, 1, 0]
    state = {name: value.double().numpy() for name, value in learner.parts["masked_lm"].state_dict().items()}
    words = learner.encoder.words.weight.detach().double().numpy()
    total = 0.0
    for sample in prepared:
        last = learner.encoder(collate([sample]).tokens).last.detach().double().numpy()
        for position, gold in zip(sample.positions["masked"], sample.labels["masked"], strict=True):
            x = state["dense.weight"] @ last[position] + state["dense.bias"]
            x = np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-12) * state["norm.weight"] + state["norm.bias"]
            logits = words @ x + state["bias"]
            total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[gold]
    batch = collate(prepared)
    assert learner(batch)["masked_lm"].sum.item() == pytest.approx(total, rel=1e-5)
    assert batch.counts == {"masked_lm": 3}
    assert loss_weights({"masked_lm": MaskedLMSettings(weight=0.5)}) == {"masked_lm": 0.5}


class Elsewhere(MaskedLM):
    at = "elsewhere"


class Words(VocabularyObjective):
    """The decoder alone."""

    at = "elsewhere"

    def project(self, encoder, rows):
        return Decoding(rows, decoder_of(encoder), torch.zeros(VOCABULARY))


def test_a_head_over_the_vocabulary_is_where_it_predicts_and_its_projection(learner):
    """Terms, rows and loss follow from the positions and the labels of the name `at`, and from `project`."""
    head = Elsewhere(BuildContext(learner.encoder))
    head.load_state_dict(learner.parts["masked_lm"].state_dict())
    others = [
        sample.add(positions={"elsewhere": np.array([0, 6, 9])}, labels={"elsewhere": np.array([7, 8, 30])})
        for sample in samples()
    ]
    renamed = [
        replace(sample, positions={"masked": sample.positions["elsewhere"]}, labels={"masked": np.array([7, 8, 30])})
        for sample in others
    ]
    expected = learner(collate([learner.prepare(sample) for sample in renamed]))["masked_lm"].sum
    both = Learner(learner.encoder, {"own": head, "words": Words()}).eval()
    batch = collate([both.prepare(sample) for sample in others])
    assert batch.counts == {"own": 9, "words": 9}
    loss = both(batch)
    assert torch.allclose(loss["own"].sum, expected, rtol=1e-6)
    rows = learner.encoder(batch.tokens).last[batch.positions["elsewhere"]]
    logits = rows @ learner.encoder.words.weight.T
    summed = torch.nn.functional.cross_entropy(logits, batch.labels["elsewhere"], reduction="sum")
    assert torch.allclose(loss["words"].sum, summed, rtol=1e-5)


def test_the_operations_are_those_of_the_dense_layer_and_the_decoder(learner):
    batch = collate([learner.prepare(sample) for sample in samples()])
    found = head_flops(learner.parts["masked_lm"], learner.encoder, batch)
    assert found == 3 * (2 * 16 * 16 + 2 * 16 * VOCABULARY)


def test_the_baseline_is_the_share_of_the_most_frequent_token(learner):
    objective, batch = learner.parts["masked_lm"], collate([learner.prepare(sample) for sample in samples()])
    token = int(batch.labels["masked"][0])
    share = float((batch.labels["masked"] == token).float().mean())
    assert objective.baseline("masked_lm", [batch, batch], token) == {"masked_lm_accuracy": pytest.approx(share)}
    assert objective.baseline("masked_lm", [batch], 1) == {"masked_lm_accuracy": 0.0}


def test_the_head_of_modernbert_has_no_biases_before_the_decoder():
    body = ModernBertSettings(layers=1, width=16, heads=2, feed_forward=32).build(VOCABULARY)
    objective = MaskedLMSettings().build(BuildContext(body))
    assert objective.state_dict().keys() == {"bias", "dense.weight", "norm.weight"}


def test_the_trained_head_gives_no_warnings(learner):
    assert not learner.parts["masked_lm"].warnings("masked_lm", {"masked_lm_loss": 0.5})
