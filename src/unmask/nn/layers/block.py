"""Layers of Transformer encoders and their self-attention over a ragged batch.

Multi-head self-attention (Vaswani et al. 2017, section 3.2.2) maps a stream of tokens to the attention output of each
token over its sequence. The kernel is injected. All have equal outputs and gradients, but `for_inference` no gradient;
`fastest` chooses one at each call:

| device | dtype | kernel |
|---|---|---|
| CPU | any | `fused`; without gradient, `for_inference` |
| GPU with FlashAttention (support/gpus.py), heads of a width that it takes | bf16, fp16 | `varlen` |
| other GPUs by CUDA | bf16, fp16 | `padded` |
| GPUs by CUDA | float32 | `padded` |
| GPU of Apple's, others | any | `plain` |

`plain` is also for export, attention scores and biases. Where the batch itself contains padding, `varlen` is not used.
Without gradient, layers all of which are computed in panels (support/panels.py) are one call (`in_one_call`).

`Block` is the layer of the paper and of BERT. Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x)), with
dropout on the sublayer's output (section 5.4). Layers may share a sublayer, including its LayerNorm (Lan et al. 2020
(ALBERT), section 3.1).

`PreNormBlock` is the layer of ModernBERT. Warner et al. 2024, section 2.1: x + Sublayer(LayerNorm(x)) (Xiong et al.
2020), GELU gated by a second linear function (Shazeer 2020), and no biases; unless the layer is global, its attention
is local. The first layer does not normalize its input, as the embeddings are normalized. Here the last layer contains
the LayerNorm of the output, so that its output is what heads read; in transformers that LayerNorm belongs to the body.
Dropout is where it is there: on the attention's output and inside the feed-forward sublayer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

from unmask.nn.layers.activation import GELU, gated
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.fused_attention import (
    fits_panels,
    flash_supports,
    for_inference,
    for_panels,
    fused,
    is_supported,
    padded,
    varlen,
)
from unmask.nn.layers.linear import Linear, is_exact_gelu
from unmask.nn.layers.norm import LayerNorm, RMSNorm
from unmask.nn.layers.plain_attention import AttentionSpec, Bias, Kernel, plain
from unmask.nn.layers.rotary import readers
from unmask.support import panels

if TYPE_CHECKING:
    from unmask.data.batches.tokens import Tokens

Function = TypeVar("Function", bound=Callable[..., Any])
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
Norm: TypeAlias = LayerNorm | RMSNorm
VARIANTS = 16
"""How often a function may be compiled: for layers of other structure, dtypes, and ranges of the number of tokens."""
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


def choose_kernel(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Kernel:
    """Return the fastest kernel that supports the inputs.

    Args:
        qkv: queries, keys and values, (tokens, 3 * width); only their device, dtype and shape are used.
        tokens: offsets and groups of the sequences.
        spec: parameters of the attention.
    """
    if spec.bias is not None or torch.compiler.is_exporting() or not (qkv.is_cpu or qkv.is_cuda):
        return plain
    if qkv.is_cpu:
        if torch.is_grad_enabled():
            return fused
        in_panels = fits_panels(qkv, qkv.shape[1] // 3, tokens, spec)
        return for_inference if in_panels or is_supported(tokens.groups, spec) else fused
    masked = any(group.masked for group in tokens.groups)
    return varlen if flash_supports(qkv, spec.heads) and not masked else padded


def fastest(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> Tensor:
    """Compute attention with the kernel that `choose_kernel` returns; see `Kernel`."""
    return choose_kernel(qkv, tokens, spec)(qkv, tokens, spec)


class SelfAttention(nn.Module):
    """Self-attention of each token to all tokens of its sequence, to itself and the previous ones, or to those nearby.

    Args:
        width: hidden size of the tokens; that of each head is `width // spec.heads`.
        spec: what tokens attend to, and how, in training; outside of it there is no dropout.
        biased: whether the two linear layers have biases.
        qkv: projection to queries, keys and values, (rows, width) to (rows, 3 * width); None: a linear layer.

    Attributes:
        kernel: computes the attention.

    Raises:
        ValueError: a rotation is given and the heads have an odd width.
    """

    def __init__(
        self,
        width: int,
        spec: AttentionSpec,
        *,
        biased: bool = True,
        qkv: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if spec.rotation is not None and width // spec.heads % 2:
            raise ValueError(f"rotary position embeddings need heads of an even width, not {width // spec.heads}")
        self.spec = spec
        self.kernel: Kernel = fastest
        self.qkv: Any = qkv
        if qkv is None:
            self.qkv = Linear(width, 3 * width, bias=biased)
            self.qkv.stacked = 3
        self.out = Linear(width, width, bias=biased)

    @torch.no_grad()
    def attend_at(self, offsets: Sequence[int]) -> None:
        """Initialize the first heads to attend to the tokens at these offsets, -1 being the previous token.

        With rotary positions by biases (`Rotation.biases`), otherwise by weights (`readers` in rotary.py).
        """
        width = self.out.in_features
        heads, rotation = self.spec.heads, self.spec.rotation
        size = width // heads
        for head, offset in zip(range(heads), offsets, strict=False):
            if rotation is not None:
                query, key, _ = self.qkv.bias.view(3, heads, size)  # (heads, head width) each
                query[head], key[head] = rotation.biases(offset, size)
                continue
            query, key, _ = self.qkv.weight.view(3, heads, size, width)  # (heads, head width, width) each
            for part, reader in zip((query[head], key[head]), readers(offset, size, width), strict=True):
                part[: len(reader)] = 0
                part[: len(reader), : len(reader)] = reader

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the attention output of each token.

        Args:
            x: (tokens, width).
            tokens: offsets and groups of the sequences.
            scores: if given, the scores before the softmax are appended for each group of the batch; they are computed
                by the plain kernel, see `plain`.
            rows: if given, the tokens to return, (rows,) int64.

        Returns:
            (tokens or rows, width).
        """
        return self.out(self.read(x, tokens, scores, rows))

    def read(self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None, rows: Tensor | None) -> Tensor:
        """Return the attention output before the last linear layer; see `forward`."""
        return select(self.attend(self.qkv(x), tokens, scores), rows)

    def attend(
        self, qkv: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, bias: Bias | None = None
    ) -> Tensor:
        """Return what tokens attend to, (tokens, width), from their queries, keys and values, (tokens, 3 * width).

        Args:
            qkv: queries, keys and values.
            tokens: see `forward`.
            scores: see `forward`.
            bias: a bias on the scores that depends on the weights; None: that of the spec.
        """
        spec = self.spec if self.training else self.spec.undropped
        spec = spec if bias is None else replace(spec, bias=bias)
        return self.kernel(qkv, tokens, spec) if scores is None else plain(qkv, tokens, spec, scores)


