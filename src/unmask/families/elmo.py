"""ELMo (Peters et al. 2018, arXiv 1802.05365): two language models over the characters of words; its directories.

Sizes and initial weights are those of bilm-tf (`bilm/training.py`): embeddings of bytes uniform in [-1, 1], filters
uniform in [-0.05, 0.05] (normal before tanh), highway layers and projections normal with 1 / inputs as variance,
highway gates that mostly pass their input (bias -2), LSTMs by Glorot's rule with 1 as bias of the forget gates.
transformers has no ELMo, so tensors keep our names in directories.
"""

from __future__ import annotations

import torch
from torch import nn

from unmask.data.batches.sources import DIRECTED
from unmask.data.tokenizers.words import LONGEST
from unmask.families.body import MAX_LAYERS, BodySettings, check_size
from unmask.families.format import TASK_HEADS, Family, Format, architectures
from unmask.nn.encoders.encoder import CARRY, CHARACTERS, SEPARATE_LAYERS, TWO_LMS, HeadSpec, Initializer
from unmask.nn.encoders.two_lms import CharacterCnn, TwoLms, WordActivation
from unmask.nn.layers.lstm import Lstm


class ElmoSettings(BodySettings, frozen=True, kw_only=True, tag="elmo"):
    """The recipe's [encoder] for `kind = "elmo"`; see `BodySettings`.

    Attributes:
        layers: number of LSTMs of each direction.
        width: width of the states of both directions together.
        cells: width of an LSTM's cells, which are projected to half of `width`.
        characters: width of the embeddings of bytes.
        filters: size and number of the filters of each convolution over characters.
        highways: number of highway layers above the convolutions.
        activation: "relu" or "tanh", after the convolutions.
        clip: maximum absolute value of cells and states; None: no limit.
        residual: whether all LSTMs but the first are added to their input.
    """

    layers: int = 2
    cells: int
    characters: int = 16
    filters: tuple[tuple[int, int], ...]
    highways: int = 2
    activation: WordActivation = "relu"
    clip: float | None = 3.0
    residual: bool = True
    positions: int = 65_536

    capabilities = frozenset({CARRY, TWO_LMS, CHARACTERS, SEPARATE_LAYERS, DIRECTED})
    library = "unmask"  # transformers has no ELMo

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 2:
            raise ValueError(f"width {self.width} must be even: half of it is the state of each direction")
        if not 1 <= len(self.filters) <= MAX_LAYERS:
            raise ValueError(f"filters must have 1 to {MAX_LAYERS} convolutions: the size and number of their filters")
        sizes = [("a filter's size", size) for size, _ in self.filters]
        numbers = [("a number of filters", number) for _, number in self.filters]
        for name, value in [("cells", self.cells), ("characters", self.characters), *sizes, *numbers]:
            check_size(name, value)
        if any(size > LONGEST for size, _ in self.filters):
            raise ValueError(f"a filter's size must be at most {LONGEST}, the characters of a word")
        if not 0 <= self.highways <= MAX_LAYERS:
            raise ValueError(f"highways must not be negative, and at most {MAX_LAYERS}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError("clip must be above 0")

    @property
    def shape(self) -> str:
        """See `BodySettings`."""
        return f"{super().shape}, {self.cells:,} cells"

    @property
    def head(self) -> HeadSpec:
        """See `BodySettings`; the vector of a text is the mean of its words."""
        return HeadSpec(
            width=self.width,
            init=Initializer(),
            dropout=self.before_last,
            token_dropout=self.before_last,
            rnn_dropout=self.dropout,
            mean=True,
        )

    def build(self, vocabulary: int) -> TwoLms:
        """See `BodySettings`."""
        half = self.width // 2
        words = CharacterCnn(self.characters, self.filters, self.highways, half, self.activation)
        forward, backward = ([Lstm(half, self.cells, self.clip) for _ in range(self.layers)] for _ in range(2))
        body = TwoLms(self, vocabulary, words, forward, backward, self.dropout, self.residual)
        _initialize(body)
        return body


@torch.no_grad()
def _initialize(body: TwoLms) -> None:
    """Draw the initial weights; see the module."""
    words = body.characters
    for name, weight in body.named_parameters():
        if name.endswith("bias"):
            weight.zero_()
        elif weight.ndim == 2:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    nn.init.uniform_(words.characters.weight, -1, 1)
    for name, weight in words.named_parameters():
        if name.startswith("filters") and weight.ndim == 2 and body.settings.activation == "relu":
            nn.init.uniform_(weight, -0.05, 0.05)
        elif name.endswith("gate.bias"):
            nn.init.constant_(weight, -2)
    for layer in (*body.forward_lm, *body.backward_lm):
        limit = (6 / (2 * layer.width + 4 * layer.cells)) ** 0.5
        for part in (layer.input, layer.recurrent):
            nn.init.uniform_(part.weight, -limit, limit)
        nn.init.constant_(layer.input.bias[layer.cells : 2 * layer.cells], 1)
        limit = (6 / (layer.cells + layer.width)) ** 0.5
        nn.init.uniform_(layer.project.weight, -limit, limit)


ELMO = Family(
    ElmoSettings,
    Format(
        model_type="elmo",
        prefix="elmo.",
        config={
            "layers": "num_hidden_layers",
            "width": "hidden_size",
            "cells": "cell_size",
            "characters": "character_embedding_size",
            "filters": "filters",
            "highways": "num_highway_layers",
            "activation": "hidden_act",
            "clip": "clip",
            "residual": "residual",
            "positions": "max_position_embeddings",
            "dropout": "hidden_dropout_prob",
        },
        activations={"relu": "relu", "tanh": "tanh"},
        dropouts=(),
        tensors={name: name for name in ("characters", "forward_lm.{}", "backward_lm.{}")},
        heads=TASK_HEADS,
        decoder="",
        architectures=architectures("Elmo"),
    ),
)
