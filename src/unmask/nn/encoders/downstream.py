"""Downstream models: small models on top of an encoder's layers, for the feature-based approach.

Input: an encoder (frozen ones look up stored rows, see encoders/stored.py) and the layers to read. Output: an encoder
again, so that the head of every task can be added to it as to BERT. The row at a sequence's summary position, that of
[CLS], represents the whole sequence:

- `linear`: the vector of that token, or the mean of all tokens where heads read that (`HeadSpec.mean`). With only the
  last layer, no module of this file is needed: the result is the task's standard head on the pooled vector.
- `average`: the mean over the sequence's tokens, including special ones. It has no vectors for single tokens.
- `difference`: of a pair of texts, how far the means over the tokens of each are apart, |u - v| (one of the features of
  Conneau et al. 2017, section 3.1; there, texts are encoded separately). Segment ids tell which token is of which text.
- `rnn`: a bidirectional LSTM of two layers (Devlin et al. 2019, section 5.3); the last states of both directions
  represent the sequence, and each token has its own state.

Layers are concatenated (the best in Devlin et al. 2019, table 7), summed, or mixed by learned scalars (Peters et al.
2018, equation 1). Different from the paper, the LSTM is 200 wide, not 768, so that an epoch is cheap on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import PackedSequence

from unmask.data.batches.tokens import Plan, Tokens
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, Keep, mean_vectors
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.lstm import pack
from unmask.support.choices import DownstreamKind
from unmask.support.errors import UserError
from unmask.support.messages import argument

ORDER = "lstm"
"""Name of the order in which the LSTM reads tokens in the plan of a batch, and of its sizes; see `pack`."""
TINY = 1e-9
"""Divisor of a sum over no tokens, which is 0."""
RNN_LAYERS = 2
"""Number of layers of the LSTM, as in the paper."""


class DownstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [downstream].

    Attributes:
        kind: "linear", "average", "difference" or "rnn"; see the module.
        layers: the encoder's layers to read: 0 is the embeddings, negative numbers count from the end.
        combine: how several layers are combined: "concatenate", "sum", or "mix": softmax-normalized weights and a
            scale.
        width: width of the LSTM's states in each direction; None: 200.
        normalize: with "average" and "difference", whether the means of each layer are scaled to length 1: what texts
            are about is in their direction, above all in models that were trained for similarity.
    """

    kind: DownstreamKind
    layers: tuple[int, ...] = (-1,)
    combine: Literal["concatenate", "sum", "mix"] = "concatenate"
    width: int | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers must name at least one layer")
        if self.combine != "concatenate" and len(self.layers) == 1:
            raise ValueError("combine has no effect on a single layer")
        if self.normalize and (self.kind not in ("average", "difference") or self.combine != "concatenate"):
            raise ValueError('normalize goes with kind = "average" or "difference", and combine = "concatenate"')
        if self.width is not None and self.kind != "rnn":
            raise ValueError(f'width has no effect on kind = "{self.kind}"')
        if self.width is not None and self.width < 1:
            raise ValueError("width must be at least 1")

    def plain(self, layers: int) -> bool:
        """Return whether this is the task's head directly on the last of `layers` layers."""
        return self.kind == "linear" and resolve_layers(self.layers, layers) == (layers,)


def resolve_layers(chosen: Sequence[int], layers: int) -> tuple[int, ...]:
    """Return layer numbers from 0 (the embeddings) in the given order; negative numbers count from the end.

    Raises:
        UserError: no layer is given, an encoder with `layers` layers lacks one, or one is given twice.
    """
    if isinstance(chosen, int) or not all(isinstance(layer, Integral) for layer in chosen):
        raise UserError(
            f"{argument('layers', chosen)}: not a list of numbers of layers", remedy="pass such as [-2, -1]"
        )
    if not chosen:
        raise UserError("no layer is given", remedy=f"this model has 0 (the embeddings) to {layers}")
    numbers = []
    for layer in chosen:
        number = layer + layers + 1 if layer < 0 else layer
        if not 0 <= number <= layers:
            raise UserError(
                f"there is no layer {layer}",
                remedy=f"this model has 0 (the embeddings) to {layers}, or -1 to -{layers}",
            )
        if number in numbers:
            raise UserError(f"layer {layer} is given twice")
        numbers.append(number)
    return tuple(numbers)


class Mix(nn.Module):
    """gamma times a weighted mean of layers with softmax-normalized weights (Peters et al. 2018, equation 1).

    Args:
        layers: number of layers; initially all weights are equal, and gamma is 1.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Return the mix of layers: (tokens, width) each, to (tokens, width)."""
        shares = self.weights.softmax(0)  # (layers,)
        return self.gamma * sum(share * layer for share, layer in zip(shares, layers, strict=True))


