"""With the initial weights, heads attend to their offset by learned positions, in all layers, also if projected."""

import numpy as np
import pytest
import torch

from unmask.data.batches.batch import Sample, collate
from unmask.families import FAMILIES
from unmask.nn.encoders.encoder import Keep
from unmask.nn.layers.embeddings import pass_on_
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.rotary import AMPLITUDE, CONTRAST, PAIRS, readers, sinusoids
from unmask.objectives import OBJECTIVES
from unmask.objectives.objective import BuildContext

SHAPE = {"layers": 2, "width": 192, "heads": 3, "feed_forward": 64, "positions": 40, "segments": 1}
BODIES = [
    ("bert", {}),
    ("roberta", {"offset": 2}),
    ("electra", {"embedding": 96}),
    ("albert", {"embedding": 96, "shared": "none"}),
]


def offsets_of(scores):
    """Return the share of the tokens inside a sequence that attend most to the offsets -1 and 1, by head."""
    chosen = scores.argmax(-1) - torch.arange(scores.shape[-1])  # (heads, queries)
    inside = chosen[:, 1:-1]
    return [float((inside[head] == offset).float().mean()) for head, offset in ((0, -1), (1, 1))]


@pytest.mark.parametrize(("kind", "more"), BODIES, ids=[kind for kind, _ in BODIES])
def test_the_first_heads_of_a_new_body_attend_to_their_offsets(kind, more):
    torch.manual_seed(0)
    tokens = collate([Sample(key=(0,), ids=np.arange(5, 35))]).tokens
    keep = Keep(scores=frozenset({1, 2}))
    body = FAMILIES[kind].settings(**SHAPE, **more, initial_offsets=(-1, 1)).build(50).eval()
    for number, scores in body(tokens, keep).scores.items():
        least = 0.5 if number == 1 and more.get("embedding") else 0.8  # projected, and not normalized before layer 1
        assert min(offsets_of(scores[0][0])) > least, number
        assert scores[0][0, 2].softmax(-1).max() < 0.2, "the other head attends to all tokens"
    plain = FAMILIES[kind].settings(**SHAPE, **more).build(50).eval()
    assert all(max(offsets_of(scores[0][0])) < 0.3 for scores in plain(tokens, keep).scores.values())


@pytest.mark.parametrize("offset", [-2, -1, 1])
def test_scores_of_sinusoids_are_highest_at_the_offset(offset):
    query, key = readers(offset, 64, 256)
    normalized = sinusoids(40, 256) * (AMPLITUDE**2 * 256 / (PAIRS * AMPLITUDE**2 + 3 * 256)) ** 0.5
    scores = (normalized @ query.t()) @ (normalized @ key.t()).t() / 8  # (queries, keys)
    row = scores[20]
    assert int(row.argmax()) == 20 + offset
    for neighbor in (-1, 1):
        assert float(row[20 + offset] - row[20 + offset + neighbor]) == pytest.approx(CONTRAST, rel=1e-4)
    assert int(((normalized @ key.t()) @ (normalized @ query.t()).t())[20].argmax()) == 20 - offset, "a planted fault"


def test_narrow_widths_have_fewer_pairs():
    assert sinusoids(5, 6).shape == (5, 6)
    assert [len(part) for part in readers(1, 4, 6)] == [4, 4]


def test_a_projection_passes_the_sinusoids_on_and_keeps_the_scale():
    torch.manual_seed(0)
    project = Linear(96, 192)
    with torch.no_grad():
        project.weight.normal_(std=0.05)
        project.bias.zero_()
    pass_on_(project)
    x = torch.randn(2000, 96)
    y = project(x).detach()
    torch.testing.assert_close(y[:, :16], x[:, :16])
    assert float(y[:, 16:].std()) == pytest.approx(1, rel=0.1)


def test_the_generator_of_electra_starts_alike():
    torch.manual_seed(0)
    body = FAMILIES["electra"].settings(**SHAPE, embedding=96, initial_offsets=(-1,)).build(50)
    part = OBJECTIVES["replaced_token"](generator_size=1 / 3).build(BuildContext(body))
    project = part.generator.project.weight
    assert not project[:16, 16:].any() and project[:16, :16].diagonal().unique().numel() == 1
    query = part.generator.blocks[0].attention.qkv.weight[:16]
    assert query[:, :16].any() and not query[:, 16:].any()
