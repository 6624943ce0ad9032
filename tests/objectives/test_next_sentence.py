"""Next sentence prediction: the loss recomputed by hand, and the baseline."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.objectives.flops import head_flops
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.next_sentence import NextSentenceSettings
from unmask.objectives.objective import BuildContext

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=32, dropout=0.0, init_std=0.3)


@pytest.fixture
def learner():
    torch.manual_seed(0)
    encoder = SETTINGS.build(40)
    settings = NextSentenceSettings(weight=2.0)
    objective = settings.build(BuildContext(encoder))
    torch.nn.init.normal_(objective.out.bias)
    return Learner(encoder, {"next_sentence": objective}, loss_weights({"next_sentence": settings})).eval()


def pairs():
    rng = np.random.default_rng(0)
    made = [Frame(2, 3).wrap(rng.integers(5, 40, 6), rng.integers(5, 40, 4)).named((number,)) for number in range(3)]
    return [
        sample.add(labels={"next_sentence": np.array([label])}) for sample, label in zip(made, (0, 1, 1), strict=True)
    ]


def test_the_loss_is_that_of_a_softmax_on_the_pooled_first_token(learner):
    state = {name: value.detach().double().numpy() for name, value in learner.state_dict().items()}
    total, correct = 0.0, 0
    for sample in pairs():
        first = learner.encoder(collate([sample]).tokens).last[0].detach().double().numpy()
        pooled = np.tanh(state["encoder.pooler.weight"] @ first + state["encoder.pooler.bias"])
        logits = state["objectives.next_sentence.out.weight"] @ pooled + state["objectives.next_sentence.out.bias"]
        (gold,) = sample.labels["next_sentence"]
        total += np.log(np.exp(logits).sum()) - logits[gold]
        correct += int(logits.argmax() == gold)
    batch = collate([learner.prepare(sample) for sample in pairs()])
    part = learner(batch)["next_sentence"]
    assert part.sum.item() == pytest.approx(total, rel=1e-5)
    assert int(part.metrics["accuracy"]) == correct
    assert batch.counts == {"next_sentence": 3}


def test_operations_baseline_and_weight(learner):
    objective, batch = learner.parts["next_sentence"], collate([learner.prepare(sample) for sample in pairs()])
    assert head_flops(objective, learner.encoder, batch) == 3 * 2 * 16 * (16 + 2)
    assert objective.baseline("next_sentence", [batch], 7) == {"next_sentence_accuracy": 0.5}
    assert learner.weights == {"next_sentence": 2.0}
