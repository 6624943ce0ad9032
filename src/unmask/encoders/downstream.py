"""A small model on top of an encoder's layers: the feature-based way of using it.

In: an encoder (frozen ones look stored rows up, see encoders/stored.py) and which of its layers to read. Out: again an
encoder, so that every task's head sits on it as it sits on BERT. The row at a sequence's summary, the
position of [CLS], stands for the whole sequence:

- `linear`: that token's own vector. Over the last layer alone no module of this file is needed, for then it is what the
  task does anyway, on the pooled vector.
- `average`: the mean over the sequence's tokens, special ones included. It has no vectors for single tokens.
- `rnn`: a bidirectional LSTM of two layers (Devlin et al. 2019, section 5.3); the last states of both directions stand
  for the sequence, and each token has its own state.

Layers are concatenated (the best in Devlin et al. 2019, table 7), summed, or mixed by learned scalars (Peters et al.
2018, equation 1). Different from the paper: the LSTM is 200 wide, not 768, so that an epoch is cheap on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from unmask.batches.batch import Tokens
from unmask.encoders.downstream_kind import DownstreamKind
from unmask.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, Keep
from unmask.errors import UserError
from unmask.layers.dropout import Dropout

RNN_LAYERS = 2
"""Of the LSTM, as in the paper."""


class DownstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [downstream].

    Attributes:
        kind: "linear", "average" or "rnn"; see the module.
        layers: which of the encoder's layers are read: 0 is the embeddings, negatives count from the end.
        combine: what becomes of several: "concatenate", "sum", or "mix": softmax-normalised weights and a scale.
        width: of the LSTM's states in each direction (200 unless set).
    """

    kind: DownstreamKind
    layers: tuple[int, ...] = (-1,)
    combine: Literal["concatenate", "sum", "mix"] = "concatenate"
    width: int | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers must name at least one layer")
        if self.combine != "concatenate" and len(self.layers) == 1:
            raise ValueError("combine has no effect on a single layer")
        if self.width is not None and self.kind != "rnn":
            raise ValueError(f'width has no effect on kind = "{self.kind}"')
        if self.width is not None and self.width < 1:
            raise ValueError("width must be at least 1")

    def plain(self, layers: int) -> bool:
        """Say whether this is the task's own head on the last of so many layers, without anything between."""
        return self.kind == "linear" and resolve_layers(self.layers, layers) == (layers,)


def resolve_layers(chosen: Sequence[int], layers: int) -> tuple[int, ...]:
    """Return layers counted from 0, the embeddings, in the order given; negatives count from the end.

    Raises:
        UserError: none is named, an encoder of so many layers has one not, or one is named twice.
    """
    if not chosen:
        raise UserError("no layer is named", remedy=f"this model has 0 (the embeddings) to {layers}")
    numbers = []
    for layer in chosen:
        number = layer + layers + 1 if layer < 0 else layer
        if not 0 <= number <= layers:
            raise UserError(
                f"there is no layer {layer}",
                remedy=f"this model has 0 (the embeddings) to {layers}, or -1 to -{layers}",
            )
        if number in numbers:
            raise UserError(f"layer {layer} is named twice")
        numbers.append(number)
    return tuple(numbers)


class Mix(nn.Module):
    """gamma times a weighted mean of layers, the weights softmax-normalised (Peters et al. 2018, equation 1).

    Args:
        layers: how many; at first all weigh the same, and gamma is 1.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Return (tokens, width) of layers that are each (tokens, width)."""
        shares = self.weights.softmax(0)  # (layers,)
        return self.gamma * sum(share * layer for share, layer in zip(shares, layers, strict=True))