class BidirectionalLstm(nn.Module):
    """A bidirectional LSTM over the sequences of a ragged stream, without padding.

    Args:
        inputs: width of the inputs.
        width: width of the states of one direction.
        dropout: dropout rate on the inputs of each layer.
    """

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.inputs = inputs
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(inputs, width, RNN_LAYERS, bidirectional=True, dropout=dropout)

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return the states of both directions of each token: (tokens, inputs) to (tokens, 2 * width)."""
        if tokens.plan is not None and ORDER in tokens.plan.tensors:
            order, sizes = tokens.plan.tensors[ORDER], torch.tensor(tokens.plan.sizes[ORDER])
        else:
            order, sizes = pack(tokens.position_ids)
        packed = PackedSequence(self.dropout(x).index_select(0, order), sizes)
        states, _ = self.lstm(packed)
        return torch.empty_like(states.data).index_copy(0, order, states.data)  # (tokens, 2 * width)


class Downstream(Encoder):
    """See the module; implements `Encoder`.

    Args:
        chosen: settings of the recipe.
        encoder: encoder whose layers are read.

    Raises:
        UserError: the encoder lacks one of these layers.
    """

    def __init__(self, chosen: DownstreamSettings, encoder: Encoder) -> None:
        super().__init__()
        self.chosen: DownstreamSettings = chosen
        self.encoder = encoder
        self.numbers = resolve_layers(chosen.layers, encoder.num_layers)
        several = len(self.numbers) > 1
        self.width = encoder.width * (len(self.numbers) if chosen.combine == "concatenate" else 1)
        self.mix = Mix(len(self.numbers)) if several and chosen.combine == "mix" else None
        self.lstm = None
        if chosen.kind == "rnn":
            self.lstm = BidirectionalLstm(self.width, chosen.width or 200, encoder.head.rnn_dropout)
            self.width = 2 * self.lstm.width
        # the head is a single linear layer, for whole texts and for tokens
        self.head = replace(
            encoder.head,
            width=self.width,
            token_dropout=encoder.head.dropout,
            pooler_dropout=0.0,
            bias=True,
            pools_tokens=False,
            mean=False,
        )
        self.num_layers, self.vocabulary, self.longest = encoder.num_layers, encoder.vocabulary, encoder.longest

    @property
    def recompute(self) -> bool:
        """See `Encoder`."""
        return self.encoder.recompute

    @recompute.setter
    def recompute(self, value: bool) -> None:
        self.encoder.recompute = value

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`; what this module adds counts as a head."""
        return self.encoder.layer_groups

    def plan(self, tokens: Tokens) -> Tokens:
        """See `Encoder`."""
        tokens = self.encoder.plan(tokens)
        if self.lstm is None:
            return tokens
        order, sizes = pack(tokens.position_ids)
        return replace(tokens, plan=(tokens.plan or Plan()) | Plan({ORDER: order}, {ORDER: tuple(sizes.tolist())}))

    @property
    def reads(self) -> tuple[int, ...]:
        """See `Encoder`."""
        return self.numbers

    def over(self, encoder: Encoder) -> Downstream:
        """See `Encoder`; modifies this module in place."""
        self.encoder = encoder
        return self

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`; there is no pooler, as the encoder's was trained on its last layer only."""
        layers = self.encoder(tokens, keep | Keep(frozenset(self.numbers))).layers
        x = self._combine([layers[number] for number in self.numbers])  # (tokens, width)
        starts, ends = tokens.offsets[:-1].long(), tokens.offsets[1:].long()
        summary = starts if self.head.summary == "first" else ends - 1  # (sequences,)
        if self.chosen.kind == "difference":
            first, second = (self._means(x, tokens, text) for text in range(2))
            x = x.index_copy(0, summary, (first - second).abs().to(x.dtype))
        if self.chosen.kind == "average" or (self.chosen.kind == "linear" and self.encoder.head.mean):
            x = x.index_copy(0, summary, self._means(x, tokens).to(x.dtype))
        if self.lstm is not None:
            x = self.lstm(x, tokens)  # (tokens, width)
            forward, backward = x.index_select(0, ends - 1), x.index_select(0, starts)
            half = self.lstm.width
            x = x.index_copy(0, summary, torch.cat([forward[:, :half], backward[:, half:]], 1))
        return Encoded(last=x, layers={number: layers[number] for number in keep.layers})

    def _means(self, x: Tensor, tokens: Tokens, text: int | None = None) -> Tensor:
        """Return the mean over the tokens of each sequence, or of one text of a pair, (sequences, width)."""
        if text is None:
            means = mean_vectors(x, tokens)
        else:
            assert tokens.segments is not None
            inside = (tokens.segments == text)[:, None].to(x.dtype)  # (tokens, 1)
            means = mean_vectors(x * inside, tokens) / mean_vectors(inside, tokens).clamp(min=TINY)
        if self.chosen.normalize:
            means = normalize(torch.unflatten(means, 1, (len(self.numbers), -1)), dim=2).flatten(1)
        return means

    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that do not belong to the encoder."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("encoder.")}

    def load_own(self, state: Mapping[str, Tensor]) -> None:
        """Load the tensors that `own_state` returned."""
        missing, unexpected = self.load_state_dict(state, strict=False)
        if unexpected or any(not name.startswith("encoder.") for name in missing):
            raise RuntimeError(f"not the state of this downstream model: missing {missing}, unexpected {unexpected}")

    def _combine(self, layers: Sequence[Tensor]) -> Tensor:
        if self.mix is not None:
            return self.mix(layers)
        return torch.cat(list(layers), 1) if self.chosen.combine == "concatenate" else torch.stack(list(layers)).sum(0)
