"""The span boundary objective, recomputed from the equations of the paper."""

import numpy as np
import torch

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext
from unmask.objectives.span_boundary import SpanBoundarySettings

SETTINGS = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=64, dropout=0.0, init_std=0.3)
VOCABULARY = 50


def gelu(x):
    return np.array([0.5 * value * (1 + torch.erf(torch.tensor(value / 2**0.5)).item()) for value in x])


def norm(x, weight, bias):
    return weight * (x - x.mean()) / np.sqrt(x.var() + 1e-12) + bias


def expected(state, words, last, sample, masked):
    """Equations of section 3.2: y_i = f(x_{s-1}, x_{e+1}, p_{i-s+1}), then softmax over tied embeddings."""
    total, count, masked = 0.0, 0, sorted(masked)
    while masked:
        first = end = masked[0]
        while end + 1 in masked:
            end += 1
        for token in range(first, end + 1):
            masked.remove(token)
            if token - first >= 3:
                continue
            x = np.concatenate([last[first - 1], last[end + 1], state["places.weight"][token - first]])
            x = norm(gelu(state["first.weight"] @ x + state["first.bias"]), *pair(state, "first_norm"))
            x = norm(gelu(state["second.weight"] @ x + state["second.bias"]), *pair(state, "second_norm"))
            logits = words @ x + state["bias"]
            total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[sample.ids[token]]
            count += 1
    return total, count


def pair(state, name):
    return state[f"{name}.weight"], state[f"{name}.bias"]


def test_the_loss_is_that_of_the_paper():
    torch.manual_seed(0)
    objective = SpanBoundarySettings(places=3, place_width=8).build(BuildContext(SETTINGS.build(VOCABULARY)))
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    learner = Learner(SETTINGS.build(VOCABULARY), {"span_boundary": objective}).double().eval()
    rng = np.random.default_rng(0)
    samples, chosen = [], [[1, 2, 5], [3], [4, 5, 6, 7, 8], [], [1, 3, 10]]  # ends of texts, a span of five, none
    for number, masked in enumerate(chosen):
        sample = Frame(2, 3).wrap(rng.integers(5, VOCABULARY, 10)).named((number,))
        positions = np.array(masked, np.int64)
        samples.append(sample.add(positions={"masked": positions}, labels={"masked": sample.ids[positions]}))
    state = {name: value.detach().numpy() for name, value in objective.state_dict().items()}
    words = learner.encoder.words.weight.detach().numpy()
    total = 0.0
    for sample, masked in zip(samples, chosen, strict=True):
        last = learner.encoder(collate([sample]).tokens).last.detach().numpy()
        loss, count = expected(state, words, last, sample, list(masked))
        assert learner.prepare(sample).counts == {"span_boundary": count}
        total += loss
    batch = collate([learner.prepare(sample) for sample in samples])
    found = learner(batch)["span_boundary"].sum.item()
    assert abs(found - total) < 1e-5 * total
    assert batch.counts["span_boundary"] == 10


def test_spans_without_a_token_on_both_sides_are_not_predicted():
    """XLNet's texts begin without [CLS]: the boundary of the first span would be in another text of the batch."""
    objective = SpanBoundarySettings().build(BuildContext(SETTINGS.build(VOCABULARY)))
    masked = np.array([0, 1, 4, 5])
    sample = Frame(2, 3, last=True).wrap(np.arange(5, 10)).add(positions={"masked": masked}, labels={"masked": masked})
    for length, left, right in ((len(sample), [3, 3], [6, 6]), (6, [], [])):  # with and without its end
        prepared = objective.prepare(sample.changed(ids=sample.ids[:length]), "span_boundary")
        assert prepared.positions["span_left"].tolist() == left
        assert prepared.positions["span_right"].tolist() == right
        assert prepared.counts == {"span_boundary": len(left)}