class Lstm(nn.Module):
    """A bidirectional LSTM over the sequences of a ragged stream, without padding.

    Args:
        inputs: width of what it reads.
        width: of the states of a direction.
        dropout: on what each of its layers reads.
    """

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.width = width
        self.inputs = inputs
        self.dropout = Dropout(dropout)
        self.lstm = nn.LSTM(inputs, width, RNN_LAYERS, bidirectional=True, dropout=dropout)

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return each token's states of both directions: (tokens, inputs) to (tokens, 2 * width)."""
        order, sizes = pack(tokens)
        packed = PackedSequence(self.dropout(x).index_select(0, order), sizes)
        states, _ = self.lstm(packed)
        return torch.empty_like(states.data).index_copy(0, order, states.data)  # (tokens, 2 * width)

    def forward_flops(self, tokens: int) -> int:
        """Return the operations of the gates' matrices, whose outputs are four times as wide as the state."""
        inner = (RNN_LAYERS - 1) * (2 * self.width + self.width)
        return 2 * 2 * tokens * 4 * self.width * (self.inputs + self.width + inner)


def pack(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Return the order in which torch's recurrent networks read a batch, and how many sequences take each time step.

    Time step after time step, in each of them the longest sequence first: in the batch it comes last. The sizes must
    lie on the CPU, so on a GPU it is waited for.

    Returns:
        (tokens,) token numbers; (longest,) int64 on the CPU.
    """
    places, count = tokens.position_ids, len(tokens.ids)
    # within a place, later tokens belong to later and so to longer sequences
    order = (places * count + (count - 1 - torch.arange(count, device=places.device))).argsort()
    return order, torch.bincount(places).cpu()


class Downstream(Encoder):
    """See the module; satisfies `Encoder`.

    Args:
        chosen: the recipe's.
        encoder: whose layers are read.

    Raises:
        UserError: the encoder has not these layers.
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
            self.lstm = Lstm(self.width, chosen.width or 200, encoder.head.rnn_dropout)
            self.width = 2 * self.lstm.width
        # of whole texts and of single tokens alike, the head is one linear layer
        self.head = replace(
            encoder.head, width=self.width, token_dropout=encoder.head.dropout, pooler_dropout=0.0, bias=True
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

    @property
    def reads(self) -> tuple[int, ...]:
        """See `Encoder`."""
        return self.numbers

    def over(self, encoder: Encoder) -> Downstream:
        """See `Encoder`: changed in place."""
        self.encoder = encoder
        return self

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """See `Encoder`; the pooler was trained on the encoder's last layer alone, and so there is none here."""
        found = self.encoder(tokens, keep | Keep(frozenset(self.numbers))).layers
        x = self._combine([found[number] for number in self.numbers])  # (tokens, width)
        starts, ends = tokens.offsets[:-1].long(), tokens.offsets[1:].long()
        summary = starts if self.head.summary == "first" else ends - 1  # (sequences,)
        if self.chosen.kind == "average":
            means = torch.segment_reduce(x.float(), "mean", offsets=tokens.offsets.long(), axis=0)
            x = x.index_copy(0, summary, means.to(x.dtype))
        if self.lstm is not None:
            x = self.lstm(x, tokens)  # (tokens, width)
            forward, backward = x.index_select(0, ends - 1), x.index_select(0, starts)
            half = self.lstm.width
            x = x.index_copy(0, summary, torch.cat([forward[:, :half], backward[:, half:]], 1))
        return Encoded(last=x, layers={number: found[number] for number in keep.layers})

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Encoder`."""
        own = 0 if self.lstm is None else self.lstm.forward_flops(len(tokens.ids))
        return self.encoder.forward_flops(tokens) + own

    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that are not the encoder's."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("encoder.")}

    def load_own(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `own_state` returned."""
        missing, unexpected = self.load_state_dict(state, strict=False)
        if unexpected or any(not name.startswith("encoder.") for name in missing):
            raise RuntimeError(f"not this downstream model: {missing}, {unexpected}")

    def _combine(self, layers: Sequence[Tensor]) -> Tensor:
        if self.mix is not None:
            return self.mix(layers)
        return torch.cat(list(layers), 1) if self.chosen.combine == "concatenate" else torch.stack(list(layers)).sum(0)
