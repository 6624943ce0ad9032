"""Layers compute the same compiled: traced by torch.compile, run by its eager backend, which needs no C compiler."""

import copy
from functools import cache

import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.families.modernbert import ModernBertSettings
from unmask.families.neobert import NeoBertSettings
from unmask.nn.layers import block
from unmask.nn.layers.block import compile_layers
from unmask.support import rows

from .conftest import tokens_of

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # tracing reads them

SMALL = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32, "dropout": 0.0}
FAMILIES = {"post-norm": BertSettings, "pre-norm": ModernBertSettings, "RMSNorm": NeoBertSettings}
LENGTHS = [(3, 5), (1,), (7, 2, 4, 9), (30, 30)]


@pytest.fixture
def functions(monkeypatch):
    """Let functions be compiled for the eager backend, and return the number of the layers of which each was traced."""
    traced = []

    @cache
    def compiled(function):
        def backend(graph, inputs):
            traced.append(function.__name__)
            return graph

        torch._dynamo.reset()
        return torch.compile(function, dynamic=True, backend=backend)

    monkeypatch.setattr(block, "_compiled", compiled)
    return traced


@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_layers_have_equal_outputs_and_gradients(family, functions, monkeypatch):
    monkeypatch.setattr(rows, "_rows", None)  # what is compiled is torch's, and rounds otherwise
    torch.manual_seed(0)
    body = FAMILIES[family](**SMALL).build(50)
    compiled = copy.deepcopy(body)
    compile_layers(compiled)
    assert body.state_dict().keys() == compiled.state_dict().keys()
    for lengths in LENGTHS:
        tokens = tokens_of(lengths)
        for one in (body, compiled):
            one.zero_grad()
            last = one(tokens).last
            (last * torch.linspace(-1, 1, last.numel()).view_as(last)).sum().backward()
        torch.testing.assert_close(compiled(tokens).last, body(tokens).last)
        for (name, value), other in zip(body.named_parameters(), compiled.parameters(), strict=True):
            assert (value.grad is None) == (other.grad is None), name
            if value.grad is not None:
                torch.testing.assert_close(other.grad.to_dense(), value.grad.to_dense(), msg=name)
    count = len(functions)
    assert count <= 12, functions  # of each function, for layers with and without a norm there, and one token
    compiled(tokens_of((11, 6, 8)))
    assert len(functions) == count, "other numbers of tokens need no other code"


def test_evaluations_are_not_compiled(functions):
    body = BertSettings(**SMALL).build(50)
    compile_layers(body)
    with torch.no_grad():
        body(tokens_of((3, 5)))
    assert functions == []
    copy.deepcopy(body)(tokens_of((3, 5)))
    assert functions == ["finish"]
