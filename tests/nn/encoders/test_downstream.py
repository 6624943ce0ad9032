"""Downstream models compared with torch text by text, for any split of a batch; invalid settings are refused."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import add_counts, collate
from unmask.data.batches.frame import Frame
from unmask.families.bert import BertSettings
from unmask.nn.encoders.downstream import BidirectionalLstm, Downstream, DownstreamSettings, Mix, resolve_layers
from unmask.nn.encoders.encoder import Keep
from unmask.objectives.flops import forward_flops
from unmask.objectives.learner import Learner
from unmask.support.errors import UserError
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.regression import RegressionHead

SETTINGS = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)
EVERY = {
    "linear": DownstreamSettings(kind="linear", layers=(-2, -1), combine="sum"),
    "average": DownstreamSettings(kind="average", layers=(0,)),
    "average-mix": DownstreamSettings(kind="average", layers=(0, 1, 2), combine="mix"),
    "difference": DownstreamSettings(kind="difference", layers=(0, -1), normalize=True),
    "rnn": DownstreamSettings(kind="rnn", layers=(-2, -1), width=8),
    "rnn-mix": DownstreamSettings(kind="rnn", layers=(0, -1), combine="mix", width=8),
}


def body_of(name, seed=1):
    torch.manual_seed(seed)
    return Downstream(EVERY[name], SETTINGS.build(100)).eval()


def learner_of(name):
    body = body_of(name)
    return Learner(body, {"classification": ClassificationHead(body.head, 3)}).eval()


def theirs(lstm, x):
    """Return the states of torch's LSTM for one text, and the last ones of its top layer in both directions."""
    states, (last, _) = lstm.lstm(x)
    return states, torch.cat([last[-2], last[-1]])


def assert_lstm_equals_torchs(samples):
    tokens = collate(samples).tokens
    lstm, x = BidirectionalLstm(12, 8, 0.0), torch.randn(len(tokens.ids), 12)
    found = lstm(x, tokens)
    for start, stop in pairwise(tokens.offsets.tolist()):
        torch.testing.assert_close(found[start:stop], theirs(lstm, x[start:stop])[0], rtol=0, atol=1e-6)


def test_the_lstm_equals_torchs_text_by_text(samples):
    assert_lstm_equals_torchs(samples)
    assert_lstm_equals_torchs(samples[:1])
    assert_lstm_equals_torchs([samples[4], samples[5]])


@pytest.mark.parametrize("planted", ["order", "sizes"])
def test_the_comparison_notices_a_planted_fault(samples, monkeypatch, planted):
    from unmask.nn.encoders import downstream

    right = downstream.pack

    def wrong(position_ids):
        order, sizes = right(position_ids)
        if planted == "order":  # the shortest sequence first, as in the batch
            return (position_ids * len(order) + torch.arange(len(order))).argsort(), sizes
        return position_ids.flip(0).argsort(), sizes

    monkeypatch.setattr(downstream, "pack", wrong)
    with pytest.raises(AssertionError):
        assert_lstm_equals_torchs(samples)


def test_the_last_states_represent_the_text(samples):
    body, batch = body_of("rnn"), collate(samples)
    encoded, layers = body(batch.tokens), body.encoder(batch.tokens, Keep(frozenset({1, 2}))).layers
    x = torch.cat([layers[1], layers[2]], 1)
    for number, (start, stop) in enumerate(pairwise(batch.tokens.offsets.tolist())):
        states, last = theirs(body.lstm, x[start:stop])
        summary = encoded.last[batch.positions["summary"][number]]
        torch.testing.assert_close(summary, last, rtol=0, atol=1e-6)
        torch.testing.assert_close(encoded.last[start + 1 : stop], states[1:], rtol=0, atol=1e-6)


def test_the_mean_is_over_the_tokens_of_the_text(samples):
    body, batch = body_of("average"), collate(samples)
    encoded, layers = body(batch.tokens), body.encoder(batch.tokens, Keep(frozenset({0}))).layers
    for number, (start, stop) in enumerate(pairwise(batch.tokens.offsets.tolist())):
        found = encoded.last[batch.positions["summary"][number]]
        torch.testing.assert_close(found, layers[0][start:stop].mean(0), rtol=0, atol=1e-6)


def test_the_difference_is_between_the_means_of_the_two_texts():
    rng, frame = np.random.default_rng(3), Frame(cls=2, sep=3)
    pairs = [
        frame.wrap(*(rng.integers(5, 100, rng.integers(0, 20)) for _ in range(2))).named((0, number))
        for number in range(60)
    ]
    body, batch = body_of("difference"), collate(pairs)
    found = body(batch.tokens).last[batch.positions["summary"]]  # (pairs, 2 * width)
    for key, vector in zip(batch.keys, found, strict=True):
        pair = pairs[key[1]]
        layers = body.encoder(collate([pair]).tokens, Keep(frozenset({0, 2}))).layers
        second = torch.from_numpy(pair.segments == 1)
        expected = []
        for layer in (layers[0], layers[2]):
            means = [layer[chosen].mean(0) for chosen in (~second, second)]
            u, v = (mean / mean.norm() for mean in means)
            expected.append((u - v).abs())
        torch.testing.assert_close(vector, torch.cat(expected), rtol=0, atol=1e-5)


