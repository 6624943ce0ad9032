"""XLNet's body: no token or target leaks against the order, with and without memory; memory; gradients; rows."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from unmask.data.batches.batch import collate
from unmask.families.xlnet import XlnetSettings
from unmask.nn.encoders import two_streams
from unmask.nn.encoders.encoder import CARRY, NOTHING, Keep
from unmask.objectives.flops import body_flops

VOCABULARY = 100
SHAPE = {"layers": 3, "width": 16, "heads": 2, "feed_forward": 32, "dropout": 0.0, "init_std": 0.4}
LENGTHS = (6, 9, 9, 12)
BACKWARD = (0, 1, 0, 1)


def body_of(memory=0, **others):
    torch.manual_seed(0)
    return XlnetSettings(**SHAPE | others, memory=memory).build(VOCABULARY).double().eval()


def memory_of(body, sequences):
    """Return a state with memory of different sizes."""
    carry = {name: torch.randn(rows.shape).to(rows.dtype) for name, rows in body.start(sequences).items()}
    return carry | {two_streams.REMEMBERED: torch.arange(sequences) % (body.settings.memory + 1)}


def reached(body, tokens, carry):
    """Return which input tokens each token and each query depends on: (tokens, tokens) and (queries, tokens).

    An output depends on an input if the gradient is not exactly 0.
    """
    found = {}
    embedded = []
    body.embeddings.register_forward_hook(lambda module, given, x: embedded.append(x.requires_grad_()))
    out = body(tokens, NOTHING, carry)
    for name, rows in (("tokens", out.last), ("queries", out.queries)):
        weights = torch.randn(rows.shape, dtype=rows.dtype)
        gradients = [
            torch.autograd.grad((row * w).sum(), embedded[0], retain_graph=True)[0]
            for row, w in zip(rows, weights, strict=True)
        ]
        found[name] = torch.stack(gradients).ne(0).any(2)
    return found["tokens"], found["queries"]


def allowed(batch):
    """Return what each token and each query may depend on, by the order alone."""
    order, bounds = batch.tokens.reading.order, batch.tokens.offsets
    sequence = torch.bucketize(torch.arange(len(order)), bounds[1:], right=True)
    same = sequence[:, None] == sequence
    targets = batch.positions["targets"]
    return same & (order[:, None] >= order), (same & (order[:, None] > order))[targets]


@pytest.mark.parametrize("memory", [0, 5])
@pytest.mark.parametrize("border", [None, 4])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 4))])
def test_nothing_depends_on_what_the_order_hides(ordered, seed, border, memory):
    """Exactly: the gradient is 0 there, and nowhere else."""
    body = body_of(memory)
    batch = collate(ordered(LENGTHS, seed=seed, backward=BACKWARD, border=border, stream=True))
    carry = memory_of(body, 4) if memory else {}
    for found, expected in zip(reached(body, batch.tokens, carry), allowed(batch), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("leak", ["a query sees its token", "later ranks are seen", "the other part is seen"])
def test_a_planted_leak_is_noticed(ordered, monkeypatch, leak):
    body = body_of()
    batch = collate(ordered(LENGTHS, backward=BACKWARD, border=4, stream=True))
    original = two_streams.views

    def leaking(tokens, *others):
        if leak == "the other part is seen":
            order = torch.where(tokens.position_ids >= 4, 0, tokens.reading.order)
            return original(replace(tokens, reading=replace(tokens.reading, order=order)), *others)
        order = tokens.reading.order.clone()
        order[tokens.reading.queries] += 1 if leak == "later ranks are seen" else 0
        changed = original(replace(tokens, reading=replace(tokens.reading, order=order)), *others)
        if leak != "a query sees its token":
            return changed
        return [
            replace(view, queries=view.queries and replace(view.queries, mask=view.queries.mask * 0))
            for view in changed
        ]

    monkeypatch.setattr(two_streams, "views", leaking)
    found = reached(body, batch.tokens, {})
    assert any((one & ~other).any() for one, other in zip(found, allowed(batch), strict=True))


def test_a_target_does_not_change_its_own_prediction(ordered):
    body, batch = body_of(), collate(ordered(LENGTHS))
    before = body(batch.tokens).queries
    for number, token in enumerate(batch.positions["targets"].tolist()):
        ids = batch.tokens.ids.clone()
        ids[token] = (ids[token] + 7) % VOCABULARY
        after = body(replace(batch.tokens, ids=ids)).queries
        assert torch.equal(after[number], before[number])


def test_the_memory_is_the_last_remembered_states_of_each_layer(ordered):
    """Window after window, beside a list of all states that were remembered."""
    body = body_of(memory=7)
    carry, kept = body.start(3), [[] for _ in range(3)]
    for step in range(4):
        batch = collate(ordered((9, 9, 9), seed=step, border=3, stream=True))
        out = body(batch.tokens, Keep(layers=frozenset({0, 1, 2})), carry)
        for sequence in range(3):
            kept[sequence].append([out.layers[layer][9 * sequence :][:3] for layer in range(3)])
            size = min(7, 3 * (step + 1))
            assert int(out.carry[two_streams.REMEMBERED][sequence]) == size
            for layer in range(3):
                expected = torch.cat([states[layer] for states in kept[sequence]])[-size:]
                assert torch.equal(out.carry[f"memory.{layer}"][sequence, 7 - size :], expected)
        assert not any(rows.requires_grad for rows in out.carry.values())
        carry = out.carry


def test_memory_changes_what_is_predicted_and_an_empty_one_does_not(ordered):
    body, batch = body_of(memory=5), collate(ordered(LENGTHS))
    empty = body(batch.tokens, carry=body.start(4))
    torch.testing.assert_close(empty.queries, body(batch.tokens).queries)
    carry = memory_of(body, 4)
    filled = body(batch.tokens, carry=carry)
    changed = (filled.last - empty.last).abs().amax(1) > 1e-3
    assert torch.equal(changed, carry[two_streams.REMEMBERED].repeat_interleave(batch.tokens.offsets.diff()) > 0)


def test_gradients_reach_all_weights_through_queries_alone(ordered):
    body, batch = body_of(memory=5), collate(ordered(LENGTHS))
    none, carry = Keep(rows=torch.zeros(0, dtype=torch.int64)), memory_of(body, 4)
    out = body(batch.tokens, none, carry)
    assert not out.last.any()
    torch.testing.assert_close(out.queries, body(batch.tokens, carry=carry).queries)
    (out.queries * torch.randn(out.queries.shape)).sum().backward()
    idle = {name for name, parameter in body.named_parameters() if parameter.grad is None or not parameter.grad.any()}
    assert idle == {"pooler.weight", "pooler.bias"}


def test_windows_cost_time_linear_in_the_length(ordered):
    body = body_of(memory=8)
    body.settings = msgspec.structs.replace(body.settings, window=8)
    plain = [
        sample.changed(reading=replace(sample.reading, order=None), positions={}) for sample in ordered((64, 128, 256))
    ]
    costs = [body_flops(body, collate([sample]).tokens) for sample in plain]
    per_token = np.array(costs) / [64, 128, 256]
    assert per_token.max() < 1.1 * per_token.min()
    assert body_flops(body, collate(plain).tokens, 3) == body_flops(body, collate(plain).tokens)
    assert body(collate(plain).tokens, Keep(rows=torch.tensor([0]))).last.shape == (448, 16)


def test_recomputed_layers_are_the_same(ordered):
    body, batch = body_of(memory=5), collate(ordered(LENGTHS))
    carry, found = memory_of(body, 4), []
    for body.recompute in (False, True):
        body.zero_grad()
        body(batch.tokens, carry=carry).queries.square().sum().backward()
        found.append({name: parameter.grad for name, parameter in body.named_parameters()})
    for name, gradient in found[0].items():
        assert gradient is None or torch.equal(gradient, found[1][name])


def test_without_memory_it_carries_no_state_and_needs_no_streams():
    assert CARRY not in body_of().provides
    assert not body_of().settings.requires
    assert body_of(memory=4).settings.requires == {"contiguous streams"}


def test_only_some_rows_are_computed_in_the_last_layer(ordered):
    body = body_of()
    batch = collate(
        [sample.changed(reading=replace(sample.reading, order=None), positions={}) for sample in ordered(LENGTHS)]
    )
    whole = body(batch.tokens, Keep(layers=frozenset({1}))).last
    rows = torch.tensor([2, 11])
    some = body(batch.tokens, Keep(rows=rows)).last
    torch.testing.assert_close(some[rows], whole[rows])
    assert not np.delete(some.detach().numpy(), rows, 0).any()
    cost = body_flops(body, batch.tokens)
    assert cost * (1 - 1 / body.num_layers) < body_flops(body, batch.tokens, 2) < cost
