"""The body of ELMo: two language models, one in each direction, over the same vectors of words (Peters et al. 2018).

Input: the characters of words, (tokens, any number). Output: for each word the states of both directions, one behind
the other. The convolutions over characters are shared; each direction has its own LSTMs. Every LSTM but the first is
added to its input, and dropout is applied to the input of each and to the output (bilm-tf, `bilm/training.py`).

The directions are trained on different text, so the sequences of a batch in pretraining each have a direction, and
only the language model of that direction reads them: its states are then the output. They go on from step to step.

The vectors of words (Kim et al. 2016): convolutions of several sizes run over the embeddings of the bytes, with the
maximum over all positions of each filter; highway layers and a projection follow. Every distinct word of a batch is
computed once. Padding after a word has an embedding of its own and takes part in the maximum, as in bilm-tf: as all
windows of padding alone are equal, only the first of them is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from unmask.data.batches.tokens import Plan, Tokens
from unmask.data.tokenizers.words import CHARACTERS, PADDING
from unmask.nn.encoders.encoder import NO_CARRY, NOTHING, Carry, Encoded, Encoder, Keep, Shape
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.lstm import Lstm, LstmState, mirror, pack

FIRST, WORD, LONGEST = "words.first", "words.word", "words.longest"
ORDERS = ("forward", "backward")
"""Names in the plan of a batch."""
CHUNK = 512
"""Number of distinct words, of similar lengths, that are computed together."""
WordActivation = Literal["relu", "tanh"]
ACTIVATIONS: dict[WordActivation, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class CharacterCnn(nn.Module):
    """See the module.

    Args:
        characters: width of the embeddings of bytes.
        filters: size and number of the filters of each convolution.
        highways: number of highway layers.
        width: width of a word's vector.
        activation: activation after the convolutions.
    """

    def __init__(
        self,
        characters: int,
        filters: Sequence[tuple[int, int]],
        highways: int,
        width: int,
        activation: WordActivation = "relu",
    ) -> None:
        super().__init__()
        inner = sum(number for _, number in filters)
        self.sizes = [size for size, _ in filters]
        self.activation = ACTIVATIONS[activation]
        self.characters = nn.Embedding(CHARACTERS, characters)
        self.filters = nn.ModuleList(Linear(size * characters, number) for size, number in filters)
        self.highways = nn.ModuleList(Highway(inner) for _ in range(highways))
        self.project = Linear(inner, width)

    def forward(self, ids: Tensor, plan: Plan | None = None) -> Tensor:
        """Return the vectors of words.

        Args:
            ids: the bytes of each word, as `spell` returns them, (words, longest) int64.
            plan: what `plan_words` returns of them, if it is known.

        Returns:
            (words, width).
        """
        plan = plan or plan_words(ids)
        chunks = zip(torch.split(plan.tensors[FIRST], CHUNK), plan.sizes[LONGEST], strict=True)
        rows = torch.cat([self._filtered(ids.index_select(0, chosen), longest) for chosen, longest in chunks])
        for highway in self.highways:
            rows = highway(rows)
        return self.project(rows).index_select(0, plan.tensors[WORD])

    def _filtered(self, ids: Tensor, longest: int) -> Tensor:
        """Return the maxima of all filters over words of at most `longest` ids, (words, filters)."""
        x = self.characters(ids[:, : longest + max(self.sizes)])  # (words, length, width of the embeddings)
        maxima = []
        for size, filters in zip(self.sizes, self.filters, strict=True):
            windows = x[:, : longest + size].unfold(1, size, 1)  # (words, windows, width of the embeddings, size)
            maxima.append(filters(windows.flatten(2).flatten(0, 1)).view(len(ids), windows.shape[1], -1).max(1).values)
        return self.activation(torch.cat(maxima, 1))


class Highway(nn.Module):
    """g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x)) (Srivastava et al. 2015).

    Args:
        width: width of the input and the output.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = Linear(width, width)
        self.transform = Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (words, width)."""
        return torch.lerp(x, self.transform(x).relu(), self.gate(x).sigmoid())


def plan_words(ids: Tensor) -> Plan:
    """Return the distinct words of a batch: those that are computed.

    They are the index of a word for each, the shortest first (`FIRST`), the number of every word's representative among
    these (`WORD`), and the number of ids of the longest one of each chunk (`LONGEST`).

    Shape:
        ids: (words, any number) int64.
    """
    first, word = distinct(ids)
    lengths, order = (ids[first] != PADDING).sum(1).sort()
    longest = tuple(int(chunk[-1]) for chunk in torch.split(lengths, CHUNK))
    return Plan({FIRST: first[order], WORD: order.argsort()[word]}, {LONGEST: longest})


def distinct(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of one row for each distinct row of a matrix, and the number of each row's representative.

    Rows are compared by a hash of 64 bits, since comparing whole rows takes longer than a layer.

    Shape:
        ids: (rows, any number) int64; returns (distinct rows,) and (rows,).
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, (ids.shape[1],), generator=generator).to(ids.device)
    _, number = torch.unique((ids * factors).sum(1), return_inverse=True)
    first = number.new_empty(int(number.max()) + 1 if len(number) else 0)
    first[number] = torch.arange(len(ids), device=ids.device)
    return first, number


class TwoLms(Encoder):
    """See the module; implements `Encoder` and `WithCarry`.

    Args:
        settings: settings of the family.
        vocabulary: number of words that can be predicted.
        characters: computes the vectors of words.
        forward_lm, backward_lm: the LSTMs of each direction.
        dropout: dropout rate.
        residual: whether all LSTMs but the first are added to their input.
    """

    def __init__(
        self,
        settings: Shape,
        vocabulary: int,
        characters: CharacterCnn,
        forward_lm: Sequence[Lstm],
        backward_lm: Sequence[Lstm],
        dropout: float,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.take(settings, vocabulary)
        self.characters = characters
        self.forward_lm: Sequence[Lstm] = nn.ModuleList(forward_lm)  # type: ignore[assignment]  # used as a sequence
        self.backward_lm: Sequence[Lstm] = nn.ModuleList(backward_lm)  # type: ignore[assignment]
        self.dropout = Dropout(dropout)
        self.residual = residual

    @property
    def layer_groups(self) -> Sequence[nn.Module]:
        """See `Encoder`."""
        pairs = zip(self.forward_lm, self.backward_lm, strict=True)
        return [self.characters, *(nn.ModuleList(pair) for pair in pairs)]

    def start(self, streams: int) -> Carry:
        """See `WithCarry`; a stream has one direction, and its state that of the LSTMs of this direction."""
        states = [layer.start(streams) for layer in self.forward_lm]
        return _named(states)

    def forward(self, tokens: Tokens, keep: Keep = NOTHING, carry: Carry = NO_CARRY) -> Encoded:
        """Encode a batch; see `Encoder`.

        Without directions, layers are (tokens, width): both models read each sequence, and layer 0 is the vectors of
        words twice. With directions they are (tokens, width / 2).
        """
        plan = tokens.plan or self._plan(tokens)
        x = self.characters(tokens.ids, plan)  # (tokens, width / 2)
        orders = [(plan.tensors[order], plan.sizes[order]) for order in ORDERS]
        lms = self.forward_lm, self.backward_lm
        if tokens.reading.backward is None:
            pairs = [self._read(lm, x, *order, NO_CARRY)[0] for lm, order in zip(lms, orders, strict=True)]
            layers = [torch.cat(pair, 1) for pair in zip(*pairs, strict=True)]
            return Encoded(last=layers[-1], layers={number: layers[number] for number in keep.layers})
        first = len(tokens.offsets) - 1 - tokens.reading.backward  # sequence that is the first to be read backwards
        parts = []
        for lm, order, sequences, within in zip(lms, orders, _halves(first), _halves(tokens.border), strict=True):
            chosen_carry = {name: rows[sequences] for name, rows in carry.items()}
            parts.append(self._read(lm, x[within], *order, chosen_carry))
        layers = [torch.cat(pair) for pair in zip(*(model_layers for model_layers, _ in parts), strict=True)]
        new = {name: torch.cat([after[name] for _, after in parts]) for name in parts[0][1]} if carry else {}
        return Encoded(last=layers[-1], layers={number: layers[number] for number in keep.layers}, carry=new)

    def plan(self, tokens: Tokens) -> Tokens:
        """See `Encoder`."""
        return replace(tokens, plan=self._plan(tokens))

    def _plan(self, tokens: Tokens) -> Plan:
        """Return the distinct words, and the order in which each direction reads the tokens, with sizes; see `pack`."""
        if tokens.reading.backward is None:
            rows, sizes = pack(tokens.position_ids)
            back = mirror(tokens.position_ids, tokens.offsets)
            packed = [(rows, sizes), (back.index_select(0, rows), sizes)]
        else:
            packed = [pack(tokens.position_ids[within]) for within in _halves(tokens.border)]
        orders = Plan(
            {name: order for name, (order, _) in zip(ORDERS, packed, strict=True)},
            {name: tuple(sizes.tolist()) for name, (_, sizes) in zip(ORDERS, packed, strict=True)},
        )
        return plan_words(tokens.ids) | orders

    def _read(
        self, lm: Sequence[Lstm], x: Tensor, order: Tensor, sizes: Sequence[int], carry: Carry
    ) -> tuple[list[Tensor], Carry]:
        """Return what one language model gives: all layers, (tokens, width / 2) each, and its state.

        Args:
            lm: its LSTMs.
            x: vectors of words, (tokens, width / 2).
            order: the token that is read in each row of the packed sequences, (tokens,).
            sizes: number of sequences in each step.
            carry: state of the sequences, in the order of the batch; empty: they begin.
        """
        if not sizes:
            return [x] * (len(lm) + 1), carry
        y = x.index_select(0, order)
        layers, states = [x], []
        for number, layer in enumerate(lm):
            y = self.dropout(y)
            state = LstmState(*(carry[name].flip(0) for name in _names(number))) if carry else layer.start(sizes[0])
            out, after = layer(y, sizes, state)
            y = out + y if number and self.residual else out
            output = self.dropout(y) if number == len(lm) - 1 else y
            layers.append(torch.empty_like(y).index_copy(0, order, output))
            states.append(LstmState(*(rows.flip(0) for rows in after)))
        return layers, _named(states)


def _halves(border: int) -> tuple[slice, slice]:
    return slice(None, border), slice(border, None)


def _names(layer: int) -> tuple[str, str]:
    return f"hidden.{layer}", f"cells.{layer}"


def _named(states: Sequence[LstmState]) -> Carry:
    """Return the states of all layers by name, (sequences, ...) each."""
    return {name: rows for number, state in enumerate(states) for name, rows in zip(_names(number), state, strict=True)}
