"""A learner requests from the body once what its active objectives read, and passes state through."""

import numpy as np
import torch
from torch import nn

from unmask.data.batches.batch import Sample, collate
from unmask.nn.encoders.encoder import NOTHING, Encoded, Keep
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective, Part


class Noting(nn.Module):
    """Records its arguments."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, tokens, keep, carry):
        self.calls.append((tokens, keep, carry))
        return Encoded(torch.zeros(3, 2), {}, carry={"state": torch.ones(1)} if carry else {})


class Reading(Objective):
    """Reads the layers in `keep`."""

    def __init__(self, *keep):
        super().__init__()
        if keep:
            self.keep = Keep(*map(frozenset, keep))

    def prepare(self, sample, name):
        return sample.add(counts={name: 1})

    def score(self, encoder, encoded, batch):
        return Part(encoded.last.sum(), {})


def call(carry=(), **objectives):
    learner = Learner(Noting(), objectives)
    batch = collate([learner.prepare(Sample(key=(), ids=np.arange(3), segments=np.zeros(3)))])
    for name in carry:
        batch = type(batch)(**batch.__dict__ | {"carry": {name: torch.zeros(1)}})
    loss = learner(batch)
    assert list(loss) == list(objectives)
    ((tokens, keep, given),) = learner.encoder.calls
    assert tokens is batch.tokens
    return loss, keep, given


def test_the_body_is_called_once_with_the_union():
    loss, keep, carry = call(a=Reading([1], []), b=Reading(), c=Reading([2], [1, 2]))
    assert keep == Keep(frozenset({1, 2}), frozenset({1, 2}))
    assert carry == loss.carry == {}


def test_nothing_is_kept_if_no_objective_reads_it():
    assert call(a=Reading())[1:] == (NOTHING, {})


def test_state_is_passed_in_and_out():
    loss, keep, carry = call(a=Reading(), carry=["state"])
    assert (keep, carry) == (NOTHING, {"state": torch.zeros(1)})
    assert loss.carry == {"state": torch.ones(1)}


class Asking(Reading):
    """Computes a part of the loss before the encoder."""

    def before(self, encoder, batch):
        return batch, {"first": Part(torch.zeros(()), {})}


def test_only_the_objectives_that_a_batch_was_prepared_for_run():
    learner = Learner(Noting(), {"a": Reading([1], []), "b": Asking([2], [])})
    sample = Sample(key=(), ids=np.arange(3), segments=np.zeros(3))
    prepared = learner.prepare(sample, ["a"])
    assert prepared.counts == {"a": 1}
    batch = collate([prepared])
    assert list(learner.active(batch)) == list(learner(batch)) == ["a"]
    assert learner.encoder.calls[-1][1] == Keep(frozenset({1}), frozenset())
    both = collate([learner.prepare(sample)])
    assert list(learner(both)) == ["first", "a", "b"]
    assert learner.encoder.calls[-1][1] == Keep(frozenset({1, 2}), frozenset())
