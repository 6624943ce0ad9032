"""The LSTM: outputs, states and gradients equal torch's, and with clipping a plain loop's; ragged sequences; states."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

from unmask.nn.layers import lstm
from unmask.nn.layers.lstm import Lstm, LstmState

WIDTH, CELLS = 6, 10
SIZES = (4, 4, 3, 1, 1)  # sequences of 5, 3, 3 and 2 tokens


def new_layer(clip=None, seed=0, scale=1.0):
    torch.manual_seed(seed)
    layer = Lstm(WIDTH, CELLS, clip).double()
    for parameter in layer.parameters():
        parameter.data.normal_(std=scale)
    return layer


def new_state(sequences=SIZES[0]):
    return LstmState(torch.randn(sequences, WIDTH).double(), torch.randn(sequences, CELLS).double())


def plain(layer, x, sizes, state):
    """One step after the other, by autograd."""
    hidden, cells = state
    outputs, finished = [], []
    for number, part in enumerate(x.split(list(sizes))):
        gates = layer.input(part) + layer.recurrent(hidden[: len(part)])
        enter, forget, leave, new = gates.chunk(4, 1)
        cells = forget.sigmoid() * cells[: len(part)] + enter.sigmoid() * new.tanh()
        if layer.clip is not None:
            cells = cells.clamp(-layer.clip, layer.clip)
        hidden = layer.project(leave.sigmoid() * cells.tanh())
        if layer.clip is not None:
            hidden = hidden.clamp(-layer.clip, layer.clip)
        outputs.append(hidden)
        following = sizes[number + 1] if number + 1 < len(sizes) else 0
        finished = [(hidden[following:], cells[following:]), *finished]
    return torch.cat(outputs), LstmState(*map(torch.cat, zip(*finished, strict=True)))


def results(run, layer, x, state):
    x = x.clone().requires_grad_()
    outputs, after = run(x, SIZES, state)
    weights = torch.arange(outputs.numel()).view_as(outputs).cos().double()
    return outputs, *after, *torch.autograd.grad((outputs * weights).sum(), (x, *layer.parameters()))


@pytest.mark.parametrize(("clip", "scale"), [(None, 0.5), (0.6, 1.0), (3.0, 0.5)])
def test_outputs_states_and_gradients_equal_those_of_a_plain_loop(clip, scale):
    layer, x, state = new_layer(clip, scale=scale), torch.randn(sum(SIZES), WIDTH).double(), new_state()
    ours = results(layer, layer, x, state)
    theirs = results(lambda *inputs: plain(layer, *inputs), layer, x, state)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    if clip == 0.6:
        assert (ours[0].abs() == clip).any(), "projected outputs were clipped"
        assert (ours[2].abs() == clip).any(), "cells were clipped"


def test_the_comparison_notices_a_planted_fault(monkeypatch):
    monkeypatch.setattr(lstm, "_stop_clipped", lambda grad, x, limit: grad)
    with pytest.raises(AssertionError):
        test_outputs_states_and_gradients_equal_those_of_a_plain_loop(0.6, 1.0)


def test_without_clipping_it_is_torchs_lstm():
    layer, x = new_layer(), torch.randn(sum(SIZES), WIDTH).double()
    theirs = torch.nn.LSTM(WIDTH, CELLS, proj_size=WIDTH).double()
    with torch.no_grad():
        for gates, own in ((theirs.weight_ih_l0, layer.input.weight), (theirs.weight_hh_l0, layer.recurrent.weight)):
            enter, forget, leave, new = own.chunk(4)
            gates.copy_(torch.cat([enter, forget, new, leave]))
        enter, forget, leave, new = layer.input.bias.chunk(4)
        theirs.bias_ih_l0.copy_(torch.cat([enter, forget, new, leave]))
        theirs.bias_hh_l0.zero_()
        theirs.weight_hr_l0.copy_(layer.project.weight)
    state = new_state()
    outputs, after = layer(x, SIZES, state)
    packed, (hidden, cells) = theirs(PackedSequence(x, torch.tensor(SIZES)), (state.hidden[None], state.cells[None]))
    torch.testing.assert_close(outputs, packed.data)
    torch.testing.assert_close(after.hidden, hidden[0])
    torch.testing.assert_close(after.cells, cells[0])


def test_a_sequence_may_be_read_in_pieces():
    layer, x, state = new_layer(3.0), torch.randn(12, WIDTH).double(), new_state(2)
    whole, end = layer(x, (2,) * 6, state)
    first, between = layer(x[:8], (2,) * 4, state)
    second, after = layer(x[8:], (2,) * 2, between)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    for one, other in zip(after, end, strict=True):
        torch.testing.assert_close(one, other)
    assert not any(part.requires_grad for part in after)


def test_the_state_before_the_first_step_is_zero():
    start = Lstm(WIDTH, CELLS).start(3)
    assert [tuple(part.shape) for part in start] == [(3, WIDTH), (3, CELLS)]
    assert not any(part.any() for part in start)