def select(x: Tensor, rows: Tensor | None) -> Tensor:
    """Return some rows of a matrix; None: all."""
    return x if rows is None else x.index_select(0, rows)


def compile_layers(body: nn.Module) -> None:
    """Let the layers of a body compute in training with compiled functions, in place.

    Sums of residual connections, dropout, norms and activations, and the sums of their gradients over the tokens,
    become few kernels. Attention is not compiled.
    """
    for module in body.modules():
        if isinstance(module, Block | PreNormBlock):
            module.compiled = True


def _function(function: Function, *, compiled: bool) -> Function:
    """Return a function, compiled where asked for and gradients are computed: evaluations are not worth it."""
    return _compiled(function) if compiled and torch.is_grad_enabled() else function


@cache
def _compiled(function: Function) -> Function:
    """Return a function that is compiled at its first call, for any number of tokens."""
    import torch._dynamo  # takes a second

    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return cast(Function, torch.compile(function, dynamic=True))


class Sizes(NamedTuple):
    """The sizes of a layer.

    Attributes:
        width: hidden size of the tokens.
        heads: number of attention heads.
        inner: width between the two feed-forward layers.
    """

    width: int
    heads: int
    inner: int


class FeedForward(nn.Sequential):
    """Two linear layers with an activation in between: (tokens, width) to (tokens, width)."""

    def __init__(self, width: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(width, inner)
        self.activation = ACTIVATIONS[activation]()
        self.down = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return down(activation(up(x))) for each token."""
        return self.down(self.up(x, self.activation))


class Block(nn.Module):
    """Self-attention and feed-forward sublayers, each with a residual connection and LayerNorm.

    Args:
        attention, attention_norm: the attention and its LayerNorm.
        feed_forward, feed_forward_norm: the feed-forward sublayer and its LayerNorm.
        dropout: dropout rate on both sublayers' outputs.
        shared: "attention" and "feed_forward", if these are those of another layer, in which they are registered.
    """

    attention: SelfAttention
    attention_norm: LayerNorm
    feed_forward: FeedForward | GatedFeedForward
    feed_forward_norm: LayerNorm
    compiled = False
    kept: Kept | None = None

    def __init__(
        self,
        attention: SelfAttention,
        attention_norm: LayerNorm,
        feed_forward: FeedForward | GatedFeedForward,
        feed_forward_norm: LayerNorm,
        dropout: float,
        *,
        shared: Collection[str] = (),
    ) -> None:
        super().__init__()
        sublayers = {"attention": (attention, attention_norm), "feed_forward": (feed_forward, feed_forward_norm)}
        for name, (sublayer, norm) in sublayers.items():
            # parameters of shared sublayers are registered in one module only
            assign = object.__setattr__ if name in shared else setattr
            assign(self, name, sublayer)
            assign(self, f"{name}_norm", norm)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the next layer's tokens.

        Args:
            x: (tokens, width).
            tokens: offsets and groups of the sequences.
            scores: if given, the attention scores of each group are appended; see `SelfAttention.forward`.
            rows: if given, the tokens to return, (rows,) int64.

        Returns:
            (tokens or rows, width).
        """
        read = self.attention.read(x, tokens, scores, rows)
        return _function(Block.finish, compiled=self.compiled)(self, read, select(x, rows))

    def finish(self, read: Tensor, x: Tensor) -> Tensor:
        """Return the next layer's tokens from what the attention read, all (rows, width)."""
        if (layer := self.in_panels()) is not None:
            return panels.transform(read, x, layer)
        x = self.attention_norm(self.attention.out(read), x, self.dropout)
        y: Tensor = self.feed_forward_norm(self.feed_forward(x), x, self.dropout)
        return y

    def in_panels(self) -> panels.Layer | None:
        """Return the layer in panels, if all products of `finish` are computed there (nn/layers/linear.py)."""
        return _in_panels(self, None, self.attention_norm, self.feed_forward_norm)


class GatedFeedForward(nn.Module):
    """down(activation(a) * b), where a and b are the halves of up(x): (tokens, width) to (tokens, width)."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(width, 2 * inner, bias=False)
        self.up.stacked = 2
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.down = Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sublayer's output for each token."""
        return self.down(self.dropout(gated(self.up(x), self.activation)))


class PreNormBlock(nn.Module):
    """Attention and feed-forward sublayers, each with a LayerNorm before it and a residual connection around it.

    Args:
        attention_norm, attention: the attention and the norm of its input; None: the input is normalized already.
        feed_forward_norm, feed_forward: the feed-forward sublayer and the norm of its input.
        final_norm: norm of the output, in the last layer; None: there is none.
        dropout: dropout rate on the attention's output.
    """

    compiled = False
    kept: Kept | None = None

    def __init__(
        self,
        attention_norm: Norm | None,
        attention: SelfAttention,
        feed_forward_norm: Norm,
        feed_forward: FeedForward | GatedFeedForward,
        final_norm: Norm | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.feed_forward_norm = feed_forward_norm
        self.feed_forward = feed_forward
        self.final_norm = final_norm
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the next layer's tokens; see `Block.forward`."""
        qkv = _function(PreNormBlock.begin, compiled=self.compiled)(self, x)
        read = select(self.attention.attend(qkv, tokens, scores), rows)
        return _function(PreNormBlock.finish, compiled=self.compiled)(self, read, select(x, rows))

    def begin(self, x: Tensor) -> Tensor:
        """Return queries, keys and values, (rows, 3 * width), from (rows, width)."""
        qkv: Tensor = self.attention.qkv(x if self.attention_norm is None else self.attention_norm(x))
        return qkv

    def finish(self, read: Tensor, x: Tensor) -> Tensor:
        """Return the next layer's tokens from what the attention read, all (rows, width)."""
        if (layer := self.in_panels()) is not None:
            return panels.transform(read, x, layer)
        x = self.dropout(self.attention.out(read), onto=x)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x if self.final_norm is None else self.final_norm(x)

    def in_panels(self) -> panels.Layer | None:
        """See `Block.in_panels`."""
        return _in_panels(self, self.attention_norm, self.feed_forward_norm, self.final_norm)


def rms_block(
    attention: SelfAttention, feed_forward: GatedFeedForward, epsilon: float, *, last: bool, dropout: float = 0.0
) -> PreNormBlock:
    """Return a pre-norm layer with RMSNorm before each sublayer and, if it is the last one, on its output.

    Args:
        attention, feed_forward: the sublayers.
        epsilon: epsilon of the norms.
        last: whether it is the last layer.
        dropout: dropout rate on the attention's output.
    """
    width = attention.out.in_features
    norms = [RMSNorm(width, epsilon) for _ in range(2)]
    final = RMSNorm(width, epsilon) if last else None
    return PreNormBlock(norms[0], attention, norms[1], feed_forward, final, dropout)


class Kept:
    """A layer in panels, as long as its parameters are the same, unchanged; a text alone waits for this check.

    A copy of a block has none, as the layer holds addresses.

    Args:
        layer: the layer.
        modules: those whose parameters it was made of.
    """

    def __init__(self, layer: panels.Layer, modules: Sequence[nn.Module]) -> None:
        self.layer = layer
        self._places = [(module._parameters, name) for module in modules for name in module._parameters]
        self._parameters = [where[name] for where, name in self._places]
        self._tensors = [it for it in self._parameters if it is not None]
        self._counted = [it for it in self._tensors if not it.is_inference()]
        self._state = self._states()

    def _states(self) -> tuple[list[int], list[int]]:
        """Return what `state_of` does for all of them."""
        return [it._version for it in self._counted], [it.data_ptr() for it in self._tensors]

    @property
    def is_current(self) -> bool:
        """Whether the parameters are the same, unchanged."""
        now = [where.get(name) for where, name in self._places]
        return all(map(is_, now, self._parameters)) and self._states() == self._state

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Copy and pickle as None."""
        return type(None), ()


def in_one_call(
    blocks: Sequence[nn.Module], x: Tensor, tokens: Tokens
) -> list[tuple[panels.Layer, panels.Attention]] | None:
    """Return layers as `panels.encode` takes them, if all of them are computed in panels, without gradient.

    Args:
        blocks: the layers.
        x: their input, (tokens, width).
        tokens: offsets and groups of the sequences.
    """
    layers: list[tuple[panels.Layer, panels.Attention]] = []
    spec, attends = None, None
    for block in blocks:
        if not isinstance(block, Block | PreNormBlock):
            return None
        attention, layer = block.attention, block.in_panels()
        # other attention may compute more, and a hook may want what a layer returns
        if layer is None or type(attention) is not SelfAttention or attention.kernel is not fastest:
            return None
        if block._forward_hooks or block._forward_pre_hooks:
            return None
        if attends is None or attention.spec.undropped != spec:
            spec, width = attention.spec.undropped, x.shape[1]
            if not fits_panels(x, width, tokens, spec):
                return None
            attends = for_panels(width, tokens, spec)
        layers.append((layer, attends))
    return layers


def _in_panels(block: Block | PreNormBlock, begin: Norm | None, first: Norm, last: Norm | None) -> panels.Layer | None:
    """Return a layer in panels, the one that was returned before as long as its parameters are the same.

    Args:
        block: the layer.
        begin, first, last: norms of its input, and of the first and the last product after attention.
    """
    if block.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if block.kept is not None and block.kept.is_current:
        return block.kept.layer
    attention, between = block.attention, block.feed_forward
    if not isinstance(attention.qkv, Linear) or not is_exact_gelu(between.activation):
        return None
    linears = attention.qkv, attention.out, between.up, between.down
    gated = isinstance(between, GatedFeedForward)
    of_qkv, of_out, of_up, of_down = (linear.in_panels() for linear in linears)
    if of_qkv is None or of_out is None or of_up is None or of_down is None:
        return None
    if isinstance(begin, RMSNorm) or isinstance(first, RMSNorm) or isinstance(last, RMSNorm):
        return None
    if gated and between.down.in_features % panels.WIDE:
        return None
    if len({matrix.dtype for matrix in (of_qkv, of_out, of_up, of_down)}) > 1:  # some are not of bytes
        return None
    layer = panels.Layer(
        panels.Product(of_qkv, attention.qkv.bias),
        panels.Product(of_out, attention.out.bias, norm=_in_layer(first)),
        panels.Product(of_up, between.up.bias, gelu=not gated, gated=gated),
        panels.Product(of_down, between.down.bias, norm=_in_layer(last)),
        begin=_in_layer(begin),
        pre_norm=isinstance(block, PreNormBlock),
    )
    block.kept = Kept(layer, [part for part in (*linears, begin, first, last) if part is not None])
    return layer


def _in_layer(norm: LayerNorm | None) -> panels.Norm | None:
    """Return a norm as `panels.Layer` takes it."""
    return None if norm is None else panels.Norm(norm.weight, norm.bias, norm.eps)


class GroupedQueries(nn.Module):
    """The projection to queries, keys and values for `SelfAttention`, without biases, with common keys and values.

    Ainslie et al. 2023: several heads have a key and a value in common.

    Args:
        width: hidden size of the tokens.
        heads: number of attention heads.
        groups: number of different keys and values, a divisor of `heads`; adjacent heads are a group.
    """

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.in_features = width
        self.groups, self.members = groups, heads // groups
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * groups * (width // heads), bias=False)
        self.key_value.stacked = 2

    def forward(self, x: Tensor) -> Tensor:
        """Return queries, keys and values of all heads, (rows, 3 * width), from (rows, width)."""
        rows = x.shape[0]
        pairs = self.key_value(x).view(rows, 2, self.groups, 1, -1).expand(-1, -1, -1, self.members, -1)
        return torch.cat([self.query(x), pairs.reshape(rows, -1)], 1)
