"""Small models over an encoder's layers: against torch text by text, however a batch is cut, and what is refused."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
import torch

from unmask.batches.batch import add_counts, collate
from unmask.batches.frame import Frame
from unmask.encoders.downstream import Downstream, DownstreamSettings, Lstm, Mix, resolve_layers
from unmask.encoders.encoder import Keep
from unmask.encoders.stored import Stored
from unmask.errors import UserError
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.tasks.classification import ClassificationHead
from unmask.tasks.regression import RegressionHead

SETTINGS = BertSettings(layers=2, width=32, heads=2, feed_forward=64, positions=64, dropout=0.0, init_std=0.2)
LENGTHS = (3, 40, 5, 61, 17, 17, 1, 30, 9, 55)
EVERY = {
    "linear": DownstreamSettings(kind="linear", layers=(-2, -1), combine="sum"),
    "average": DownstreamSettings(kind="average", layers=(0,)),
    "average-mix": DownstreamSettings(kind="average", layers=(0, 1, 2), combine="mix"),
    "rnn": DownstreamSettings(kind="rnn", layers=(-2, -1), width=8),
    "rnn-mix": DownstreamSettings(kind="rnn", layers=(0, -1), combine="mix", width=8),
}


@pytest.fixture
def samples():
    rng, frame = np.random.default_rng(0), Frame(cls=2, sep=3)
    made = []
    for number, length in enumerate(LENGTHS):
        sample = frame.wrap(rng.integers(5, 100, length)).named((0, number))
        labels = {"classification": rng.integers(0, 3, 1), "regression": rng.random(1, np.float32)}
        made.append(sample.add(labels=labels))
    return made


def body_of(name, seed=1):
    torch.manual_seed(seed)
    return Downstream(EVERY[name], SETTINGS.build(100)).eval()


def learner_of(name):
    body = body_of(name)
    return Learner(body, {"classification": ClassificationHead(body.head, 3)}).eval()


def theirs(lstm, x):
    """What torch's LSTM gives for one text: all states, and the last ones of its top layer, forwards and backwards."""
    states, (last, _) = lstm.lstm(x)
    return states, torch.cat([last[-2], last[-1]])


def assert_lstm_is_torchs(samples):
    tokens = collate(samples).tokens
    lstm, x = Lstm(12, 8, 0.0), torch.randn(len(tokens.ids), 12)
    found = lstm(x, tokens)
    for start, stop in pairwise(tokens.offsets.tolist()):
        torch.testing.assert_close(found[start:stop], theirs(lstm, x[start:stop])[0], rtol=0, atol=1e-6)


def test_the_lstm_is_torchs_text_by_text(samples):
    assert_lstm_is_torchs(samples)
    assert_lstm_is_torchs(samples[:1])
    assert_lstm_is_torchs([samples[4], samples[5]])


@pytest.mark.parametrize("planted", ["order", "sizes"])
def test_the_comparison_notices_a_planted_fault(samples, monkeypatch, planted):
    from unmask.encoders import downstream

    right = downstream.pack

    def wrong(tokens):
        order, sizes = right(tokens)
        if planted == "order":  # the shortest sequence first, as the batch has it
            return (tokens.position_ids * len(order) + torch.arange(len(order))).argsort(), sizes
        return tokens.ids.argsort(), sizes

    monkeypatch.setattr(downstream, "pack", wrong)
    with pytest.raises(AssertionError):
        assert_lstm_is_torchs(samples)


def test_the_last_states_stand_for_the_text(samples):
    body, batch = body_of("rnn"), collate(samples)
    encoded, layers = body(batch.tokens), body.encoder(batch.tokens, Keep(frozenset({1, 2}))).layers
    x = torch.cat([layers[1], layers[2]], 1)
    for number, (start, stop) in enumerate(pairwise(batch.tokens.offsets.tolist())):
        states, last = theirs(body.lstm, x[start:stop])
        summary = encoded.last[batch.positions["summary"][number]]
        torch.testing.assert_close(summary, last, rtol=0, atol=1e-6)
        torch.testing.assert_close(encoded.last[start + 1 : stop], states[1:], rtol=0, atol=1e-6)


def test_the_mean_runs_over_the_text(samples):
    body, batch = body_of("average"), collate(samples)
    encoded, layers = body(batch.tokens), body.encoder(batch.tokens, Keep(frozenset({0}))).layers
    for number, (start, stop) in enumerate(pairwise(batch.tokens.offsets.tolist())):
        found = encoded.last[batch.positions["summary"][number]]
        torch.testing.assert_close(found, layers[0][start:stop].mean(0), rtol=0, atol=1e-6)


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


def gradient(learner, pieces, count):
    learner.zero_grad()
    for piece in pieces:
        (learner(piece)["classification"].sum / count).backward()
    return {name: value.grad.clone() for name, value in learner.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("name", EVERY)
def test_the_gradient_is_the_same_however_a_step_is_cut(name, samples):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples]
    count = add_counts(prepared)["classification"]
    whole = gradient(learner, [collate(prepared)], count)
    cut = gradient(learner, [collate(prepared[:1]), collate(prepared[1:4]), collate(prepared[4:])], count)
    assert whole.keys() == cut.keys()
    assert {f"encoder.{key}" for key in learner.encoder.own_state()} <= whole.keys()  # the whole small model learns
    for key, value in whole.items():
        assert (cut[key] - value).norm() <= 1e-5 * value.norm() + 1e-8, key


@pytest.mark.parametrize("name", EVERY)
def test_operations_add_up_over_pieces(name, samples):
    learner = learner_of(name)
    prepared = [learner.prepare(sample) for sample in samples]
    pieces = [collate([sample]) for sample in prepared]
    assert learner.forward_flops(collate(prepared)) == sum(map(learner.forward_flops, pieces))


@pytest.mark.parametrize("name", EVERY)
def test_heads_of_other_tasks_sit_on_it_alike(name, samples):
    body = body_of(name)
    learner = Learner(body, {"regression": RegressionHead(body.head)}).eval()
    part = learner(collate([learner.prepare(sample) for sample in samples]))["regression"]
    part.sum.backward()
    assert part.sum.dtype == torch.float32 and torch.isfinite(part.sum)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_saved_is_the_small_model_alone(name):
    body, other = body_of(name), body_of(name, seed=2)
    other.load_own(body.own_state())
    assert all(torch.equal(value, other.own_state()[key]) for key, value in body.own_state().items())
    assert not any(key.startswith("encoder.") for key in body.own_state())
    if name.startswith("rnn"):
        with pytest.raises(RuntimeError):
            other.load_own({})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_layers_stand_in_for_the_encoder(samples, dtype):
    body, batch = body_of("rnn"), collate(samples)
    layers = body.encoder(batch.tokens, Keep(frozenset({1, 2}))).layers
    table = torch.stack([layers[1], layers[2]], 1).detach().numpy()
    expected = body(batch.tokens).last
    order = np.random.default_rng(0).permutation(len(table))  # row r of the batch lies at place order[r]
    body.encoder = Stored(table[np.argsort(order)], (1, 2), SETTINGS.head, SETTINGS.layers, SETTINGS.positions)
    assert body.encoder.layer_groups == () and not list(body.encoder.state_dict())
    import copy
    from dataclasses import replace

    copied = copy.deepcopy(body).to(dtype)
    assert copied.encoder.table is body.encoder.table  # a map is not read into memory
    found = copied(replace(batch.tokens, ids=torch.from_numpy(order))).last
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 0.03)


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
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DownstreamSettings(**settings)
