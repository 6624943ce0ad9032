"""Causal language modeling: the loss in NumPy and in transformers; no token sees a later one, batched or alone."""

import numpy as np
import pytest
import torch
import transformers

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.families.gpt import GptSettings
from unmask.objectives.causal_lm import CausalLM
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides

SETTINGS = GptSettings(layers=2, width=32, heads=2, positions=80, dropout=0.0, init_std=0.2)
VOCABULARY = 100
LENGTHS = (3, 40, 5, 61, 17, 17, 2, 30, 9, 55)


@pytest.fixture
def learner():
    torch.manual_seed(0)
    return Learner(SETTINGS.build(VOCABULARY), {"causal_lm": CausalLM()}).eval()


def samples(seed=0):
    rng, frame = np.random.default_rng(seed), Frame(cls=2, sep=3)
    return [frame.wrap(rng.integers(5, VOCABULARY, length)).named((number,)) for number, length in enumerate(LENGTHS)]


def test_every_token_but_the_first_is_a_target(learner):
    batch = collate([learner.prepare(sample) for sample in samples()])
    assert batch.counts == {"causal_lm": sum(length + 1 for length in LENGTHS)}
    following = torch.roll(batch.tokens.ids, -1)[batch.positions["next"]]
    assert torch.equal(following, batch.labels["next"])
    ends = batch.tokens.offsets[1:].long() - 1
    assert not torch.isin(ends, batch.positions["next"]).any()


def test_the_loss_is_that_of_the_formula_in_numpy(learner):
    """Equation 1: minus the sum of log P(u_i | u_1 ... u_{i-1}), with all causal layers recomputed."""
    state = {name: value.detach().double().numpy() for name, value in learner.encoder.state_dict().items()}

    def norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        return centered / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]

    def line(x, name):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    total = 0.0
    for sample in samples():
        ids = sample.ids
        x = state["embeddings.words.weight"][ids] + state["embeddings.positions.weight"][: len(ids)]
        for number in range(2):
            block = f"blocks.{number}"
            query, key, value = np.split(line(x, f"{block}.attention.qkv"), 3, axis=1)
            gathered = []
            for part in (slice(0, 16), slice(16, 32)):
                scores = query[:, part] @ key[:, part].T / 4
                scores[np.triu_indices(len(ids), 1)] = -np.inf
                probabilities = np.exp(scores - scores.max(1, keepdims=True))
                gathered.append(probabilities / probabilities.sum(1, keepdims=True) @ value[:, part])
            x = norm(x + line(np.concatenate(gathered, 1), f"{block}.attention.out"), f"{block}.attention_norm")
            inner = line(x, f"{block}.feed_forward.up")
            inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
            x = norm(x + line(inner, f"{block}.feed_forward.down"), f"{block}.feed_forward_norm")
        logits = x[:-1] @ state["embeddings.words.weight"].T
        total -= (logits[np.arange(len(ids) - 1), ids[1:]] - np.log(np.exp(logits).sum(1))).sum()
    part = learner(collate([learner.prepare(sample) for sample in samples()]))["causal_lm"]
    assert part.sum.item() == pytest.approx(total, rel=1e-5)


def test_the_loss_is_that_of_transformers(learner, tmp_path):
    from unmask.families.checkpoints import huggingface

    huggingface.write(tmp_path, learner.encoder, {"causal_lm": {}})
    theirs = transformers.OpenAIGPTLMHeadModel.from_pretrained(tmp_path).eval()
    expected = 0.0
    for sample in samples():
        ids = torch.from_numpy(sample.ids)[None]
        expected += theirs(ids, labels=ids).loss.item() * (len(sample) - 1)
    part = learner(collate([learner.prepare(sample) for sample in samples()]))["causal_lm"]
    assert part.sum.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("together", [True, False])
def test_later_tokens_have_no_effect(learner, together):
    """Neither in the forward nor in the backward pass, padded within a group or alone."""
    first, changed = samples(), samples()
    for sample in changed:
        sample.ids[-2:] = 7
    for one, other in (
        [(first, changed)] if together else zip(*([[it] for it in part] for part in (first, changed)), strict=True)
    ):
        batch, others = collate(one), collate(other)
        with torch.no_grad():
            before, after = learner.encoder(batch.tokens).last, learner.encoder(others.tokens).last
        lengths = batch.tokens.offsets.diff().repeat_interleave(batch.tokens.offsets.diff())
        early = batch.tokens.position_ids < lengths - 2
        assert torch.equal(before[early], after[early])
        assert not torch.equal(before[~early], after[~early])
    batch = collate(first)
    kept = learner.encoder.embed(batch.tokens).detach().requires_grad_()
    x = kept
    for block in learner.encoder.blocks:
        x = block(x, batch.tokens)
    start = int(batch.tokens.offsets[-2])
    x[start + 10, 0].backward()  # a single output, as the sum of the outputs of a LayerNorm is constant
    assert kept.grad[start : start + 11].abs().sum(1).min() > 0
    assert kept.grad[start + 11 :].abs().max() == 0
    assert kept.grad[:start].abs().max() == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("masking.kind=token", "objective.causal_lm needs unmasked text.*masking.kind.: .none"),
        ("objective.masked_lm.weight=1", "objective.masked_lm needs bidirectional context.*encoder.kind.: .bert"),
        ("encoder.kind=bert", "encoder.feed_forward` is missing"),
        ("encoder.segments=2", "it requires encoder.kind = bert"),
        ("encoder.feed_forward=512", "it requires encoder.kind = bert"),
        ("encoder.activation=gelu", "encoder.activation cannot be 'gelu'; known: gelu_tanh, relu"),
        ("encoder.offset=2", "it requires encoder.kind = roberta"),
    ],
)
def test_incompatible_settings_are_refused(setting, message):
    with pytest.raises(UserError, match=message):
        read_recipe("gpt-mini", parse_overrides([setting]))


def test_a_bidirectional_model_cannot_predict_next_tokens():
    with pytest.raises(UserError, match=r"objective.causal_lm needs left-to-right context.*encoder.kind.: .gpt"):
        read_recipe("bert-mini", {"objective.causal_lm.weight": 1})
    with pytest.raises(UserError, match=r"objective.masked_lm needs masked tokens.*.masking.kind.: .token"):
        read_recipe("bert-mini", {"masking.kind": "none"})
