"""Bodies with padded input equal the ragged encoder at real tokens, eagerly and exported with dynamic shapes."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.nn.kernels import set_kernel
from unmask.data.batches.batch import UNSEEN, Sample, collate
from unmask.families import FAMILIES
from unmask.families.albert import AlbertSettings
from unmask.families.bert import BertSettings
from unmask.families.deberta import DebertaSettings
from unmask.families.distilbert import DistilBertSettings
from unmask.families.electra import ElectraSettings
from unmask.families.eurobert import EuroBertSettings
from unmask.families.gpt import GptSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.mpnet import MpnetSettings
from unmask.families.neobert import NeoBertSettings
from unmask.families.nomicbert import NomicBertSettings
from unmask.families.roberta import CamembertSettings, RobertaSettings, XlmRobertaSettings
from unmask.families.roformer import RoFormerSettings
from unmask.families.xlnet import XlnetSettings
from unmask.nn.encoders.encoder import UNSEEN_TOKENS
from unmask.nn.encoders.stored import padded_tokens
from unmask.nn.layers import embeddings, linear, norm
from unmask.nn.layers.block import SelfAttention, choose_kernel
from unmask.nn.layers.fused_attention import fused
from unmask.nn.layers.fused_attention import padded as on_gpus
from unmask.nn.layers.plain_attention import AttentionSpec, plain
from unmask.nn.layers.rotary import Rotation

VOCABULARY = 60
BODIES = {
    "bert": BertSettings,
    "shared layers": AlbertSettings,
    "shared attention": partial(AlbertSettings, shared="attention"),
    "narrow embeddings": partial(ElectraSettings, embedding=16),
    "gpt": GptSettings,
    "distilbert": DistilBertSettings,
    "roberta": RobertaSettings,
    "roformer": RoFormerSettings,
    "xlm_roberta": XlmRobertaSettings,
    "camembert": CamembertSettings,
    "mpnet": MpnetSettings,
    "deberta": partial(DebertaSettings, buckets=8, distances=16, convolution=3),
    "xlnet": XlnetSettings,
    "modernbert": partial(ModernBertSettings, window=2, global_every=2),
    "nomicbert": NomicBertSettings,
    "eurobert": partial(EuroBertSettings, key_heads=2),
    "neobert": NeoBertSettings,
    "rotated halves": BertSettings,
    "rotated gpt": GptSettings,
}
BIASED = ("mpnet", "deberta")
"""Bodies with biases of scores, which the plain kernel alone has."""
ROTATIONS = {"rotated halves": Rotation(), "rotated gpt": Rotation(interleaved=True)}


def build(kind, layers=2):
    """Return a body with large weights."""
    inner = {} if "gpt" in kind else {"feed_forward": 64}
    settings = BODIES[kind](layers=layers, width=32, heads=4, positions=40, init_std=0.2, **inner)
    body = settings.build(VOCABULARY).eval()
    for module in body.modules():
        if isinstance(module, SelfAttention) and kind in ROTATIONS:
            module.spec = replace(module.spec, rotation=ROTATIONS[kind])
    return body


def test_all_families_are_covered():
    kinds = {settings.func if isinstance(settings, partial) else settings for settings in BODIES.values()}
    recurrent = {FAMILIES["elmo"].settings}  # a loop over the tokens of the longest sequence, which is not exported
    assert kinds == {family.settings for family in FAMILIES.values()} - recurrent


def padded_input(lengths, length, seed=0):
    """Return ids, the mask of real tokens, and segments; ids and segments at padding are arbitrary."""
    rng = np.random.default_rng(seed)
    shape = len(lengths), length
    real = np.arange(length) < np.array(lengths)[:, None]
    return [torch.from_numpy(x) for x in (rng.integers(0, VOCABULARY, shape), real, rng.integers(0, 2, shape))]


def ragged(body, ids, real, segments):
    """Return the last layer of each row's real tokens, computed without padding."""
    samples = [
        Sample(key=(number,), ids=row[kept].numpy(), segments=kind[kept].numpy())
        for number, (row, kept, kind) in enumerate(zip(ids, real, segments, strict=True))
    ]
    batch = collate(samples)
    with torch.no_grad():
        rows = body(batch.tokens).last.split(batch.tokens.offsets.diff().tolist())
    return [row for _, row in sorted(zip(batch.keys, rows, strict=True), key=lambda pair: pair[0])]


def assert_same(last, body, ids, real, segments, atol=1e-5):
    for ours, kept, theirs in zip(last, real, ragged(body, ids, real, segments), strict=True):
        torch.testing.assert_close(ours[kept], theirs, rtol=0, atol=atol)


