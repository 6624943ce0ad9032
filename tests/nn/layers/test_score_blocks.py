"""Local attention: blocks of queries and the keys in reach, compared with the plain kernel, and a planted fault."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from unmask.nn.layers import score_blocks
from unmask.nn.layers.fused_attention import fused
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.nn.layers.rotary import Rotation
from unmask.nn.layers.score_blocks import Blocks, Whole, choose

from .conftest import HEADS, assert_same, run, tokens_of


def kinds(tokens, spec):
    return {type(choose(group, spec, torch.zeros(()))) for group in tokens.groups}


LENGTHS = {
    "around the window": (8, 9, 10, 11),
    "around a block": (15, 16, 17, 33),
    "no padding": (70, 70, 70),
    "padded": (52, 64, 65, 80),
    "many groups": (3, 9, 17, 60, 120, 120),
}
WINDOWS = (1, 4, 9, 16, 17)


@pytest.fixture(params=[8, 4], ids=["blocks of 8", "blocks of 4"])
def block(request, monkeypatch):
    monkeypatch.setattr(score_blocks, "BLOCK", request.param)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize(
    ("saving", "block"),
    [(0, 8), (0, 4), (2.5, 8), (1000, 8)],
    ids=["blocks of 8", "blocks of 4", "as chosen", "never blocks"],
    indirect=["block"],
)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_local_attention_equals_the_plain_kernel(causal, saving, block, lengths, monkeypatch):
    monkeypatch.setattr(score_blocks, "MIN_SAVING", saving)
    tokens = tokens_of(lengths)
    for window in WINDOWS:
        spec = AttentionSpec(HEADS, causal=causal, rotation=Rotation(), window=window)
        assert saving == 2.5 or kinds(tokens, spec) == {Whole if saving else Blocks}
        assert_same(run(fused, spec, tokens), run(plain, spec, tokens))


@pytest.mark.parametrize("long", [1, 10_000], ids=["recomputed", "kept"])
def test_long_sequences_in_every_dtype(long, monkeypatch):
    monkeypatch.setattr("unmask.nn.layers.fused_attention.LONG", long)
    tokens, spec = tokens_of((900, 1030)), AttentionSpec(HEADS, rotation=Rotation(160_000.0), window=64)
    assert kinds(tokens, spec) == {Blocks}
    exact = run(plain, spec, tokens)
    assert_same(run(fused, spec, tokens), exact)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        for one, other in zip(run(fused, spec, tokens, dtype), exact, strict=True):
            assert (one.double() - other).norm() < bound * other.norm()


@pytest.mark.parametrize("saving", [0, 1000], ids=["blocks", "whole"])
@pytest.mark.parametrize("fault", ["wider", "narrower"])
def test_a_window_off_by_one_is_noticed(fault, saving, monkeypatch):
    monkeypatch.setattr(score_blocks, "MIN_SAVING", saving)
    tokens, shift = tokens_of((70, 70)), 1 if fault == "wider" else -1
    right, wrong = (AttentionSpec(HEADS, window=9 + by) for by in (0, shift))
    with pytest.raises(AssertionError):
        assert_same(run(fused, wrong, tokens), run(plain, right, tokens))


@pytest.mark.parametrize("fault", ["the first block", "the last block", "padding"])
def test_a_mask_that_is_missing_is_noticed(fault, monkeypatch):
    lengths = (52, 64, 65, 80) if fault == "padding" else (70, 70)
    tokens, spec = tokens_of(lengths), AttentionSpec(HEADS, window=9)
    monkeypatch.setattr(score_blocks, "MIN_SAVING", 0)
    start = Blocks.__init__

    def changed(self, *arguments):
        start(self, *arguments)
        if fault == "the first block":
            self.missing[:, 0] = 0
        else:
            self.complete = [self.count] * len(self.complete)

    monkeypatch.setattr(Blocks, "__init__", changed)
    with pytest.raises(AssertionError):
        assert_same(run(fused, spec, tokens), run(plain, spec, tokens))


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    ("lengths", "long"),
    [
        pytest.param((10, 10), 1, id="equal-recomputed"),
        pytest.param((9, 11), 100, id="padded-kept"),
        pytest.param((20, 20), 100, id="equal-kept", marks=pytest.mark.exhaustive),
        pytest.param((17, 19), 1, id="padded-recomputed", marks=pytest.mark.exhaustive),
    ],
)
def test_with_dropout_gradients_are_those_of_the_outputs(lengths, long, monkeypatch):
    """The same probabilities are dropped at each call with the same seed, and in the backward pass."""
    monkeypatch.setattr("unmask.nn.layers.fused_attention.LONG", long)
    monkeypatch.setattr(score_blocks, "MIN_SAVING", 0)
    tokens, qkv = tokens_of(lengths), torch.randn(sum(lengths), 18, dtype=torch.float64, requires_grad=True)

    def attend(qkv, seed=0):
        torch.manual_seed(seed)
        return fused(qkv, tokens, AttentionSpec(2, 0.3, window=3))

    assert attend(qkv).equal(attend(qkv))
    assert not attend(qkv).equal(attend(qkv, 1))
    assert torch.autograd.gradcheck(attend, qkv, fast_mode=True)


def test_dropout_has_its_rate_and_scale():
    tokens, qkv = tokens_of((2000,)), torch.zeros(2000, 3 * HEADS * 8)
    qkv[:, -HEADS * 8 :] = 1
    out = fused(qkv, tokens, AttentionSpec(HEADS, dropout=0.3, window=64))  # (kept of 129) / 129 / 0.7
    assert float(out.mean()) == pytest.approx(1, abs=0.005)
    assert float(out[64:-64].std()) == pytest.approx((0.3 / 0.7 / 129) ** 0.5, rel=0.1)


def test_blocks_are_chosen_where_they_save_much():
    local = AttentionSpec(HEADS, window=64)
    assert kinds(tokens_of((200, 480)), local) == {Whole}
    assert kinds(tokens_of((481, 481)), local) == {Blocks}
    assert kinds(tokens_of((481, 481)), AttentionSpec(HEADS)) == {Whole}
    (group,) = tokens_of((60, 65)).groups
    assert Whole(group, local, torch.zeros(())).band is None, "all tokens are in the window"


def test_the_cost_is_linear_in_the_length():
    def cost(length):
        with FlopCounterMode(display=False) as counter:
            run(fused, AttentionSpec(HEADS, window=64), tokens_of((length,)), torch.float32)
        return counter.get_total_flops()

    assert cost(2048) == 2 * cost(1024)
    assert cost(1024) == 7 * 2 * 1024 * (64 + 64 + 64) * HEADS * 8, "six products, one of them twice"
