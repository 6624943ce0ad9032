"""ELMo's body: each direction reads its side only; directions, states and dropout; bf16; what a step costs."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Reading
from unmask.data.tokenizers.words import BEGIN_WORD, END_WORD, PADDING
from unmask.nn.encoders.encoder import CARRY, HeadSpec, Keep
from unmask.nn.encoders.two_lms import CharacterCnn, TwoLms
from unmask.nn.layers.lstm import Lstm

WIDTH, CELLS, BYTES = 6, 10, 8
ALL = Keep(layers=frozenset({0, 1, 2}))


@dataclass(frozen=True)
class Settings:
    width: int = 2 * WIDTH
    layers: int = 2
    positions: int = 512
    head: HeadSpec = field(default_factory=lambda: HeadSpec(width=2 * WIDTH))
    provides: frozenset[str] = frozenset({CARRY})


def new_body(dropout=0.0):
    torch.manual_seed(0)
    lms = [[Lstm(WIDTH, CELLS, clip=3.0) for _ in range(2)] for _ in range(2)]
    body = TwoLms(Settings(), 9, CharacterCnn(4, [(1, 4), (3, 8)], 1, WIDTH), *lms, dropout)
    for parameter in body.parameters():
        parameter.data.normal_(std=0.5)
    return body.double().train(dropout > 0)


def word(content):
    ids = [BEGIN_WORD, *content, END_WORD]
    return ids + [PADDING] * (BYTES - len(ids))


def sample(length, seed=0, **others):
    rng = np.random.default_rng((seed, length))
    ids = np.array([word(rng.integers(0, 256, rng.integers(0, BYTES - 1))) for _ in range(length)])
    return Sample(key=(seed, length), ids=ids, **others)


def of(encoded, tokens, sequence):
    start, stop = tokens.offsets[sequence : sequence + 2].tolist()
    return {number: layer[start:stop] for number, layer in encoded.layers.items()}


@torch.no_grad()
def test_a_batch_gives_what_each_text_gives_alone():
    body, samples = new_body(), [sample(length) for length in (1, 3, 3, 7)]
    tokens = collate(samples).tokens
    together = body(tokens, ALL)
    assert together.last is together.layers[2]
    assert together.carry == {}
    for number, each in enumerate(samples):
        alone = body(collate([each]).tokens, ALL)
        for layer, rows in of(together, tokens, number).items():
            torch.testing.assert_close(rows, alone.layers[layer])


def test_each_direction_reads_its_own_side_only():
    body, tokens = new_body(), collate([sample(6)]).tokens
    vectors = []
    body.characters.register_forward_hook(lambda module, given, out: vectors.append(out) or out.retain_grad())
    found = body(tokens, ALL)
    torch.testing.assert_close(found.layers[0], torch.cat([vectors[0], vectors[0]], 1))
    for layer in (1, 2):
        for part, sides in ((slice(None, WIDTH), range(4)), (slice(WIDTH, None), range(3, 6))):
            vectors[0].grad = None
            found.layers[layer][3, part].sum().backward(retain_graph=True)
            assert {row for row in range(6) if vectors[0].grad[row].any()} == set(sides)


@torch.no_grad()
def test_sequences_with_a_direction_are_read_by_its_model():
    body, forward, backward = (
        new_body(),
        sample(5, reading=Reading(backward=False)),
        sample(5, reading=Reading(backward=False)),
    )
    reverse = replace(backward, key=(1,), ids=backward.ids[::-1], reading=Reading(backward=True))
    short = sample(2, reading=Reading(backward=True))
    tokens = collate([reverse, forward, short]).tokens
    assert tokens.reading.backward == 2
    directed = body(tokens, ALL)
    plain = body(collate([replace(forward, reading=Reading())]).tokens, ALL)
    for layer in (0, 1, 2):
        torch.testing.assert_close(of(directed, tokens, 0)[layer], plain.layers[layer][:, :WIDTH])
        torch.testing.assert_close(of(directed, tokens, 2)[layer], plain.layers[layer][:, WIDTH:].flip(0))


@pytest.mark.parametrize("directions", [(False, True), (False, False), (True, True)])
@torch.no_grad()
def test_states_go_on(directions):
    body = new_body()
    whole = [
        sample(8, seed, reading=Reading(backward=backward), stream=seed) for seed, backward in enumerate(directions)
    ]
    carry, parts = body.start(2), []
    for half in (slice(None, 4), slice(4, None)):
        tokens = collate([replace(each, ids=each.ids[half]) for each in whole]).tokens
        found = body(tokens, ALL, carry)
        carry = found.carry
        parts.append([found.last[:4], found.last[4:]])
    tokens = collate(whole).tokens
    found = body(tokens, ALL, body.start(2))
    for sequence in (0, 1):
        torch.testing.assert_close(torch.cat([part[sequence] for part in parts]), of(found, tokens, sequence)[2])
    for name, rows in carry.items():
        torch.testing.assert_close(rows, found.carry[name])


def test_dropout_of_inputs_and_of_the_output():
    body, tokens = new_body(dropout=0.5), collate([sample(4) for _ in range(3)]).tokens
    calls = []
    body.dropout.register_forward_hook(lambda module, given, out: calls.append((given[0], out)))
    found = body(tokens, ALL)
    assert len(calls) == 2 * 3  # both directions: the inputs of two LSTMs, and the output
    assert all((out == 0).any() and not (given == 0).all() for given, out in calls)
    assert (found.last == 0).any()
    assert not (found.layers[1] == 0).any()


def test_groups_of_layers_cover_all_weights():
    body = new_body()
    assert len(body.layer_groups) == 1 + body.num_layers
    covered = [parameter for group in body.layer_groups for parameter in group.parameters()]
    assert {id(parameter) for parameter in covered} == {id(parameter) for parameter in body.parameters()}
