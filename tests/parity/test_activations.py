"""Names of activations in config.json: each name of transformers that means a function of ours is read as it."""

import pytest
import torch
from transformers.activations import ACT2CLS, ACT2FN

from unmask.families.deberta import CONVOLUTION_ACTIVATIONS
from unmask.families.format import ACTIVATIONS
from unmask.nn.layers.block import ACTIVATIONS as MODULES
from unmask.nn.layers.pooler import ACTIVATIONS as FUNCTIONS

POINTS = torch.linspace(-12, 12, 4001)
"""Far enough out that a function with a limit, such as `gelu_10`, differs."""


def same(found, expected):
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in ACT2CLS if name not in ("prelu", "xielu")])  # have parameters
def test_names_are_read_as_the_function_that_they_are(name):
    expected = ACT2FN[name](POINTS)
    ours = [own for own, module in MODULES.items() if same(module()(POINTS), expected)]
    assert ([ACTIVATIONS[name]] if name in ACTIVATIONS else []) == ours
    ours = [own for own, function in FUNCTIONS.items() if same(function(POINTS), expected)]
    assert ([CONVOLUTION_ACTIVATIONS[name]] if name in CONVOLUTION_ACTIVATIONS else []) == ours