class Padded(nn.Module):
    """A body with padded input."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, ids, real, segments=None):
        return self.body(padded_tokens(ids, real, segments)).last.view(*ids.shape, -1)


INPUTS = [((3, 9, 6), 9), ((12,), 12), ((1, 2, 17, 5, 17), 23)]


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [(kind, kernel) for kind in BODIES for kernel in (fused, plain) if kind not in BIASED or kernel is plain],
)
def test_padded_input_equals_the_ragged_encoder(kind, kernel):
    body = build(kind)
    for lengths, length in INPUTS:
        inputs = padded_input(lengths, length)
        with torch.no_grad():
            last = set_kernel(Padded(body), kernel)(*inputs)
        assert last.shape == (len(lengths), length, 32)
        assert_same(last, body, *inputs)


def with_unseen(lengths, length, unseen):
    """Return padded input, and it and a short text as a batch in which padding are tokens, attended to or `unseen`."""
    ids, real, segments = padded_input(lengths, length)
    rows = [(number, *row) for number, row in enumerate(zip(ids, segments, lengths, strict=True))]
    samples = [
        Sample(
            key=(number,),
            ids=row[:end].numpy(),
            segments=kind[:end].numpy(),
            positions={UNSEEN: np.arange(size if unseen else end, end)},
        )
        for number, row, kind, size, end in (*((*row, length) for row in rows), (9, *rows[0][1:], 3))
    ]
    return (ids, real, segments), collate(samples)


@pytest.mark.usefixtures("with_blas")  # as on GPUs, streams are not filled up
@pytest.mark.parametrize("kind", [kind for kind in BODIES if UNSEEN_TOKENS in build(kind).provides])
def test_no_token_attends_to_unseen_ones(kind):
    body = build(kind)
    inputs, batch = with_unseen((3, 9, 12), 12, True)
    with torch.no_grad():
        expected = Padded(body)(*inputs)  # whose padding attends to all tokens, and is not attended to
        found = body(batch.tokens).last
        seen = body(with_unseen((3, 9, 12), 12, False)[1].tokens).last
    rows = dict(zip(batch.keys, found.split(batch.tokens.offsets.diff().tolist()), strict=True))
    for number, row in enumerate(expected):
        torch.testing.assert_close(rows[number,], row, rtol=0, atol=1e-5)
    assert not torch.allclose(found, seen, atol=1e-3)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    gradients = []
    for kernel in (plain, fused, on_gpus) if kind not in BIASED else (plain,):
        body.zero_grad()
        (set_kernel(body, kernel)(batch.tokens).last * weights).sum().backward()
        gradients.append(
            {name: value.grad.clone() for name, value in body.named_parameters() if value.grad is not None}
        )
    for others in gradients[1:]:
        for name, value in gradients[0].items():
            torch.testing.assert_close(others[name], value, rtol=1e-3, atol=1e-3)


def test_without_segments_all_are_0():
    body, (ids, real, segments) = build("bert"), padded_input((3, 9), 9)
    padded = Padded(body)
    with torch.no_grad():
        assert padded(ids, real).equal(padded(ids, real, torch.zeros_like(segments)))
        assert not padded(ids, real).equal(padded(ids, real, segments))


def export(body, inputs, kernel=None):
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=1, max=40)
    axes = {0: batch, 1: length}
    padded = Padded(copy.deepcopy(body))
    if kernel is not None:
        set_kernel(padded, kernel)
    with torch._dynamo.config.patch(fake_tensor_cache_enabled=False):  # which pays from about ten layers on
        return torch.export.export(padded, tuple(inputs), dynamic_shapes=(axes, axes, axes))


ALIKE = ("shared attention", "narrow embeddings", "distilbert", "xlm_roberta", "camembert", "rotated halves")
"""Bodies whose operators are those of others: ALBERT, BERT, RoBERTa, and the families that rotate halves."""
ELSEWHERE = ("bert", "rotated gpt", "nomicbert", "eurobert", "neobert")
"""GPT with RoFormer's rotations, and bodies whose ONNX programs are tested in tests/inference and tests/families."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.exhaustive) if kind in ALIKE + ELSEWHERE else kind for kind in BODIES]
)
def test_an_exported_body_accepts_any_batch_and_length(kind):
    body = build(kind, layers=2 if kind == "modernbert" else 1)  # its second layer is the first with a window
    program = export(body, padded_input((4, 7, 5), 7), plain)
    for lengths, length in INPUTS:
        inputs = padded_input(lengths, length)
        with torch.no_grad():
            assert_same(program.module()(*inputs), body, *inputs)


def targets(program):
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_export_uses_only_public_operators(dtype, monkeypatch, with_onednn):
    """Also on a CPU whose float32 products use oneDNN, and without a chosen kernel."""
    for module in (linear._Linear, norm._LayerNorm, embeddings._LookUp):
        monkeypatch.setattr(module, "apply", None)
    program = export(build("rotated halves", layers=1).to(dtype), padded_input((4, 7, 5), 7))
    names = targets(program)
    assert {"aten.linear.default", "aten.layer_norm.default", "aten.embedding.default"} <= names
    names.discard("aten._assert_tensor_metadata.default")  # torch.export's own
    assert all(name.startswith(("aten.", "<built-in function")) for name in names), names
    assert not any(name.startswith("aten._") for name in names), names
    assert "aten.dropout.default" not in names


@pytest.mark.parametrize("fault", ["padding seen", "positions off by one"])
def test_the_comparison_notices_a_planted_fault(fault, monkeypatch):
    body = build("bert")
    ids, real, segments = padded_input((4, 7, 5), 7)
    forward = type(body).forward

    def changed(self, tokens):
        if fault == "positions off by one":
            return forward(self, replace(tokens, position_ids=tokens.position_ids + 1))
        return forward(self, replace(tokens, groups=tuple(replace(group, real=None) for group in tokens.groups)))

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(type(body), "forward", changed)
        last = Padded(body)(ids, real, segments)
    with pytest.raises(AssertionError):
        assert_same(last, body, ids, real, segments)


def test_the_mask_of_padding_moves_with_its_group():
    body, seen = build("bert"), []
    inputs = padded_input((4, 7), 7)
    body.forward = lambda tokens: seen.append(tokens) or type(body).forward(body, tokens)
    Padded(body)(*inputs)
    (group,) = seen[0].map(lambda tensor: tensor.clone()).groups
    assert group.index is None
    assert group.slots is None
    assert group.real is not inputs[1]
    assert group.real.equal(inputs[1])
    assert choose_kernel(torch.zeros(14, 96), seen[0], AttentionSpec(4)) is fused