def test_layers_are_summed_concatenated_or_mixed(samples):
    tokens, chosen = collate(samples).tokens, DownstreamSettings(kind="linear", layers=(-1, 0))
    encoder = SETTINGS.build(100)
    found = encoder(tokens, Keep(frozenset({0, 2}))).layers

    def last(combine):
        return Downstream(msgspec.structs.replace(chosen, combine=combine), encoder)(tokens).last

    assert torch.equal(last("concatenate"), torch.cat([found[2], found[0]], 1))
    assert torch.equal(last("sum"), found[2] + found[0])
    torch.testing.assert_close(last("mix"), (found[2] + found[0]) / 2)


def test_mixing_weights_sum_to_1_and_learn():
    mix, layers = Mix(3), [torch.randn(5, 4) for _ in range(3)]
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([1.0, -2.0, 0.5]))
        mix.gamma.fill_(1.7)
    ones = [torch.ones(5, 4)] * 3
    torch.testing.assert_close(mix(ones), torch.full((5, 4), 1.7))  # the weights sum to 1
    shares = np.exp([1.0, -2.0, 0.5]) / np.exp([1.0, -2.0, 0.5]).sum()
    expected = 1.7 * sum(share * layer for share, layer in zip(shares, layers, strict=True))
    torch.testing.assert_close(mix(layers), expected.float())
    mix(layers).square().sum().backward()
    assert mix.weights.grad.any() and mix.gamma.grad.any()


def gradient(learner, micro_batches, count):
    learner.zero_grad()
    for micro_batch in micro_batches:
        (learner(micro_batch)["classification"].sum / count).backward()
    return {name: value.grad.clone() for name, value in learner.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("name", EVERY)
def test_the_gradient_does_not_depend_on_the_split_of_a_step(name, samples):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples]
    count = add_counts(prepared)["classification"]
    whole = gradient(learner, [collate(prepared)], count)
    cut = gradient(learner, [collate(prepared[:1]), collate(prepared[1:4]), collate(prepared[4:])], count)
    assert whole.keys() == cut.keys()
    assert {
        f"encoder.{key}" for key in learner.encoder.own_state()
    } <= whole.keys()  # the whole downstream model is trained
    for key, value in whole.items():
        assert (cut[key] - value).norm() <= 1e-5 * value.norm() + 1e-8, key


@pytest.mark.parametrize("name", EVERY)
def test_operations_add_up_over_micro_batches(name, samples):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples]
    micro_batches = [collate([sample]) for sample in prepared]
    assert forward_flops(learner, collate(prepared)) == sum(forward_flops(learner, batch) for batch in micro_batches)


@pytest.mark.parametrize("name", EVERY)
def test_heads_of_other_tasks_can_be_used(name, samples):
    body = body_of(name)
    learner = Learner(body, {"regression": RegressionHead(body.head)}).eval()
    part = learner(collate([learner.prepare(sample) for sample in samples]))["regression"]
    part.sum.backward()
    assert part.sum.dtype == torch.float32 and torch.isfinite(part.sum)


@pytest.mark.parametrize("name", EVERY)
def test_only_the_downstream_model_is_saved(name):
    body, other = body_of(name), body_of(name, seed=2)
    other.load_own(body.own_state())
    assert all(torch.equal(value, other.own_state()[key]) for key, value in body.own_state().items())
    assert not any(key.startswith("encoder.") for key in body.own_state())
    if name.startswith("rnn"):
        with pytest.raises(RuntimeError, match="not the state of this downstream model: missing"):
            other.load_own({})


def test_layers_count_from_the_embeddings_or_from_the_end():
    assert resolve_layers((0, 1, -1, -2), 4) == (0, 1, 4, 3)
    assert resolve_layers((-5,), 4) == (0,)
    for wrong in (5, -6):
        with pytest.raises(UserError, match=rf"there is no layer {wrong}; this model has 0 \(the embeddings\) to 4"):
            resolve_layers((wrong,), 4)
    with pytest.raises(UserError, match="layer 4 is given twice"):
        resolve_layers((-1, 4), 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "linear", "layers": ()}, "at least one layer"),
        ({"kind": "rnn", "combine": "mix"}, "combine has no effect on a single layer"),
        ({"kind": "average", "width": 3}, "width has no effect"),
        ({"kind": "rnn", "width": 0}, "width must be at least 1"),
        ({"kind": "linear", "normalize": True}, 'normalize goes with kind = "average" or "difference"'),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DownstreamSettings(**settings)
